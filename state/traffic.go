package state

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Traffic is what one router has been asked of a pool since it started, and how it
// answered. All counts only grow: one that is lost or comes twice does no harm, and
// what happened between two of them is their difference.
type Traffic struct {
	Pool string
	// Requests counts those that came, whatever became of them; Uncached the prompt
	// tokens that had to be prefilled for them, as estimated then.
	Requests, Uncached int64
	// Answers counts those that ended well and whose output is known; Output its tokens.
	Answers, Output int64
	// Firsts counts first tokens that came, and refusals for want of capacity; FirstsMet
	// those within the pool's objective (slo.ttft).
	Firsts, FirstsMet int64
	// Streams counts those whose time between tokens is known; StreamsMet those within
	// the pool's objective (slo.itl).
	Streams, StreamsMet int64
	// HighTime and NormalTime are what requests of these bands took, running and waiting,
	// in milliseconds of each: over a time they tell how many there were at once.
	HighTime, NormalTime int64

	asked [Upper]float64 // at a time, lately, as far as this router was told
	at    time.Time      // when it was told
}

// MaxTraffics bounds the pools of which one router tells its traffic.
const MaxTraffics = 1 << 12

// Counts are the figures in the order in which they travel. Later ones are added at the
// end.
func (t *Traffic) Counts() [10]*int64 {
	return [10]*int64{&t.Requests, &t.Uncached, &t.Answers, &t.Output, &t.Firsts, &t.FirstsMet, &t.Streams, &t.StreamsMet, &t.HighTime, &t.NormalTime}
}

// Since is what was counted after an earlier word of the same boot. No count is
// negative, whatever was told.
func (t Traffic) Since(was Traffic) Traffic {
	for i, n := range t.Counts() {
		*n = max(0, *n-*was.Counts()[i])
	}
	return t
}

// Add is the sum of two.
func (t Traffic) Add(o Traffic) Traffic {
	for i, n := range t.Counts() {
		*n += *o.Counts()[i]
	}
	return t
}

// sane brings another router's counts within bounds.
func (t Traffic) sane() Traffic {
	for _, n := range t.Counts() {
		*n = min(max(0, *n), maxFigure)
	}
	return t
}

// Counter counts this router's own traffic of a pool. Safe for concurrent use; a nil
// one counts nothing.
type Counter struct {
	requests, uncached, answers, output    atomic.Int64
	firsts, firstsMet, streams, streamsMet atomic.Int64

	held holding
}

// Came counts a request, once, with the prompt tokens that have to be prefilled for it.
func (c *Counter) Came(uncached int64) {
	if c != nil {
		c.requests.Add(1)
		c.uncached.Add(max(0, uncached))
	}
}

// Answered counts an answer that ended well.
func (c *Counter) Answered(output int64) {
	if c != nil {
		c.answers.Add(1)
		c.output.Add(max(0, output))
	}
}

// First counts a first token, or a refusal for want of capacity, which meets nothing.
func (c *Counter) First(met bool) {
	if c != nil {
		c.firsts.Add(1)
		if met {
			c.firstsMet.Add(1)
		}
	}
}

// Streamed counts a stream whose time between tokens is known.
func (c *Counter) Streamed(met bool) {
	if c != nil {
		c.streams.Add(1)
		if met {
			c.streamsMet.Add(1)
		}
	}
}

// OwnTraffic is this router's traffic of the pool.
func (p *PoolView) OwnTraffic() Traffic {
	t := Traffic{Pool: p.Spec.Name}
	if c := p.Counter; c != nil {
		// What met an objective is read first: it is never more than what was measured.
		t.FirstsMet, t.StreamsMet = c.firstsMet.Load(), c.streamsMet.Load()
		t.Requests, t.Uncached = c.requests.Load(), c.uncached.Load()
		t.Answers, t.Output = c.answers.Load(), c.output.Load()
		t.Firsts, t.Streams = c.firsts.Load(), c.streams.Load()
		t.held(c)
	}
	return t
}

// OwnTraffic appends this router's traffic of every pool that has had any, in pool
// order.
func (s *Store) OwnTraffic(dst []Traffic) []Traffic {
	for _, p := range s.View().Pools {
		if t := p.OwnTraffic(); t != (Traffic{Pool: t.Pool}) {
			dst = append(dst, t)
		}
	}
	return dst
}

// Traffic is what that router has told of a pool; ok is false if it has told nothing.
func (r *RouterView) Traffic(pool string) (t Traffic, ok bool) {
	return findTraffic(r.traffic, pool)
}

func findTraffic(list []Traffic, pool string) (Traffic, bool) {
	i, ok := slices.BinarySearchFunc(list, pool, func(t Traffic, pool string) int { return strings.Compare(t.Pool, pool) })
	if !ok {
		return Traffic{Pool: pool}, false
	}
	return list[i], true
}

// counter is the counter of a pool here, kept when the pool goes: should it come back
// its counts go on. The caller holds mu.
func (s *Store) counter(pool string) *Counter {
	c := s.counters[pool]
	if c == nil {
		c = &Counter{}
		s.counters[pool] = c
	}
	return c
}

// setTraffic puts what a router says of its traffic; a message without any says nothing
// of it. The caller holds mu.
func (r *routerRows) setTraffic(told []Traffic, now time.Time) {
	if len(told) == 0 {
		return
	}
	next := make([]Traffic, 0, len(told)) // Views share the one there is
	for _, t := range told[:min(len(told), MaxTraffics)] {
		was, _ := findTraffic(r.traffic, t.Pool)
		next = append(next, t.sane().averaged(was, now))
	}
	slices.SortStableFunc(next, func(a, b Traffic) int { return cmp.Compare(a.Pool, b.Pool) })
	r.traffic = slices.CompactFunc(next, func(a, b Traffic) bool { return a.Pool == b.Pool })
}
