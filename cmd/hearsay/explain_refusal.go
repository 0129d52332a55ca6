package main

import (
	"fmt"
	"io"
	"strings"
)

// refusal is why a past request was refused.
type refusal struct {
	Status int      `json:"status"`
	Reason string   `json:"reason"`
	Words  []string `json:"words"`
}

// had is what a replica had then.
type had struct {
	InFlight int64   `json:"in_flight"`
	Cap      int64   `json:"max_inflight"`
	Waiting  float64 `json:"waiting"`
	KVUsage  float64 `json:"kv_usage"`
}

// printRefusal says why a request was refused, and what each replica had then.
func (e *explained) printRefusal(w io.Writer, _ outputFlag) error {
	after := ""
	if e.Attempt > 0 {
		after = " after " + plural(e.Attempt, "attempt")
	}
	x := e.Refusal
	fmt.Fprintf(w, "request %s was refused with %d (%s)%s\n", e.RequestID, x.Status, x.Reason, after)
	if len(e.Candidates) > 0 || e.PromptTokens > 0 {
		fmt.Fprintf(w, "pool %s, model %s, %sabout %s\n", e.Pool, e.Model, e.whose(), plural(e.PromptTokens, "prompt token"))
	}
	for _, s := range x.Words {
		fmt.Fprintln(w, strings.Map(printable, s))
	}
	if len(e.Candidates) == 0 {
		return nil
	}
	t := newTable("replica", "in flight", "most", "queue ms", "engine waiting", "kv", "matched tok", "excluded")
	for _, c := range e.Candidates {
		h, most := c.Had, "-"
		if h == nil {
			h = &had{Waiting: -1, KVUsage: -1}
		}
		if h.Cap > 0 {
			most = fmt.Sprint(h.Cap)
		}
		t.row(c.Replica, h.InFlight, most, fmt.Sprintf("%.1f", c.Terms["queue"]), count(h.Waiting), percent(h.KVUsage), c.MatchedTokens, whyNot(&c))
	}
	return t.write(w)
}
