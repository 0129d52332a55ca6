package node

import (
	"time"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// leastSamples is what a replica's figures rest on before the autoscaler goes by them.
const leastSamples = 20

// learned is what calibration knows of what a replica carries within its pool's
// objectives. It is shared by lessons, so that every router knows much the same.
func (n *Node) learned(id state.ReplicaID) (c autoscale.Capacity, ok bool) {
	v := n.store.View()
	r := v.Replica(id)
	if r == nil {
		return c, false
	}
	pool := v.PoolNamed(r.Pool)
	p := n.cal.Params(r.Slot, r.Pool)
	if pool == nil {
		return c, false
	}
	limit := v.Weights.Of(id).Concurrency
	if n := pool.Spec.MaxAt(r); n > 0 && (limit <= 0 || float64(n) < limit) {
		limit = float64(n)
	}
	return CapacityOf(&p, &pool.Spec, r.Role, limit)
}

// CapacityOf is what a replica with those parameters carries, if they rest on enough: as many streams as keep
// the objective for the time between tokens, but no more than limit, which it may have or
// was seen to run at a time (0: unknown); and what it prefills if it decodes little. Who
// does both does less of each, which autoscale reckons with: a step of B streams and n
// prompt tokens takes ITL + B*ITLPerStream + n/Rate.
func CapacityOf(p *routing.Params, spec *state.PoolSpec, role state.Role, limit float64) (c autoscale.Capacity, ok bool) {
	if p.Samples < leastSamples {
		return c, false
	}
	itl, ttft := spec.SLOITL, spec.SLOTTFT
	if itl <= 0 {
		itl = 100 * time.Millisecond
	}
	if ttft <= 0 {
		ttft = 2 * time.Second
	}
	objective := float64(itl) / float64(time.Millisecond)
	streams := maxStreams
	if p.ITLPerStream > 0 {
		streams = min(streams, 1+(objective-p.ITL)/p.ITLPerStream)
	}
	streams = max(leastStreams, streams)
	if limit > 0 {
		streams = min(streams, limit)
	}
	// Steps that decode too have less time left for prompts the nearer the time between
	// tokens already is to its objective.
	c.PrefillRate = p.RateAt(0)
	if role != state.RolePrefill {
		c.PrefillRate *= max(leastPrefill, 1-p.ITL/objective)
	}
	c.PrefillTokens = c.PrefillRate * ttft.Seconds()
	if role != state.RolePrefill {
		c.Requests = streams
		c.OutputRate = 1000 * streams / p.ITLAt(streams)
	}
	return c, true
}

// leastPrefill is the share of its rate that a replica is taken to prefill with at least.
const leastPrefill = 0.3

// leastStreams is how many a replica is taken to carry at least. Prompts that are
// prefilled beside streams slow them down: while too many come few streams would seem to
// be what a replica can carry, and the need without end.
const leastStreams = 16.0

// maxStreams bounds the streams of one replica: vLLM's default limit on large
// accelerators (max_num_seqs).
const maxStreams = 1024.0
