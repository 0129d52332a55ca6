package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// ack is a write that a router said was committed.
type ack struct {
	to    int
	index uint64
}

// decide sets the size of the scaled pool through a router.
func (w *world) decide(ctx context.Context, r *harness.Proc, to int) (ack, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	body, err := json.Marshal(console.TargetRequest{To: &to})
	if err != nil {
		return ack{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.Admin+"/admin/v1/pools/"+scaled+"/target", bytes.NewReader(body))
	if err != nil {
		return ack{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.Client().Do(req)
	if err != nil {
		return ack{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return ack{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return ack{}, fmt.Errorf("target %d at %s: status %d, %s", to, r.Name, resp.StatusCode, b)
	}
	var done console.Done
	if err := json.Unmarshal(b, &done); err != nil {
		return ack{}, err
	}
	return ack{to, done.Index}, nil
}

// settled waits until every decision has its outcome, as all routers have it, and as many engines run as are
// wanted.
func (w *world) settled(ctx context.Context, bound time.Duration) ([]console.Decision, error) {
	began := time.Now()
	for {
		list, err := decisions(ctx, w.Routers)
		if err == nil {
			if n := len(w.Started()); len(list) > 0 && n != list[0].To {
				err = fmt.Errorf("%d engines run, %d are wanted", n, list[0].To)
			}
		}
		if err == nil {
			return list, nil
		}
		if time.Since(began) > bound {
			return nil, fmt.Errorf("not settled within %v: %w", bound, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// decisions are the scaled pool's, newest first, the same on these routers and none open; an error otherwise.
func decisions(ctx context.Context, set []*harness.Proc) (list []console.Decision, err error) {
	seen := ""
	for i, r := range set {
		var all []console.Decision
		if err := r.GetAdmin(ctx, "decisions", &all); err != nil {
			return nil, err
		}
		list = list[:0]
		said := ""
		for _, d := range all {
			if d.Pool != scaled {
				continue
			}
			if d.Outcome == "" {
				return nil, fmt.Errorf("decision %s is open at %s", d.ID, r.Name)
			}
			list = append(list, d)
			said += fmt.Sprintln(d.ID, d.From, d.To, d.Index, d.Outcome)
		}
		if i > 0 && said != seen {
			return nil, fmt.Errorf("%s has other decisions than %s", r.Name, set[0].Name)
		}
		seen = said
	}
	return list, nil
}

// acts counts what actuators did for each decision, by the logs of all routers over all their lives.
type acts struct{ starts, stops map[string]int }

func actsIn(logs ...string) acts {
	a := acts{map[string]int{}, map[string]int{}}
	for _, log := range logs {
		for _, line := range strings.Split(log, "\n") {
			var e struct{ Message, Decision string }
			if !strings.Contains(line, `"decision":`) || json.Unmarshal([]byte(line), &e) != nil {
				continue
			}
			switch e.Message {
			case "process started":
				a.starts[e.Decision]++
			case "process asked to end":
				a.stops[e.Decision]++
			}
		}
	}
	return a
}

// twice says what was done that no decision asks for, or more often than decisions ask. list is newest first. Of a
// decision that another one overtook only some may have been done, and the next one does what is missing: such are
// judged by the sums.
func (a acts) twice(list []console.Decision) (out []string) {
	judge := func(what string, ups, downs, starts, stops int) {
		if starts > ups {
			out = append(out, fmt.Sprintf("%s: %d processes were started, %d were decided", what, starts, ups))
		}
		if stops > downs {
			out = append(out, fmt.Sprintf("%s: %d processes were stopped, %d were decided", what, stops, downs))
		}
	}
	known := map[string]bool{}
	var ups, downs, starts, stops int
	whole := true // what was decided before is done
	for _, d := range slices.Backward(list) {
		known[d.ID] = true
		up, down := max(0, d.To-d.From), max(0, d.From-d.To)
		ups, downs, starts, stops = ups+up, downs+down, starts+a.starts[d.ID], stops+a.stops[d.ID]
		done := d.Outcome == string(state.OutcomeDone)
		if whole && done {
			judge("decision "+d.ID, up, down, a.starts[d.ID], a.stops[d.ID])
		}
		whole = done
	}
	if len(out) == 0 {
		judge("all decisions", ups, downs, starts, stops)
	}
	for _, m := range []map[string]int{a.starts, a.stops} {
		for id, n := range m {
			if !known[id] {
				out = append(out, fmt.Sprintf("decision %s, which is none: %d acts", id, n))
			}
		}
	}
	return out
}

// lost are the acknowledged writes that are not among the decisions.
func lost(acks []ack, list []console.Decision) (out []string) {
next:
	for _, a := range acks {
		for _, d := range list {
			if d.Index == a.index && d.To == a.to {
				continue next
			}
		}
		out = append(out, fmt.Sprintf("target %d, acknowledged at %d, is lost", a.to, a.index))
	}
	return out
}
