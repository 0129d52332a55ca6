package observe

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Cache is told what readings say about a replica's KV cache. Its methods must not
// block.
type Cache interface {
	// SetCapacity gives the engine's own figures. It is called when they change.
	SetCapacity(id state.ReplicaID, c Capacity)
	// Cleared says that everything used at an instant or before is gone. The instant
	// lies between the death of the old cache and the first request that the new one
	// can have served, as far as readings tell.
	Cleared(id state.ReplicaID, at time.Time, reason string)
}

// Capacity is how large a replica's cache is; not positive is unknown.
type Capacity struct {
	Tokens    float64 // in all
	BlockSize float64 // tokens of a block: a least recently used block goes first
	// Slots is set for an engine that keeps the last prompt of each slot instead, of
	// up to Context tokens.
	Slots, Context float64
}

// seen is what earlier readings said of a replica.
type seen struct {
	at       time.Time // of the last one that succeeded; zero: none did
	lost     time.Time // of the latest one that found no process serving, since then
	started  float64
	counters [3]float64 // queries, hits, processed; negative unknown
	capacity Capacity
}

// firstSlack is how far the start of a process is taken to lie back when there is
// no earlier reading to bound it: what clocks and whole seconds may be wrong by.
const firstSlack = time.Second

// startStep is the least difference between two processes' starts.
const startStep = 0.5

// Note looks at an accepted reading, own or another router's, for what it says of
// the replica's cache: its capacity, and whether the engine restarted or cleared
// it. Safe for concurrent use.
func (l *Loop) Note(r state.Reading, now time.Time) {
	clock := l.store.Clock()
	placed, _ := clock.Place(r.At, now, clock.Since(now))
	at := clock.Time(placed)

	l.seenMu.Lock()
	s := l.known[r.Replica]
	if s == nil {
		l.forgetGone()
		s = &seen{counters: [3]float64{-1, -1, -1}}
		l.known[r.Replica] = s
	}
	before, reason := s.take(&r, at)
	grown := s.size(&r)
	capacity := s.capacity
	l.seenMu.Unlock()

	if reason != "" {
		e := l.log.Info()
		if reason == reasonFirst {
			e = l.log.Debug()
		}
		e.Str("replica", string(r.Replica)).Str("reason", reason).Dur("ago_ms", now.Sub(before)).Msg("what a replica cached before is gone")
		l.metrics.cleared.WithLabelValues(label(reason)).Inc()
		l.cache.Cleared(r.Replica, before, reason)
	}
	if grown {
		l.cache.SetCapacity(r.Replica, capacity)
	}
}

// Reasons why a cache is gone.
const (
	reasonFirst    = "process start" // read for the first time: what is older is of another process
	reasonRestart  = "engine restarted"
	reasonCounters = "counters went backwards"
	reasonCleared  = "prefix cache counters went backwards"
	reasonBack     = "engine was gone and is back"
)

// take brings s up to date with a reading taken at an instant. A reason means that
// all the replica held at before or earlier is gone.
func (s *seen) take(r *state.Reading, at time.Time) (before time.Time, reason string) {
	if !at.After(s.at) && !s.at.IsZero() {
		return before, "" // overtaken
	}
	if !r.OK || r.Loading {
		// A server that only waits for memory or its turn says 503 too, but its
		// process start tells that it is the same one; llama.cpp has none, and says so
		// only before it serves or after it let go of its memory.
		if r.Refused || r.Loading && r.Kind == state.EngineLlamaCpp {
			s.lost = at
		}
		return before, ""
	}
	last := *s
	s.at, s.lost = at, time.Time{}
	if r.Started > 0 {
		s.started = r.Started
	}
	counters := [3]float64{r.Queries, r.Hits, r.Processed}
	back := [3]bool{}
	for i, v := range counters {
		back[i] = v >= 0 && v < last.counters[i]
		if v >= 0 {
			s.counters[i] = v
		}
	}
	// The old cache was still there at the last good reading, or nothing served at
	// all later than that.
	floor := last.at
	if last.lost.After(floor) {
		floor = last.lost
	}
	switch {
	case last.at.IsZero() && last.lost.IsZero():
		if r.Started > 0 && r.Uptime >= 0 {
			return at.Add(-r.Uptime - firstSlack), reasonFirst
		}
	case r.Started > 0 && last.started > 0 && r.Started > last.started+startStep:
		s.restarted(counters)
		if r.Uptime < 0 {
			return at, reasonRestart // when is not known: rather too much is forgotten than too little
		}
		return clamp(at.Add(-r.Uptime), floor, at), reasonRestart
	case back[2] || back[0] && r.Processed < 0:
		s.restarted(counters)
		return floor, reasonCounters
	case back[0] || back[1]:
		return floor, reasonCleared
	case !last.lost.IsZero() && (r.Started <= 0 || last.started <= 0):
		return floor, reasonBack
	}
	return before, ""
}

// restarted forgets the counters of the process before.
func (s *seen) restarted(counters [3]float64) { s.counters = counters }

// size takes a reading's capacity and reports whether it is another one.
func (s *seen) size(r *state.Reading) bool {
	if !r.OK || r.Capacity <= 0 {
		return false
	}
	c := Capacity{Tokens: r.Capacity, BlockSize: max(0, r.BlockSize), Slots: max(0, r.Slots), Context: max(0, r.Context)}
	if c == s.capacity {
		return false
	}
	s.capacity = c
	return true
}

func clamp(t, low, high time.Time) time.Time {
	switch {
	case t.Before(low):
		return low
	case t.After(high):
		return high
	}
	return t
}

// forgetGone drops what is known of replicas that are no longer listed. The caller
// holds seenMu.
func (l *Loop) forgetGone() {
	v := l.store.View()
	for id := range l.known {
		if v.Replica(id) == nil {
			delete(l.known, id)
		}
	}
}
