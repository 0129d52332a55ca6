package proxy

import (
	"errors"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// twoLegs is what a Job has more in a pool whose replicas serve legs. The attempt in
// Job is of the replica that decodes, or serves the request whole; prefill is the one
// beside it.
type twoLegs struct {
	body  *api.Legs
	whole bool // nothing about the request can be prefilled elsewhere
	query bool // it generates nothing: any replica but those of role prefill answers it

	choice  routing.Choice
	tried   []state.ReplicaID // prefill replicas that failed this request
	prefill attempt
	matched int // tokens expected at the prefill replica
	picked  state.ReplicaID
	again   int  // attempts whose replica may be tried again
	full    bool // prefill replicas are saturated
	handed  bool // the present attempt gets the prompt's KV from elsewhere
}

// newTwoLegs reads what legs need of a request, nil where the pool has none.
func newTwoLegs(pool *state.PoolView, a *Ask) *twoLegs {
	if !pool.Split {
		return nil
	}
	t := &twoLegs{whole: true}
	switch a.Request.Endpoint {
	case api.Chat, api.Completions:
		t.body = api.ReadLegs(a.Request, a.Body)
		t.whole = t.body.Scores
	case api.Count, api.Other, api.Stored:
		t.query = true
	}
	return t
}

// paired reports whether replicas of role decode of this pool serve no request that
// was not prefilled elsewhere: SGLang's don't.
func paired(pool *state.PoolView) bool {
	for _, r := range pool.Replicas {
		if r.Role == state.RoleDecode && kindOf(&pool.Spec, r) == state.EngineSGLang {
			return true
		}
	}
	return false
}

// handsOver reports whether replicas of this kind have a way to hand over a prompt's
// KV that is known here.
func handsOver(k state.EngineKind) bool { return k == state.EngineVLLM || k == state.EngineSGLang }

// unfit reports whether a request can't be served in two legs: vLLM's parameters are of
// one sequence.
func (t *twoLegs) unfit(pool *state.PoolView) bool {
	return t.whole || t.body.Several && !paired(pool)
}

// aim says which replicas the next pick is among, and offers them a prefill elsewhere
// where one could take it.
func (j *Job) aim(v *state.View, now time.Time) {
	j.req.Role, j.req.Hop = state.RoleBoth, routing.Hop{}
	if !j.pool.Split {
		return
	}
	if j.legs == nil { // the pool got its roles after the request was admitted
		j.legs = &twoLegs{whole: true}
	}
	t, must := j.legs, paired(j.pool)
	t.handed, t.full = false, false
	if t.query || !must {
		j.req.Role = state.RoleDecode
	}
	if t.unfit(j.pool) {
		return
	}
	if p := j.choosePrefill(v, nil, now, true); p != nil {
		j.req.Role = state.RoleDecode
		j.req.Hop = routing.Hop{Offered: true, Must: must, Time: float64(t.choice.TTFT) / float64(time.Millisecond)}
	}
}

// choosePrefill picks the replica to prefill at, for one that decodes where that is
// known; nil if none can take the request.
func (j *Job) choosePrefill(v *state.View, decode *state.ReplicaView, now time.Time, dry bool) *state.ReplicaView {
	t := j.legs
	req := j.req
	req.Pool, req.Role, req.Hop, req.DryRun = j.pool, state.RolePrefill, routing.Hop{}, dry
	limited, _ := j.core.limited.among(j.pool, now)
	req.Exclude = append(slices.Clip(limited), t.tried...)
	for _, r := range j.pool.Replicas {
		if r.Role == state.RolePrefill && !handOver(&j.pool.Spec, r, decode) {
			req.Exclude = append(req.Exclude, r.ID)
		}
	}
	req.Anyway = req.Anyway || !dry // it has waited
	err := j.core.picker.Pick(&t.choice, &req, v, now)
	if t.full = errors.Is(err, routing.ErrSaturated); err != nil {
		return nil
	}
	if t.choice.Candidates[t.choice.Chosen].Despite != "" && !paired(j.pool) {
		return nil // better none than one that can't be reached: there is another way
	}
	return t.choice.Replica
}

// handOver reports whether one replica's KV can be given to another: engines of one
// kind and, as far as they tell, of one version; KV has no format that outlives that.
func handOver(spec *state.PoolSpec, from, to *state.ReplicaView) bool {
	kind := kindOf(spec, from)
	if !handsOver(kind) {
		return false
	}
	if to == nil {
		return true
	}
	a, b := from.Reading.Version, to.Reading.Version
	return kind == kindOf(spec, to) && (a == "" || b == "" || a == b)
}

// Hops reports whether the latest pick wants the prompt prefilled elsewhere.
func (j *Job) Hops() bool { return j.legs != nil && j.choice.Hops }

// NextPrefill picks the replica that prefills for the latest pick, and counts the
// prefill as sent to it, until EndPrefill. Nil if there is none: the attempt is then
// no longer one of two, and the replica that it is at has the whole prompt before it.
func (j *Job) NextPrefill() *state.ReplicaView {
	c, t := j.core, j.legs
	v, now := c.store.View(), c.now()
	p := j.choosePrefill(v, j.choice.Replica, now, false)
	if p == nil {
		j.Recompute()
		return nil
	}
	c.metrics.picks.WithLabelValues(j.pool.Spec.Name, t.choice.Reason).Inc()
	a := attempt{open: true, began: now, sample: t.choice.Sample()}
	a.sample.ViewAge, a.sample.Retried = rowsAge(v, now), len(t.tried) > 0
	a.ticket = c.store.Begin(p, t.choice.UncachedTokens)
	if c.index != nil && len(j.marks) > 0 {
		a.placement = c.index.Place(p.ID, j.marks, j.tokens, now)
	}
	t.prefill, t.picked, t.matched, t.handed = a, p.ID, t.choice.MatchedTokens, true
	k := Pick{
		RequestID: j.id, At: time.Now(), Pool: j.pool.Spec.Name, Model: j.model, Attempt: j.pick.Attempt, Leg: state.RolePrefill,
		Tenant: j.req.Tenant, Band: j.band.String(), Replica: p.ID, Policy: t.choice.Policy, Reason: t.choice.Reason,
		PromptTokens: t.choice.PromptTokens, MatchedTokens: t.choice.MatchedTokens, TTFT: t.choice.TTFT,
	}
	t.prefill.nth = c.note(&k, &t.choice)
	return p
}

// EndPrefill gives back what the prefill held and learns from it: once, as End does.
func (j *Job) EndPrefill(r *Result) {
	c, t := j.core, j.legs
	if t == nil || !t.prefill.open {
		return
	}
	a := &t.prefill
	a.open = false
	now := c.now()
	a.ticket.End()
	if a.first.IsZero() {
		a.first = now
	}
	served := r.Outcome == OutcomeServed
	if p := a.placement; p != nil {
		a.placement = nil
		if served {
			p.First(a.first)
			if r.HasUsage && r.Usage.CachedKnown {
				p.Evidence(t.matched, r.Usage.InputTotal, r.Usage.InputCached)
			}
			p.End(now)
		} else {
			p.Withdraw(now)
		}
	}
	c.limited.note(t.picked, r, now)
	if c.reporter != nil {
		c.reporter.Report(t.picked, r.Outcome, r.RetryAfter, now)
	}
	switch {
	case served:
		t.learn(j, r)
	case r.Outcome != OutcomeAborted:
		t.tried = append(t.tried, t.picked)
	}
	c.pump(j.queue)
}

// learn feeds what came of a prefill to calibration and metrics. Tokens are counted
// where the request is answered.
func (t *twoLegs) learn(j *Job, r *Result) {
	c, a := j.core, &t.prefill
	c.picks.first(a.nth, a.first.Sub(a.began))
	s := a.sample
	s.TTFT = a.first.Sub(a.began)
	if r.HasUsage {
		s.PromptTokens = r.Usage.InputTotal
		if r.Usage.CachedKnown {
			c.metrics.predicted.Add(float64(t.matched))
			c.metrics.reported.Add(float64(r.Usage.InputCached))
			s.UncachedTokens = r.Usage.InputTotal - r.Usage.InputCached
		}
	}
	if c.cal != nil && r.HasUsage { // a leg cut off says nothing of speed
		c.cal.Observe(s)
	}
}

// Recompute says that the replica of the present attempt gets no KV from elsewhere and
// prefills the prompt itself.
func (j *Job) Recompute() {
	t, a := j.legs, &j.now
	t.handed = false
	if !a.open || !j.choice.Hops {
		return
	}
	j.choice.Hops = false
	a.ticket.End()
	a.ticket = j.core.store.Begin(j.choice.Replica, j.choice.PromptTokens-j.choice.MatchedTokens)
	a.sample.Retried = true // it waited before
}

// Again lets the replica of the attempt that has just ended be tried again, since it
// was not the one that failed. The attempt counts.
func (j *Job) Again() {
	if n := len(j.tried); n > 0 && j.legs != nil {
		j.tried = j.tried[:n-1]
		j.legs.again++
	}
}

// handed reports whether the present attempt's prompt was prefilled elsewhere: what
// its engine says of its cache is then not of its cache.
func (j *Job) handed() bool { return j.legs != nil && j.legs.handed }

// noLeg says which leg of a request has no replica, where a pick failed for that.
func (j *Job) noLeg(err error) error {
	e := api.AsError(err)
	if j.legs != nil && j.legs.full && paired(j.pool) && j.lack == routing.ErrNoneEligible {
		j.lack = routing.ErrSaturated // there are some to prefill it
		return api.Overloaded(shedSaturated, e.RetryAfter)
	}
	if !j.pool.Split || e.Reason == "no_replicas" || e.Status != 503 {
		return err
	}
	c := *e
	switch {
	case j.req.Role == state.RoleDecode:
		c.Reason, c.Message = "no_decode", "No decode replica of this model can take a request at the moment. Try again later."
	case j.legs != nil && j.legs.whole:
		c.Reason, c.Message = "no_whole", "No replica of this model can serve this request at the moment: it needs one that both prefills and decodes."
	default:
		c.Reason, c.Message = "no_prefill", "No prefill replica of this model can take a request at the moment. Try again later."
	}
	return &c
}

// noPrefill is for a request whose prefill replica went away as it was picked.
func noPrefill(wait time.Duration) *api.Error {
	e := api.Unavailable("no_prefill", wait)
	e.Message = "No prefill replica of this model can take a request at the moment. Try again later."
	return e
}

// explain aims a dry run and names where the prompt would be prefilled.
func (j *Job) explain(v *state.View, now time.Time) (prefill func() state.ReplicaID) {
	j.aim(v, now)
	return func() state.ReplicaID {
		if !j.Hops() {
			return ""
		}
		if p := j.choosePrefill(v, j.choice.Replica, now, true); p != nil {
			return p.ID
		}
		return ""
	}
}
