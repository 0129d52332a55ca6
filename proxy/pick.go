package proxy

import (
	"errors"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// Next picks a replica that has not been tried, a saturated one where no other is left,
// and counts the request as sent to it, until End. Errors are *api.Error with what to
// tell the client.
func (j *Job) Next() (*state.ReplicaView, error) { return j.next(true) }

// next is Next; only a job that goes anyway gets a saturated replica.
func (j *Job) next(anyway bool) (*state.ReplicaView, error) {
	c := j.core
	v := c.store.View()
	if p := v.PoolNamed(j.pool.Spec.Name); p != nil {
		j.pool = p // replicas may have come and gone since the last attempt
	}
	j.req.Pool, j.req.Anyway = j.pool, anyway
	if a := j.req.Adapter; a != "" && !j.pool.ListsAdapter(a) {
		return nil, api.ModelNotFound(j.model) // any replica would answer as much, or as the model itself
	}
	began := time.Now()
	now := c.now()
	ticket, err := j.begin(v, now)
	c.metrics.pick.Observe(time.Since(began).Seconds())
	if err != nil {
		return nil, err
	}
	r := j.choice.Replica
	c.metrics.picks.WithLabelValues(j.pool.Spec.Name, j.choice.Reason).Inc()
	j.tried = append(j.tried, r.ID)
	j.sample(now)
	if c.picked != nil && j.Attempts() == 1 {
		c.picked(j.pool.Spec.Name, &j.choice, j.marks, j.tokens)
	}

	a := attempt{open: true, began: now, sample: j.choice.Sample()}
	a.sample.ViewAge, a.sample.Retried = rowsAge(v, now), j.Attempts() > 1
	a.ticket = ticket
	a.rate = j.choice.Candidates[j.choice.Chosen].Terms.Rate
	if c.index != nil && len(j.marks) > 0 {
		a.placement = c.index.Place(r.ID, j.marks, j.tokens, now)
	}
	j.now = a
	j.runs(now)

	j.pick = Pick{
		RequestID: j.id, At: time.Now(), Pool: j.pool.Spec.Name, Model: j.model, Attempt: j.Attempts(),
		Tenant: j.req.Tenant, Band: j.band.String(), Replica: r.ID, Policy: j.choice.Policy, Reason: j.choice.Reason,
		PromptTokens: j.choice.PromptTokens, MatchedTokens: j.choice.MatchedTokens, TTFT: j.choice.TTFT, Queued: j.queued,
	}
	if j.choice.Hops {
		j.pick.Leg = state.RoleDecode
	}
	j.now.nth = c.note(&j.pick, &j.choice)
	return r, nil
}

// note remembers a pick and tells who wants to hear of it.
func (c *Core) note(p *Pick, choice *routing.Choice) (nth uint64) {
	nth = c.picks.note(p, choice)
	if c.told != nil {
		c.told(p)
	}
	return nth
}

// begin picks a replica and counts the request there.
func (j *Job) begin(v *state.View, now time.Time) (*state.Ticket, error) {
	for range maxRaces {
		j.aim(v, now)
		if err := j.choose(v, now); err != nil {
			return nil, j.noLeg(err)
		}
		if err := j.notUp(); err != nil {
			return nil, err
		}
		if j.choice.Limit <= 0 {
			return j.core.store.Begin(j.choice.Replica, j.choice.UncachedTokens), nil
		}
		if t := j.core.store.BeginUnder(j.choice.Replica, j.choice.UncachedTokens, j.choice.Limit); t != nil {
			return t, nil
		} // another request was faster: the next pick sees it
	}
	j.lack, j.freed = routing.ErrSaturated, 0
	return nil, api.Overloaded(shedSaturated, time.Second)
}

// maxRaces bounds the picks for one attempt that find their place taken meanwhile.
const maxRaces = 64

// rowsAge is the age of the oldest load that other routers sent.
func rowsAge(v *state.View, now time.Time) time.Duration {
	age := time.Duration(0)
	for i := range v.Routers {
		age = max(age, now.Sub(v.Routers[i].RowsAt))
	}
	return age
}

// refusal shapes a pick's error for the client. A pool without replicas is never
// the client's fault and never "too many requests".
func refusal(err error) *api.Error {
	e := &routing.PickError{}
	if !errors.As(err, &e) {
		return api.Internal()
	}
	switch {
	case errors.Is(err, routing.ErrNoReplicas):
		return api.Unavailable("no_replicas", e.RetryAfter)
	case errors.Is(err, routing.ErrSaturated):
		return api.Overloaded(shedSaturated, e.RetryAfter)
	}
	reason := "none_eligible"
	if len(e.Reasons) == 1 {
		reason = "all_" + e.Reasons[0].Reason
	}
	u := api.Unavailable(reason, e.RetryAfter)
	if len(e.Reasons) > 0 {
		parts := make([]string, 0, len(e.Reasons))
		for _, r := range e.Reasons {
			parts = append(parts, r.Reason)
		}
		u.Message = "No replica of this model can take a request at the moment (" + strings.Join(parts, ", ") + "). Try again later."
	}
	return u
}

// Named says by which id the answer can be asked for later.
func (j *Job) Named(id string) {
	if j.now.open {
		j.core.picks.named(j.now.nth, id)
	}
}

// First says that the first token has come. Later calls do nothing.
func (j *Job) First() {
	a := &j.now
	if !a.open || !a.first.IsZero() {
		return
	}
	a.first = j.core.now()
	j.core.picks.first(a.nth, a.first.Sub(a.began))
	a.ticket.FirstToken()
	a.prefilled = prefilledBy(j.core.store.View(), j.pick.Replica)
	if a.placement != nil {
		a.placement.First(a.first)
	}
	j.learnFirst()
	j.core.pump(j.queue)
}
