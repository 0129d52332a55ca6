package autoscale

import (
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// youth is how long a replica's figures are left out while others have some: its
	// first requests wait for compilation and an empty cache.
	youth = time.Minute
	// beyondSeen is how far past what was seen a number of streams is believed: times
	// between tokens at a few streams say little of those at hundreds.
	beyondSeen = 2
)

// capacityOf is what one replica of a target carries: of each figure the median of the
// replicas of which it is known, so that an odd one does not count; else the default.
func (l *Loop) capacityOf(p *state.PoolView, list []*state.ReplicaView, most float64, now time.Time) Capacity {
	var known, young [5][]float64
	for _, r := range list {
		into := &known
		if now.Sub(r.AddedAt) < youth {
			into = &young
		}
		c := l.learned(r)
		for i, f := range c.all() {
			if *f > 0 {
				into[i] = append(into[i], *f)
			}
		}
	}
	c := l.cfg.Default
	for i, f := range c.all() {
		if len(known[i]) == 0 {
			known[i] = young[i]
		}
		if len(known[i]) > 0 {
			*f = median(known[i])
		}
	}
	// No more requests at once are believed than some more than were seen at one replica;
	// how fast output comes is not bounded so, since fewer streams are each faster.
	c.Requests = min(c.Requests, max(l.cfg.Default.Requests, beyondSeen*most))
	for _, r := range list {
		if n := p.Spec.MaxAt(r); n > 0 {
			c.Requests = min(c.Requests, float64(n))
		}
	}
	return c
}

// learned is what is known of one replica.
func (l *Loop) learned(r *state.ReplicaView) (c Capacity) {
	if l.cfg.Learned != nil {
		if x, ok := l.cfg.Learned(r.ID); ok {
			c = x
		}
	}
	if keepsKV(r) {
		c.KVTokens = r.Reading.Capacity
	}
	return c
}

// keepsKV reports whether a replica's KV usage is that of its requests. An engine with
// slots keeps its last prompts in them.
func keepsKV(r *state.ReplicaView) bool {
	rd := &r.Reading
	return rd.OK && rd.Slots <= 0 && rd.Capacity > 0 && rd.KVUsage >= 0
}

func (c *Capacity) all() [5]*float64 {
	return [5]*float64{&c.Requests, &c.PrefillTokens, &c.PrefillRate, &c.OutputRate, &c.KVTokens}
}

// median sorts, and takes the middle, the mean of both where there are two.
func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
