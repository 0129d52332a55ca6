package proxy

import (
	"net/http"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// Refusal is why a request got 429 or 503: the bound that it met, and what was estimated
// then. Bounds are those that held for the request.
type Refusal struct {
	Status     int           `json:"status"`
	Reason     string        `json:"reason"`          // a code, most as hearsay_shed_total has them
	Message    string        `json:"message"`         // what the client was told; empty: a replica's own words
	RetryAfter time.Duration `json:"retry_after_ns"`  // what it was told to wait; 0: nothing
	Waiting    int64         `json:"waiting"`         // requests that waited for the pool then, at all routers
	RoomAfter  time.Duration `json:"room_after_ns"`   // until a replica has room, by estimate; 0: unknown
	MaxWait    time.Duration `json:"max_wait_ns"`     // queue.max_wait, or what the client wanted
	ByClient   bool          `json:"wait_by_client"`  // MaxWait is the client's wish
	Hold       time.Duration `json:"hold_ns"`         // queue.hold
	Requests   int           `json:"max_requests"`    // queue.max_requests
	Bytes      int64         `json:"max_bytes"`       // queue.max_bytes
	Words      []string      `json:"words,omitempty"` // all that for people, and what to change
}

// refusedPart is how many refusals are remembered, as a part of the picks: a storm of
// them displaces no picks.
const refusedPart = 4

// isRefusal reports whether a status says that there is no room or no replica.
func isRefusal(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == api.StatusOverloaded
}

// refusalOf is what a request's refusal comes to; false if it is none. e is what its
// client is told, nil for a replica's own answer. f is nil where no replica was looked for.
func refusalOf(e *api.Error, f *failure) (x Refusal, ok bool) {
	if e != nil {
		x = Refusal{Status: e.Status, Reason: e.Reason, Message: e.Message, RetryAfter: e.RetryAfter}
	} else {
		x = Refusal{Status: f.status, Reason: f.reason, RetryAfter: f.wait}
	}
	return x, isRefusal(x.Status)
}

// noteRefusal remembers why no replica served the request, if that is for want of room or
// replicas.
func (r *request) noteRefusal(e *api.Error, f *failure) {
	x, ok := refusalOf(e, f)
	if !ok {
		return
	}
	kept := r.s.core.picks.refused
	switch {
	case r.job == nil:
		p := Pick{RequestID: r.id, At: time.Now(), Pool: r.pool, Model: r.ask.Model, Refused: &x}
		p.Tenant, _ = r.client.Share()
		kept.refuse(&standing{pick: p})
	case f != nil && f == r.before && r.stood != nil: // a fallback pool was no help
		x.Reason = f.code(r.stood.pick.Attempt, &x)
		r.stood.pick.Refused.tell(&x)
		kept.refuse(r.stood)
	default:
		if f != nil {
			x.Reason = f.code(r.job.Attempts(), &x)
		}
		n := r.job.standing(r.queued)
		n.pick.Refused.tell(&x)
		kept.refuse(&n)
	}
}

// code is the reason of a refusal after so many attempts.
func (f *failure) code(attempts int, x *Refusal) string {
	if f.shed == "" && f.outcome == OutcomeBusy && attempts > 0 {
		return shedReplicasBusy
	}
	return x.Reason
}

// tell adds what the client is told to what its request met.
func (x *Refusal) tell(to *Refusal) {
	x.Status, x.Reason, x.Message, x.RetryAfter = to.Status, to.Reason, to.Message, to.RetryAfter
}

// standing is how a job stands that may have to be refused.
type standing struct {
	pick   Pick
	choice routing.Choice  // nobody is chosen
	pool   *state.PoolView // nil: none was looked for
}

// standing is how the job stands, after its request waited so long. The choice is the
// job's own.
func (j *Job) standing(queued time.Duration) standing {
	spec := &j.pool.Spec
	x := &Refusal{
		Waiting: j.core.store.View().Backlog(j.pool).Requests, RoomAfter: j.freed,
		MaxWait: orDefault(spec.QueueWait, state.DefaultQueueWait), Hold: spec.QueueHold,
		Requests: orDefault(spec.QueueRequests, state.DefaultQueueRequests), Bytes: bytesOr(spec.QueueBytes),
	}
	if m := j.claim.most; m > 0 && m < x.MaxWait {
		x.MaxWait, x.ByClient = m, true
	}
	choice := j.choice
	choice.Chosen = -1
	return standing{choice: choice, pool: j.pool, pick: Pick{
		RequestID: j.id, At: time.Now(), Pool: spec.Name, Model: j.model, Tenant: j.req.Tenant, Band: j.band.String(),
		Attempt: j.Attempts(), Policy: spec.Policy, PromptTokens: j.req.PromptTokens, Queued: queued, Refused: x,
	}}
}

// stand keeps how the request stands in a pool that it leaves for a fallback.
func (r *request) stand() {
	n := r.job.standing(r.queued)
	n.choice.Candidates = slices.Clone(n.choice.Candidates)
	r.stood = &n
}

// Had is what a replica had when a request was refused. Negative figures are unknown.
type Had struct {
	InFlight int64   `json:"in_flight"`    // of all routers
	Cap      int64   `json:"max_inflight"` // 0: none
	Waiting  float64 `json:"waiting"`      // in its engine
	KVUsage  float64 `json:"kv_usage"`
}

// refuse remembers a request that no replica served, and what each replica had.
func (p *Picks) refuse(n *standing) {
	if len(p.ring) == 0 {
		return
	}
	n.choice.Chosen = -1
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := p.put(&n.pick, &n.choice)
	for i := range slot.Candidates {
		r := n.choice.Candidates[i].Replica
		slot.Candidates[i].Had = Had{
			InFlight: r.Load().InFlight, Cap: n.pool.Spec.MaxAt(r), Waiting: r.Reading.Waiting, KVUsage: r.Reading.KVUsage,
		}
	}
}
