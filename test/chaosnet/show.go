package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// result is what one invocation saw.
type result struct {
	Command string   `json:"command"`
	Rows    []record `json:"rows"`
}

// record is a row as it is saved. Times are in seconds, -1 where there is none.
type record struct {
	Fault     string         `json:"fault"`
	Requests  int            `json:"requests"`
	Failed    map[string]int `json:"failed_at_the_fault"`
	Elsewhere map[string]int `json:"failed_elsewhere"`
	Longest   float64        `json:"longest_request_s"`
	Majority  float64        `json:"majority_agreed_s"`
	Finished  float64        `json:"decision_finished_s"`
	Wrote     float64        `json:"write_took_s"`
	Members   float64        `json:"members_agreed_s"`
	Leader    float64        `json:"leader_agreed_s"`
	Facts     float64        `json:"facts_agreed_s"`
	Sketches  float64        `json:"sketches_agreed_s"`
	All       float64        `json:"all_agreed_s"`
	Twice     int            `json:"acted_twice"`
	Lost      int            `json:"facts_lost"`
	Broke     []string       `json:"broken_promises"`
}

// line is a row in words, as it comes.
func (r *row) line() string {
	s := fmt.Sprintf("%-16s %4d requests, %d failed at it, %d elsewhere; all agreed after %s", r.name, r.requests, total(r.failed), total(r.elsewhere), seconds(r.healed.all))
	for _, b := range r.broke {
		s += "\n  BROKEN: " + b
	}
	return s
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// causes lists failures by their cause, in order.
func causes(m map[string]int) string {
	if len(m) == 0 {
		return "0"
	}
	var out []string
	for _, c := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%d %s", m[c], c))
	}
	return strings.Join(out, ", ")
}

// show prints the table and saves the figures. Its error says that a promise was broken.
func show(w io.Writer, o *options, rows []*row) error {
	res := result{Command: "go run ./test/chaosnet " + strings.Join(os.Args[1:], " ")}
	var lines [][]string
	broken := 0
	for _, r := range rows {
		rec := record{
			Fault: r.name, Requests: r.requests, Failed: r.failed, Elsewhere: r.elsewhere, Longest: r.longest.Seconds(), Majority: -1, Finished: -1, Wrote: -1,
			Members: r.healed.members.Seconds(), Leader: r.healed.leader.Seconds(), Facts: r.healed.facts.Seconds(),
			Sketches: r.healed.sketches.Seconds(), All: r.healed.all.Seconds(), Twice: r.twice, Lost: r.lost, Broke: r.broke,
		}
		majority, finished, wrote := "", "", ""
		if r.during != nil {
			rec.Majority, majority = r.during.all.Seconds(), seconds(r.during.all)
		}
		if r.finished > 0 {
			rec.Finished, finished = r.finished.Seconds(), seconds(r.finished)
		}
		if r.wrote > 0 {
			rec.Wrote, wrote = r.wrote.Seconds(), fmt.Sprintf("%d ms", r.wrote.Milliseconds())
		}
		res.Rows = append(res.Rows, rec)
		broken += len(r.broke)
		h := r.healed
		lines = append(lines, []string{
			r.name, fmt.Sprint(r.requests), causes(r.failed), causes(r.elsewhere), seconds(r.longest), majority, finished, wrote,
			seconds(h.members), seconds(h.leader), seconds(h.facts), seconds(h.sketches), fmt.Sprint(r.twice), fmt.Sprint(r.lost),
		})
	}
	table.Print(w, fmt.Sprintf("%d routers (%d vote), %d engines, %d clients, each fault for %v. Times are wall clock, to %v.", o.routers, o.voters, o.engines, o.clients, o.lasts, lookEvery), 1, []string{
		"fault", "requests", "failed at it", "failed elsewhere", "longest request", "majority agrees", "decision finished", "write meanwhile",
		"after: members", "leader", "facts", "sketches", "acted twice", "facts lost",
	}, lines)
	if err := table.Save(o.out, "chaosnet.json", &res); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("%d promises were not kept", broken)
	}
	return nil
}
