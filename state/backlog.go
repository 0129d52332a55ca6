package state

import (
	"slices"
	"strings"
	"time"
)

// queue is the cell of a pool's queue here. The caller holds mu.
func (s *Store) queue(pool string) *Cell {
	c := s.queues[pool]
	if c == nil {
		c = &Cell{clock: s.clock}
		s.queues[pool] = c
	}
	return c
}

// Wait counts requests that wait here for a replica of a pool, with so many uncached
// prompt tokens; negative numbers take them off again.
func (s *Store) Wait(pool string, requests, tokens int64) {
	s.mu.Lock()
	c := s.queue(pool)
	s.mu.Unlock()
	c.add(s.now(), requests, 0, tokens)
	s.touch()
}

// setBacklogs puts what a router says of its queues. The caller holds mu.
func (s *Store) setBacklogs(r *routerRows, told []Backlog, full bool) {
	if len(told) == 0 && (!full || len(r.backlogs) == 0) {
		return
	}
	var next []Backlog // Views share the one there is
	if !full {
		next = slices.Clone(r.backlogs)
	}
	for _, b := range told {
		b.Requests, b.Tokens = min(max(0, b.Requests), maxFigure), min(max(0, b.Tokens), maxFigure)
		i, found := findBacklog(next, b.Pool)
		switch none := b.Requests == 0 && b.Tokens == 0; {
		case found && none:
			next = slices.Delete(next, i, i+1)
		case found:
			next[i] = b
		case !none && len(next) < MaxBacklogs:
			next = slices.Insert(next, i, b)
		}
	}
	r.backlogs = next
}

func findBacklog(list []Backlog, pool string) (int, bool) {
	return slices.BinarySearchFunc(list, pool, func(b Backlog, pool string) int { return strings.Compare(b.Pool, pool) })
}

// Backlog is what waits at that router for a pool, by its last word.
func (r *RouterView) Backlog(pool string) Backlog {
	if i, ok := findBacklog(r.Backlogs, pool); ok {
		return r.Backlogs[i]
	}
	return Backlog{Pool: pool}
}

// OwnBacklog is what waits at this router for a pool, zero or not.
func (p *PoolView) OwnBacklog() Backlog {
	if p.Queue == nil {
		return Backlog{Pool: p.Spec.Name}
	}
	l := p.Queue.Load()
	return Backlog{p.Spec.Name, max(0, l.InFlight), max(0, l.UncachedTokens)}
}

// Backlog is what waits for a pool at all routers.
func (v *View) Backlog(p *PoolView) Backlog {
	sum := p.OwnBacklog()
	for i := range v.Routers {
		b := v.Routers[i].Backlog(p.Spec.Name)
		sum.Requests += b.Requests
		sum.Tokens += b.Tokens
	}
	return sum
}

// OwnBacklogs appends this router's backlogs that are not zero, in pool order.
func (s *Store) OwnBacklogs(dst []Backlog) []Backlog {
	for _, p := range s.View().Pools {
		if b := p.OwnBacklog(); b != (Backlog{Pool: b.Pool}) {
			dst = append(dst, b)
		}
	}
	return dst
}

// demands are results of Demands, newest first.
type demands struct {
	pool *PoolView
	list []int64
	next *demands
}

// Demands is what each other router has of a pool of this View, in flight and waiting,
// in the order of Routers. The result is shared.
func (v *View) Demands(p *PoolView) []int64 {
	known := v.demands.Load()
	for d := known; d != nil; d = d.next {
		if d.pool == p {
			return d.list
		}
	}
	list := make([]int64, len(v.Routers))
	for _, r := range p.Replicas {
		at := 0
		for i := range r.rows { // both are in router order
			for at < len(v.Routers) && v.Routers[at].ID < r.rows[i].router {
				at++
			}
			if at < len(v.Routers) && v.Routers[at].ID == r.rows[i].router {
				list[at] += r.rows[i].load.InFlight
			}
		}
	}
	for i := range v.Routers {
		list[i] += v.Routers[i].Backlog(p.Spec.Name).Requests
	}
	v.demands.CompareAndSwap(known, &demands{p, list, known}) // else somebody else's is as good
	return list
}

// toldAfter is the age from which the other routers know of a change here: gossip
// gathers changes for 10 ms and takes some more.
const toldAfter = 30 * time.Millisecond

// OwnDemand is what this router has of the pool, in flight and waiting, as far as the
// others know of it by now.
func (p *PoolView) OwnDemand(now time.Time) (n int64) {
	told := now.Add(-toldAfter)
	known := func(c *Cell) int64 {
		n := c.Load().InFlight
		if c.clock != nil {
			n = min(n, c.past.at(c.clock.Since(told)).InFlight)
		}
		return max(0, n)
	}
	for _, r := range p.Replicas {
		n += known(r.Cell)
	}
	if p.Queue != nil {
		n += known(p.Queue)
	}
	return n
}
