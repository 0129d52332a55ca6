package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// Explanation is where a request would go now, and why.
type Explanation struct {
	Pool          string          `json:"pool"`
	Model         string          `json:"model"`
	Tenant        string          `json:"tenant,omitempty"`  // whose request it is taken for
	Adapter       string          `json:"adapter,omitempty"` // of the pool's model, if the model is one
	PromptTokens  int             `json:"prompt_tokens"`     // estimated
	Marks         int             `json:"marks"`
	Replica       state.ReplicaID `json:"replica,omitempty"`
	Prefill       state.ReplicaID `json:"prefill,omitempty"` // where the prompt would be prefilled first
	Policy        string          `json:"policy,omitempty"`
	Reason        string          `json:"reason,omitempty"`
	MatchedTokens int             `json:"matched_tokens"`
	TTFT          time.Duration   `json:"ttft_ns"`            // predicted
	Fallback      []string        `json:"fallback,omitempty"` // pools that are asked where this one can't serve it
	Candidates    []CandidateInfo `json:"candidates"`
	Refused       string          `json:"refused,omitempty"` // why it would not be served
}

// Explain is ExplainFor somebody without a key.
func (c *Core) Explain(ctx context.Context, path string, body []byte) (Explanation, error) {
	return c.ExplainFor(ctx, "", path, body)
}

// ExplainFor says where a request of a tenant, "" for none, with this path and body would
// go, without sending it or leaving a trace. Errors are *api.Error.
func (c *Core) ExplainFor(_ context.Context, tenant, path string, body []byte) (Explanation, error) {
	ep := api.EndpointOf(path)
	switch ep {
	case api.Models, api.Other, api.Stored:
		return Explanation{}, api.NotFound()
	case api.Count:
		ep = api.Messages
	}
	r, err := api.Parse(ep, body)
	if err != nil {
		return Explanation{}, err
	}
	if ep == api.Messages {
		pool, _ := c.store.View().Resolve(r.Model)
		t, err := asChat(pool, body)
		if err != nil {
			return Explanation{}, err
		}
		if t != nil {
			r, body = t.ask, t.body
		}
	}
	var f following
	if ep == api.Responses {
		var fault *api.Error
		if f, fault = c.follow(&r); fault != nil {
			return Explanation{}, fault
		}
	}
	j, err := c.Admit(&Ask{Request: &r, Body: body, Tenant: tenant, Pool: f.pool, Only: f.only})
	if err != nil {
		return Explanation{}, err
	}
	defer j.Release()
	x := Explanation{
		Pool: j.pool.Spec.Name, Model: r.Model, Tenant: tenant, Adapter: j.req.Adapter, PromptTokens: j.req.PromptTokens, Marks: len(j.marks),
	}
	if x.Adapter == "" && othersMay(&r) {
		x.Fallback = j.pool.Spec.Fallback
	}
	j.req.Pool, j.req.DryRun = j.pool, true
	v, now := c.store.View(), c.now()
	prefill := j.explain(v, now)
	if err := c.picker.Pick(&j.choice, &j.req, v, now); err != nil {
		_, j.lack = lackOf(err)
		switch wait, held := j.waitsFor(); {
		case j.lack == routing.ErrSaturated:
			x.Refused = waitsInQueue(err)
		case held && wait > 0:
			x.Refused = waitsForFirst(wait)
		default:
			x.Refused = api.AsError(j.noLeg(refusal(err))).Message
		}
	} else if j.notUp() != nil {
		wait, _ := j.waitsFor()
		x.Refused = waitsForFirst(wait)
	} else {
		x.Prefill = prefill()
		x.Replica, x.Policy, x.Reason = j.choice.Replica.ID, j.choice.Policy, j.choice.Reason
		x.MatchedTokens, x.TTFT = j.choice.MatchedTokens, j.choice.TTFT
	}
	x.Candidates = appendCandidates(nil, &j.choice)
	return x, nil
}

// waitsInQueue says that a request would wait for room.
func waitsInQueue(err error) string {
	var e *routing.PickError
	if errors.As(err, &e) && e.Count(routing.ExcludedReserved) > 0 {
		return "The places that are free are left to requests of a higher priority: it would wait in the pool's queue."
	}
	return "Every replica is saturated: it would wait in the pool's queue."
}

// waitsForFirst says that a request would be held.
func waitsForFirst(wait time.Duration) string {
	return "No replica is up: it would wait for a first one, " + wait.String() + " at most."
}
