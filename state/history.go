package state

import (
	"sync"
	"time"
)

const (
	// historyPoints and historyStep bound what a history remembers: at least the
	// last 250 ms however often a load changes. A reading is older than that only if
	// gossip is, and then only the nearest point is known.
	historyPoints = 64
	historyStep   = 4 * time.Millisecond
)

// history remembers what a load was over the last moments, to compare an engine's
// reading with what was known at its instant. Changes within one step are one
// point. Moments are times since the boot's start. Safe for concurrent use.
type history struct {
	mu     sync.Mutex
	points [historyPoints]point // guarded by mu; a ring
	next   int                  // guarded by mu
	count  int                  // guarded by mu
}

type point struct {
	at   time.Duration
	load Load
}

// note says that the load is l from at on.
func (h *history) note(at time.Duration, l Load) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count > 0 {
		last := &h.points[(h.next+historyPoints-1)%historyPoints]
		if last.load == l {
			return
		}
		if at-last.at < historyStep {
			last.load = l
			return
		}
	}
	h.points[h.next] = point{at, l}
	h.next = (h.next + 1) % historyPoints
	h.count = min(h.count+1, historyPoints)
}

// at is the load in force at t: zero before the first change, and the oldest one
// remembered where the ring has forgotten.
func (h *history) at(t time.Duration) Load {
	l, _ := h.scan(t, t)
	return l
}

// most is the greatest of each figure in force between t and until.
func (h *history) most(t, until time.Duration) Load {
	_, l := h.scan(t, until)
	return l
}

func (h *history) scan(t, until time.Duration) (then, most Load) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := 1; i <= h.count; i++ {
		p := &h.points[(h.next+historyPoints-i)%historyPoints]
		if p.at > until && i < h.count {
			continue
		}
		switch {
		case p.at <= t:
			return p.load, most.most(p.load)
		case i == h.count && h.count == historyPoints:
			return p.load, most.most(p.load)
		case p.at <= until:
			most = most.most(p.load)
		}
	}
	return Load{}, most
}

// most is the greater of each figure.
func (l Load) most(o Load) Load {
	return Load{max(l.InFlight, o.InFlight), max(l.Prefill, o.Prefill), max(l.UncachedTokens, o.UncachedTokens)}
}
