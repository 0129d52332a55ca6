package balance

import (
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

const (
	// warmSettle is how long after a replica has become ready it may turn out that its
	// cache is empty: that it was cleared is told a moment after the reading.
	warmSettle = time.Second
	// warmBegin is how long it is waited for somebody to warm it. Routers that keep no
	// prompt send none.
	warmBegin = 3 * time.Second
	// warmIdle is how long nothing runs there once the last prompt was sent: they are
	// sent one after another, and are told of within 100 ms.
	warmIdle = time.Second
	// warmStall is how long a replica may take for one prompt before it is no longer
	// passed over.
	warmStall = 10 * time.Second
)

// warming is how far a replica is with the pool's hottest prefixes. Who sends them is
// another matter: each router sees by its own sketch, which is told of every prompt,
// what the replica holds, so that no word of it has to travel.
type warming struct {
	cold    bool      // something has happened after which its cache may be empty
	ready   time.Time // when it was first ready then
	started float64   // of its process, as read last

	from  time.Time // being warmed since; zero: it is not
	marks []uint64  // the prefixes, as of from
	held  int       // of them
	moved time.Time // when held grew last
	idle  time.Time // since when nothing has run there; zero: something does
	begun bool      // something was sent
}

// stepWarming begins and ends the warming of one replica.
func (l *Loop) stepWarming(mem *memory, m *member, pool *state.PoolView, now time.Time) {
	x := &mem.warming
	if l.cfg.Sketch == nil || !pool.Spec.Prewarms(m.view) {
		*x = warming{}
		return
	}
	x.note(m)
	switch {
	case !m.takes(&pool.Spec, now):
		x.from, x.ready = time.Time{}, time.Time{}
	case !x.from.IsZero():
		if x.over(holds(l.cfg.Sketch, m.view.Slot, x.marks, now), m.view.Load().InFlight > 0, now) {
			if x.from = (time.Time{}); x.begun {
				m.breaker.slowFrom = now
			}
		}
	case x.cold:
		x.begin(l.cfg.Sketch, m.view.Slot, (*l.traffic.Load())[pool.Spec.Name].prewarm, now)
	}
}

// note notes what may have emptied the cache.
func (x *warming) note(m *member) {
	r := &m.view.Reading
	restarted := r.OK && r.Started > 0 && x.started > 0 && r.Started != x.started
	if restarted {
		x.from = time.Time{} // what was sent before is lost
	}
	if m.joined || restarted || r.Loading || r.Refused || m.view.Draining {
		x.cold, x.ready = true, time.Time{}
	}
	if r.OK && r.Started > 0 {
		x.started = r.Started
	}
}

// takes reports whether the replica is ready for traffic.
func (m *member) takes(spec *state.PoolSpec, now time.Time) bool {
	r := m.view
	return r.Fresh(now) && !r.Reading.Loading && !r.Draining && m.breaker.phase == closed && !r.OfWrongModel(spec, now)
}

// begin begins if none of the prefixes is there.
func (x *warming) begin(sk Sketch, slot state.Slot, hot []state.HotPrefix, now time.Time) {
	if x.ready.IsZero() {
		x.ready = now
	}
	if now.Sub(x.ready) >= warmSettle {
		x.cold = false
	}
	x.marks = x.marks[:0]
	for i := range hot {
		x.marks = append(x.marks, hot[i].Mark)
	}
	if len(x.marks) > 0 && holds(sk, slot, x.marks, now) == 0 {
		*x = warming{started: x.started, from: now, marks: slices.Clip(x.marks), moved: now, idle: now}
	}
}

// over reports whether a replica that holds so many of the prefixes is no longer to be
// passed over; active says that something runs there.
func (x *warming) over(held int, active bool, now time.Time) bool {
	if held > x.held {
		x.held, x.moved = held, now
	}
	x.begun = x.begun || active || held > 0
	switch {
	case active:
		x.idle = time.Time{}
	case x.idle.IsZero():
		x.idle = now
	}
	switch {
	case held >= len(x.marks), now.Sub(x.from) >= state.MaxWarming, now.Sub(x.moved) >= warmStall:
		return true
	case active:
		return false
	case x.begun:
		return now.Sub(x.idle) >= warmIdle
	}
	return now.Sub(x.from) >= warmBegin
}

// holds counts the prefixes that a replica holds.
func holds(sk Sketch, slot state.Slot, marks []uint64, now time.Time) (n int) {
	var match [1]sketch.Match
	for _, hash := range marks {
		match[0] = sketch.Match{}
		sk.Lookup(match[:], []prefix.Mark{{Hash: hash}}, []state.Slot{slot}, now)
		if match[0].Live > 0 {
			n++
		}
	}
	return n
}
