package main

import (
	"time"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// prompts are lengths of requests that samples are taken of, in turn, tokens.
var prompts = []int{200, 700, 1100, 450, 1900, 900, 2800}

// observe hands the routers' calibration a request of each replica that gets some, as
// the model answers it.
func (h *hearsay) observe(p *pool) {
	v := h.store.View()
	for _, r := range p.list {
		rv := v.Replica(h.idOf(r))
		if rv == nil || !p.serving(r) || r.step == 0 || r.streams < 1 {
			continue
		}
		h.sampled++
		u := prompts[h.sampled%len(prompts)]
		h.cal.Observe(routing.Sample{
			Replica: rv.ID, Slot: rv.Slot, Pool: poolName,
			UncachedTokens: u, PromptTokens: u, QueueTokens: r.wait * r.rate, Decode: r.streams,
			TTFT: seconds(r.wait + float64(u)/r.rate + r.step),
			ITL:  seconds(r.tpot), ITLBatch: r.streams, ViewAge: 20 * time.Millisecond,
		})
	}
}

// learned is what that makes of a replica's capacity.
func (h *hearsay) learned(id state.ReplicaID) (c autoscale.Capacity, ok bool) {
	v := h.store.View()
	r := v.Replica(id)
	if r == nil {
		return c, false
	}
	p := h.cal.Params(r.Slot, poolName)
	return node.CapacityOf(&p, &v.PoolNamed(poolName).Spec, state.RoleBoth, mostSeqs)
}

// traffic is what one router has counted since it started: a third.
func (h *hearsay) traffic(p *pool, router int) state.Traffic {
	t := state.Traffic{Pool: poolName}
	c := &p.told
	third := func(x float64) int64 { return (int64(x) + int64(router)) / int64(len(routers)) }
	t.Requests, t.Uncached = third(c.requests), third(c.tokens)
	t.Answers, t.Output = third(c.ended), third(c.output)
	t.Firsts, t.FirstsMet = third(c.firsts), third(c.firstsMet)
	t.Streams, t.StreamsMet = third(c.streams), third(c.streamMet)
	return t
}
