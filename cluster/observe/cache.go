package observe

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Cache is told what readings say about a replica's KV cache. Its methods must not
// block.
type Cache interface {
	// SetCapacity gives the engine's own figures. It is called when they change, and
	// anew after Forget.
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
	most     counts                    // the highest of this process, and when it was last read
	by       map[state.RouterID]counts // what each router read last of this process
	capacity Capacity
	wrong    string // what was told last of its model, empty: it is right
}

// misplaced says that a replica does not serve its pool's model, once each time that
// what is known of it changes. Readers of earlier releases do not say what is served
// instead. The caller holds seenMu.
func (l *Loop) misplaced(s *seen, r *state.Reading) string {
	if x := l.store.View().Replica(r.Replica); !r.OK || x == nil || x.Rank > 0 { // ranks are of one process
		return ""
	}
	_, what := l.wrongModel(r)
	if what == s.wrong || what != "" && s.wrong != "" && len(r.Models) == 0 {
		return ""
	}
	s.wrong = what
	return what
}

// counts are a process's counters.
type counts struct {
	at time.Time
	v  [3]float64 // queries, hits, processed; negative unknown
}

// below says which counters are lower than those read before.
func (c *counts) below(o counts) (lower [3]bool, any bool) {
	for i, v := range c.v {
		lower[i] = v >= 0 && v < o.v[i]
		any = any || lower[i]
	}
	return lower, any
}

// kept is c, with o's where c has none.
func (c counts) kept(o counts) counts {
	for i := range c.v {
		if c.v[i] < 0 {
			c.v[i] = o.v[i]
		}
	}
	return c
}

var noCounts = counts{v: [3]float64{-1, -1, -1}}

// maxReaders bounds how many routers' counters are remembered of a replica.
const maxReaders = 8

// count takes what a router read and says which counters went backwards for sure,
// and when they were last read before they did. One router's readings follow each
// other, but an engine that is slow to answer has two routers' readings overtake
// each other by as long as one takes, slowest at most.
func (s *seen) count(reader state.RouterID, c counts, slowest time.Duration) (back [3]bool, since time.Time) {
	own, read := s.by[reader]
	if !read {
		own = noCounts
	}
	back, any := c.below(own)
	since = own.at
	lower, under := c.below(s.most)
	if !any && under && c.at.Sub(s.most.at) >= slowest {
		back, since, any = lower, s.most.at, true
	}
	switch {
	case any:
		s.forgetCounts()
		s.most = c
	case !under:
		s.most = c.kept(s.most)
	}
	if !read && len(s.by) >= maxReaders {
		clear(s.by)
	}
	s.by[reader] = c.kept(own)
	return back, since
}

// forgetCounts is for a new process.
func (s *seen) forgetCounts() {
	s.most = noCounts
	clear(s.by)
}

// firstSlack is how far the start of a process is taken to lie back when there is
// no earlier reading to bound it: what clocks and whole seconds may be wrong by.
const firstSlack = time.Second

// startStep is the least difference between two processes' starts.
const startStep = 0.5

// Note looks at an accepted reading, own or another router's, for what it says of
// the replica's cache: its capacity, and whether the engine restarted or cleared
// it; and of its model. Safe for concurrent use.
func (l *Loop) Note(r state.Reading, now time.Time) {
	clock := l.store.Clock()
	placed, _ := clock.Place(r.At, now, clock.Since(now))
	at := clock.Time(placed)

	l.seenMu.Lock()
	s := l.known[r.Replica]
	if s == nil {
		l.forgetGone()
		s = &seen{most: noCounts, by: map[state.RouterID]counts{}}
		l.known[r.Replica] = s
	}
	wrong := l.misplaced(s, &r)
	before, reason := s.take(&r, at, 2*l.cfg.Timeout)
	grown := s.size(&r)
	capacity := s.capacity
	l.seenMu.Unlock()

	if wrong != "" {
		l.log.Warn().Str("replica", string(r.Replica)).Str("reason", wrong).Msg("replica is of the wrong model: it gets no requests while its pool has another one")
	}
	if reason != "" {
		e := l.log.Info()
		if reason == reasonFirst {
			e = l.log.Debug()
		}
		e.Str("replica", string(r.Replica)).Str("reason", reason).Dur("ago_ms", now.Sub(before)).Msg("what a replica cached before is gone")
		if reason != reasonFirst { // of what was before, nothing was known
			l.metrics.cleared.WithLabelValues(label(reason)).Inc()
		}
		l.cache.Cleared(r.Replica, before, reason)
	}
	if grown {
		l.cache.SetCapacity(r.Replica, capacity)
	}
}

// Reasons why a cache is gone.
const (
	reasonFirst    = "process start" // read for the first time: what is older is of another process, and no loss
	reasonRestart  = "engine restarted"
	reasonCounters = "counters went backwards"
	reasonCleared  = "prefix cache counters went backwards"
	reasonBack     = "engine was gone and is back"
)

// take brings s up to date with a reading taken at an instant. A reason means that
// all the replica held at before or earlier is gone. No reading takes longer than
// slowest.
func (s *seen) take(r *state.Reading, at time.Time, slowest time.Duration) (before time.Time, reason string) {
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
	known := r.Started > 0 && last.started > 0
	if known && r.Started < last.started-startStep {
		return before, "" // of the process before, and late
	}
	s.at, s.lost = at, time.Time{}
	if r.Started > 0 {
		s.started = r.Started
	}
	restarted := known && r.Started > last.started+startStep
	returned := !last.lost.IsZero() && (r.Started <= 0 || last.started <= 0)
	if restarted || returned {
		s.forgetCounts()
	}
	back, since := s.count(r.Reader, counts{at, [3]float64{r.Queries, r.Hits, r.Processed}}, slowest)
	if known {
		back = [3]bool{} // by its start it is the same process, or a new one
	}
	// The old cache was still there at the last good reading, or nothing served at
	// all later than that.
	floor := func(t time.Time) time.Time {
		if last.lost.After(t) {
			return last.lost
		}
		return t
	}
	switch {
	case last.at.IsZero() && last.lost.IsZero():
		if r.Started > 0 && r.Uptime >= 0 {
			return at.Add(-r.Uptime - firstSlack), reasonFirst
		}
	case last.at.IsZero(): // it was waited for: nobody had read what it may have held
		return last.lost, reasonFirst
	case restarted:
		if r.Uptime < 0 {
			return at, reasonRestart // when is not known: rather too much is forgotten than too little
		}
		return clamp(at.Add(-r.Uptime), floor(last.at), at), reasonRestart
	case back[2] || back[0] && r.Processed < 0:
		return floor(since), reasonCounters
	case back[0] || back[1]:
		return floor(since), reasonCleared
	case returned:
		return floor(last.at), reasonBack
	}
	return before, ""
}

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

// Forget drops what readings said of a replica that is gone, after the cache has: one
// that comes back under its id is read for the first time. Call it from Store.OnGone.
func (l *Loop) Forget(id state.ReplicaID) {
	l.seenMu.Lock()
	defer l.seenMu.Unlock()
	delete(l.known, id)
}

// forgetGone drops what was noted of replicas after they had gone. The caller holds
// seenMu.
func (l *Loop) forgetGone() {
	v := l.store.View()
	for id := range l.known {
		if v.Replica(id) == nil {
			delete(l.known, id)
		}
	}
}
