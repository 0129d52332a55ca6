package proxy

import (
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Record is what a request was like whose answer was counted, for whoever wants to run
// its like again: times, sizes and marks, and nothing of what was said. It is valid
// during the call that hands it over.
type Record struct {
	Pick    *Pick // the attempt that was answered; Candidates are not filled in
	Outcome Outcome
	Marks   []prefix.Mark // of the prompt
	Total   prefix.Mark   // its depth; Hash is zero

	Session string // the client's key of affinity; empty: none

	PromptTokens int // as the engine reported them, estimated where it does not
	CachedTokens int // negative: it does not report them
	OutputTokens int
	MaxTokens    int // the client's bound; 0: none

	First time.Duration // from the pick to a stream's first token; 0: not streamed
	ITL   time.Duration // mean between tokens; 0: unknown
}

// record tells what the attempt that ends was like, if anybody wants to hear it.
func (j *Job) record(r *Result) {
	c, u := j.core, &r.Usage
	if c.ended == nil || !j.prompt || u.Source == api.None {
		return
	}
	x := Record{
		Pick: &j.pick, Outcome: r.Outcome, Marks: j.marks, Total: j.total, Session: j.req.Session,
		PromptTokens: u.InputTotal, CachedTokens: -1, OutputTokens: u.Output, MaxTokens: j.req.MaxTokens,
	}
	if u.CachedKnown {
		x.CachedTokens = u.InputCached
	}
	if a := &j.now; r.Streamed && !a.first.IsZero() {
		x.First = a.first.Sub(a.began)
		if u.Output > 1 && r.Last.After(a.first) {
			x.ITL = r.Last.Sub(a.first) / time.Duration(u.Output-1)
		}
	}
	c.ended(&x)
}
