package console

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Refusal is a plan to scale that was not carried out, and how often in a row.
type Refusal struct {
	Key         state.TargetKey
	First, Last time.Time
	Count       int
	From, To    int
	Reason      string // a code
	Text        string // what was planned, or what hindered it
	After       string // id of the decision before; empty: none
}

func (s *Server) decisions(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	pool := q.Get("pool")
	if pool != "" && s.pool(pool) == nil {
		unknownPool(w, pool)
		return
	}
	since, n := time.Time{}, 0
	var err error
	if v := q.Get("since"); v != "" {
		if since, err = time.Parse(time.RFC3339, v); err != nil {
			fail(w, http.StatusBadRequest, "invalid", "since: give an instant such as 2026-01-02T15:04:05Z")
			return
		}
	}
	if v := q.Get("n"); v != "" {
		if n, err = strconv.Atoi(v); err != nil || n < 0 {
			fail(w, http.StatusBadRequest, "invalid", "n: give a number, 0 for all")
			return
		}
	}
	rows := s.decided()
	if on, _ := strconv.ParseBool(q.Get("refusals")); on {
		rows = merged(rows, s.refused())
	}
	out := []Decision{}
	for i := range rows {
		if d := &rows[i]; (pool == "" || d.Pool == pool) && !d.At.Before(since) && (n == 0 || len(out) < n) {
			out = append(out, *d)
		}
	}
	respond(w, http.StatusOK, out)
}

// decided are the decisions, newest first.
func (s *Server) decided() (rows []Decision) {
	known := namesOf(s.node.Members())
	for _, d := range slices.Backward(s.node.View().Facts.Decisions) {
		row := Decision{
			ID: d.ID, At: d.At, Pool: d.Pool, Role: string(d.Role), From: d.From, To: d.To,
			Reason: d.Reason, By: d.By, ByName: known.of(d.By), Outcome: string(d.Outcome), Detail: d.Detail,
			DryRun: d.Outcome == state.OutcomeDone && d.Detail == state.DryRunDetail, Evidence: d.Evidence, Index: d.Index, Epoch: d.Epoch,
		}
		if d.Open() {
			row.Detail = s.node.Hindrance(state.TargetKey{Pool: d.Pool, Role: d.Role})
		} else if !d.DoneAt.IsZero() {
			row.DoneAt = &d.DoneAt
		}
		for _, v := range d.Victims {
			row.Victims = append(row.Victims, string(v))
		}
		rows = append(rows, row)
	}
	return rows
}

// refused are the plans that were refused, newest first.
func (s *Server) refused() (rows []Decision) {
	for _, r := range slices.Backward(s.node.Refusals()) {
		rows = append(rows, Decision{
			At: r.Last, Pool: r.Key.Pool, Role: string(r.Key.Role), From: r.From, To: r.To, Outcome: "refused", Detail: r.Text,
			Refused: r.Reason, Count: r.Count, Since: &r.First, After: r.After,
		})
	}
	slices.SortStableFunc(rows, func(a, b Decision) int { return b.At.Compare(a.At) })
	return rows
}

// merged puts refusals between decisions by time. Decisions stay in the order in which
// they were committed, whatever their leaders' clocks said.
func merged(decided, refused []Decision) (rows []Decision) {
	for _, d := range decided {
		for len(refused) > 0 && refused[0].At.After(d.At) {
			rows, refused = append(rows, refused[0]), refused[1:]
		}
		rows = append(rows, d)
	}
	return append(rows, refused...)
}
