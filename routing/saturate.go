package routing

import (
	"math"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/state"
)

// saturated reports whether candidate i, which was scored, should get no more work now
// if it can wait: its queue is longer than its pool's requests wait, it has all the
// requests that it or this router's part of it may have, or it has no KV space for
// what waits in it already.
func (p *Picker) saturated(c *Choice, i int, req *Request, v *state.View, longest float64, now time.Time) bool {
	s := &c.standing[i]
	r := c.Candidates[i].Replica
	if c.Candidates[i].Terms.Queue > longest {
		return true
	}
	if s.kvFull && r.Reading.Waiting > 0 {
		return true
	}
	limit := s.limit
	if limit <= 0 {
		return false
	}
	mine := limit
	if len(v.Routers) > 0 && !c.places.kept {
		mine = c.share(req.Pool, r, v, limit, now)
	}
	// Whoever asks to go anyway is not held to a limit.
	s.limit = min(mine, limit-s.inFlight)
	return s.own >= s.limit
}

// longestQueue is the queue, in ms, past which a replica of the pool is saturated.
func longestQueue(spec *state.PoolSpec) float64 {
	if spec.QueueWait <= 0 {
		return math.Inf(1)
	}
	return float64(spec.QueueWait) / float64(time.Millisecond)
}

// goAnyway gives the saturated candidates back, where nobody else is left.
func (c *Choice) goAnyway() {
	for i := range c.Candidates {
		if k := &c.Candidates[i]; k.Excluded == ExcludedSaturated {
			k.Excluded, k.Despite = "", ExcludedSaturated
			c.standing[i].limit = 0
		}
	}
}

// drained is how long it takes by estimate until the first of the saturated candidates
// is no longer; false if there is none.
func (c *Choice) drained(req *Request) (least time.Duration, ok bool) {
	longest := longestQueue(&req.Pool.Spec)
	best := 0.0
	for i := range c.Candidates {
		k := &c.Candidates[i]
		if k.Excluded != ExcludedSaturated && k.Excluded != ExcludedReserved {
			continue
		}
		t, par := &k.Terms, c.standing[i].par
		ms := t.Queue - longest // until its queue is short enough
		if ms <= 0 {
			// Until one of those that run ends: each is half through on average.
			life := t.Queue + float64(max(1, c.ExpectedOutput))*par.ITLAt(t.Decode)
			ms = life / max(1, float64(c.standing[i].own+c.standing[i].inFlight))
		}
		if !ok || ms < best {
			best, ok = ms, true
		}
	}
	return time.Duration(min(best, maxKVWait) * float64(time.Millisecond)), ok
}

// unsure is how long before and after the turn of a second what goes by it goes to
// those alone that have it in both: the clocks of routers differ a little, and what one
// has sent is not yet known to the next.
const unsure = 50 * time.Millisecond

// share is how many of a replica's limit requests this router may have, so that all
// routers' shares come to limit: in proportion to what each one has of the pool, in
// flight and waiting, and one more, so that an idle router may begin.
func (c *Choice) share(pool *state.PoolView, r *state.ReplicaView, v *state.View, limit int64, now time.Time) int64 {
	if !c.demandOf.is(pool, v) {
		c.demandOf = demandOf{pool: pool, view: v, own: pool.OwnDemand(now), others: v.Demands(pool)}
		for _, d := range c.demandOf.others {
			c.demandOf.sum += d
		}
	}
	d := &c.demandOf
	sum := d.sum + d.own + int64(len(d.others)) + 1
	whole, rest := split(limit, d.own, sum)
	own := r.Cell.Load().InFlight
	switch {
	case own < whole, rest == 0: // no need to look further
		return whole
	case own > whole:
		return whole + 1
	}
	before := d.gets(r.ID, v, limit, sum, now.Add(-unsure).Unix(), len(pool.Replicas))
	if after := now.Add(unsure).Unix(); before && after != now.Add(-unsure).Unix() {
		before = d.gets(r.ID, v, limit, sum, after, len(pool.Replicas))
	}
	if before {
		return whole + 1
	}
	return whole
}

// demandOf is what routers have of a pool, for one pick.
type demandOf struct {
	pool   *state.PoolView
	view   *state.View
	own    int64
	others []int64 // in the order of the View's routers
	sum    int64   // of others
}

func (d *demandOf) is(pool *state.PoolView, v *state.View) bool { return d.pool == pool && d.view == v }

// split is the whole part of the share limit x (demand+1)/sum, and the rest in parts
// of sum.
func split(limit, demand, sum int64) (whole, rest int64) {
	n := limit * (demand + 1)
	return n / sum, n % sum
}

// gets reports whether this router has one of the places that whole shares leave over,
// in that second. First come routers without a whole place that have something to do,
// but only at as many replicas as they have requests; then the largest rest. The order
// of equals changes with the second, so that nobody starves.
func (d *demandOf) gets(replica state.ReplicaID, v *state.View, limit, sum, second int64, replicas int) bool {
	key := xxh3.HashStringSeed(string(replica), uint64(second))
	rank := func(router state.RouterID, demand int64) place {
		whole, rest := split(limit, demand, sum)
		p := place{rest: rest, hash: xxh3.HashStringSeed(string(router), key)}
		p.first = whole == 0 && demand > 0 && p.hash>>32*uint64(replicas) < uint64(demand)<<32
		return p
	}
	mine := rank(v.Self, d.own)
	whole, _ := split(limit, d.own, sum)
	left := limit - whole
	before := int64(0)
	for i, demand := range d.others {
		w, _ := split(limit, demand, sum)
		left -= w
		if rank(v.Routers[i].ID, demand).before(mine) {
			before++
		}
	}
	return before < left
}

// place is where a router stands in the order of those that get a place left over.
type place struct {
	first bool
	rest  int64
	hash  uint64
}

func (p place) before(o place) bool {
	switch {
	case p.first != o.first:
		return p.first
	case p.rest != o.rest && !p.first:
		return p.rest > o.rest
	}
	return p.hash > o.hash
}
