package enginesim

import "time"

// Outcomes of a recorded request.
const (
	OutcomeActive   = "active"   // not over yet
	OutcomeFinished = "finished" // answered in full, as far as the engine can tell
	OutcomeAborted  = "aborted"  // the peer closed first, or asked for the end by rid
	OutcomeRejected = "rejected" // answered with an error of its own making
	OutcomeFault    = "fault"    // cut short or refused by a Fault
	OutcomeKilled   = "killed"   // lost in a restart or at shutdown
)

// RequestRecord is what the engine received and did for one inference request.
// Times come from the scheduler: the end of the step that produced the token.
type RequestRecord struct {
	Seq          int64     `json:"seq"` // from 1, in order of receipt
	ID           string    `json:"id"`  // as in the answer
	XRequestID   string    `json:"x_request_id,omitempty"`
	RID          string    `json:"rid,omitempty"` // SGLang's own request id, from the body
	Path         string    `json:"path"`
	Model        string    `json:"model"`
	Stream       bool      `json:"stream"`
	Sequences    int       `json:"sequences"` // prompts times n
	PromptTokens int       `json:"prompt_tokens"`
	CachedTokens int       `json:"cached_tokens"` // of prompt tokens, found at admission
	OutputTokens int       `json:"output_tokens"` // generated, sent or not
	Preemptions  int       `json:"preemptions,omitempty"`
	Arrival      time.Time `json:"arrival"`
	FirstToken   time.Time `json:"first_token,omitzero"`
	End          time.Time `json:"end,omitzero"`
	Outcome      string    `json:"outcome"`
	Status       int       `json:"status"` // sent, or 0
	Events       int       `json:"events"` // stream events written
	BodySHA256   string    `json:"body_sha256"`
	BodyBytes    int       `json:"body_bytes"`
	Body         []byte    `json:"body,omitempty"` // base64 in JSON; with Config.KeepBodies
}

// Record is the log of an engine since its start or the last reset. It survives
// a simulated restart.
type Record struct {
	Received        int64           `json:"received"` // inference requests, whatever came of them
	Executed        int64           `json:"executed"` // handed to the scheduler
	Finished        int64           `json:"finished"`
	Aborted         int64           `json:"aborted"`
	Dropped         int64           `json:"dropped"` // fell out of Requests
	Active          int             `json:"active"`
	PeakConcurrency int             `json:"peak_concurrency"` // requests in the scheduler at once
	Requests        []RequestRecord `json:"requests"`         // in order of receipt
}

// recorder keeps the last requests in a ring. Guarded by Engine.mu.
type recorder struct {
	limit                                int
	ring                                 []*RequestRecord // oldest at next once full
	next                                 int
	seq                                  int64
	received, executed, finished, aborts int64
	dropped                              int64
	active, peak                         int
}

func (r *recorder) add(rec *RequestRecord) {
	r.seq++
	r.received++
	rec.Seq = r.seq
	if len(r.ring) < r.limit {
		r.ring = append(r.ring, rec)
		return
	}
	r.ring[r.next] = rec
	r.next = (r.next + 1) % r.limit
	r.dropped++
}

func (r *recorder) began() {
	r.executed++
	r.active++
	r.peak = max(r.peak, r.active)
}

func (r *recorder) snapshot() Record {
	out := Record{
		Received: r.received, Executed: r.executed, Finished: r.finished, Aborted: r.aborts,
		Dropped: r.dropped, Active: r.active, PeakConcurrency: r.peak,
		Requests: make([]RequestRecord, 0, len(r.ring)),
	}
	for i := range r.ring {
		out.Requests = append(out.Requests, *r.ring[(r.next+i)%len(r.ring)])
	}
	return out
}

// reset forgets everything but what is active.
func (r *recorder) reset() {
	*r = recorder{limit: r.limit, seq: r.seq, active: r.active, peak: r.active}
}
