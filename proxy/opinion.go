package proxy

import (
	"errors"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Question is a prompt as another router can judge it: its marks, no text.
type Question struct {
	Pool      string // its name
	Marks     []prefix.Mark
	Total     prefix.Mark // the prompt's end
	MaxTokens int
}

// Opinion is where a router would send a prompt now. Scores are milliseconds of the
// ttft policy; lower is better.
type Opinion struct {
	Best      state.ReplicaID
	BestScore float64
	// Score is that of the replica asked about; Eligible says that it could be picked
	// at all.
	Score    float64
	Eligible bool
}

// Errors of Judge besides routing's.
var errNoScores = errors.New("the pool is unknown here or its policy has no scores")

// Judge says where this router would send a prompt, and what it thinks of one
// replica for it. Nothing is sent and no trace is left.
func (c *Core) Judge(q *Question, id state.ReplicaID) (Opinion, error) {
	v := c.store.View()
	at := slices.IndexFunc(v.Pools, func(p *state.PoolView) bool { return p.Spec.Name == q.Pool })
	if at < 0 || !scored(v, v.Pools[at]) {
		return Opinion{}, errNoScores
	}
	pool := v.Pools[at]
	ratio := c.ratios.For(pool.Spec.UpstreamName())
	req := routing.Request{
		Pool: pool, Marks: q.Marks, Tokens: appendTokens(nil, q.Marks, ratio), PromptTokens: ratio.Tokens(q.Total),
		MaxTokens: q.MaxTokens, Role: state.RoleBoth, DryRun: true, Anyway: true,
	}
	var choice routing.Choice
	now := c.now()
	if pool.Split {
		j := Job{core: c, pool: pool, req: req, legs: &twoLegs{body: &api.Legs{}}}
		j.aim(v, now)
		req = j.req
	}
	if err := c.picker.Pick(&choice, &req, v, now); err != nil {
		return Opinion{}, err
	}
	o := Opinion{Best: choice.Replica.ID, BestScore: choice.Candidates[choice.Chosen].Score}
	for i := range choice.Candidates {
		k := &choice.Candidates[i]
		if k.Excluded != "" {
			continue
		}
		o.BestScore = min(o.BestScore, k.Score)
		if k.Replica.ID == id {
			o.Score, o.Eligible = k.Score, true
		}
	}
	return o, nil
}

// scored says that the pool's picks go by ttft's score in milliseconds.
func scored(v *state.View, p *state.PoolView) bool {
	return routing.Effective(p.Spec.Policy, v.Weights.Pools[p.Spec.Name]) == routing.TTFT
}

// sample hands a copy of the request's prompt to Sample, at most one each
// sampleEvery.
func (j *Job) sample(now time.Time) {
	c := j.core
	if c.sample == nil || len(j.marks) == 0 || !scored(c.store.View(), j.pool) || j.legs != nil && j.legs.whole {
		return
	}
	due := c.sampleAt.Load()
	if now.UnixNano() < due || !c.sampleAt.CompareAndSwap(due, now.Add(sampleEvery).UnixNano()) {
		return
	}
	c.sample(Question{Pool: j.pool.Spec.Name, Marks: slices.Clone(j.marks), Total: j.total, MaxTokens: j.req.MaxTokens})
}

// sampleEvery is the least time between two samples.
const sampleEvery = time.Second
