// Package observe is loop 0: it reads the replicas that this router is the reader
// of, and hands the readings on.
//
// Each replica is read by one router, chosen by rendezvous hashing over the live
// routers, so that a hundred routers do not scrape every engine. When a replica's
// reading grows old whatever the reason, the next router in rendezvous order
// takes over, and the one after it later still: no membership news is needed. A
// replica that hangs holds up only its own next reading.
//
// The package does not know engines: a Reader does.
package observe

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/state"
)

// Store is what observe reads and writes of the cluster's state.
type Store interface {
	View() *state.View
	ApplyReading(state.Reading) (news bool)
	Clock() *state.Clock
}

// Reader asks one replica how it is. It must return by the end of ctx.
type Reader interface {
	Read(ctx context.Context, r state.Replica) state.Reading
}

// Cache is told what readings say about a replica's KV cache.
type Cache interface {
	// SetCapacity gives the engine's own figure, KV tokens.
	SetCapacity(id state.ReplicaID, tokens float64)
	// Cleared says that everything cached before at is gone.
	Cleared(id state.ReplicaID, at time.Time, reason string)
}

// Config of a Loop.
type Config struct {
	Self     state.RouterID
	Interval time.Duration // between two readings of one replica; default 200 ms, jittered by a quarter
	Timeout  time.Duration // of one reading; default 2 s
	TakeOver time.Duration // a reading older than this is taken over by the next reader; default 1 s
}

// Loop reads replicas. Run it once.
type Loop struct {
	cfg     Config
	store   Store
	reader  Reader
	cache   Cache
	publish func(state.Reading)
	log     zerolog.Logger

	mu    sync.Mutex
	busy  map[state.ReplicaID]bool      // guarded by mu; being read now
	due   map[state.ReplicaID]time.Time // guarded by mu
	known map[state.ReplicaID]seen      // guarded by mu
	back  map[state.ReplicaID]time.Time // guarded by mu; until when this router stands last in the order
	wg    sync.WaitGroup
}

// seen is what earlier readings said, to notice a restart or a cleared cache.
type seen struct {
	started  float64
	queries  float64
	capacity float64
}

// New returns a loop. publish gets this router's own readings for the others; it
// must not block.
func New(cfg Config, store Store, reader Reader, cache Cache, publish func(state.Reading), log zerolog.Logger) *Loop {
	if cfg.Interval <= 0 {
		cfg.Interval = 200 * time.Millisecond
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 2 * time.Second
	}
	if cfg.TakeOver <= 0 {
		cfg.TakeOver = time.Second
	}
	return &Loop{
		cfg: cfg, store: store, reader: reader, cache: cache, publish: publish,
		log:   log.With().Str("component", "observe").Logger(),
		busy:  map[state.ReplicaID]bool{},
		due:   map[state.ReplicaID]time.Time{},
		known: map[state.ReplicaID]seen{},
		back:  map[state.ReplicaID]time.Time{},
	}
}

// Run reads until ctx ends and waits for the readings under way.
func (l *Loop) Run(ctx context.Context) error {
	tick := time.NewTicker(l.cfg.Interval / 8)
	defer tick.Stop()
	defer l.wg.Wait()
	for {
		l.Step(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Step starts the readings that are due at now.
func (l *Loop) Step(ctx context.Context, now time.Time) {
	v := l.store.View()
	routers := make([]state.RouterID, 0, len(v.Routers)+1)
	routers = append(routers, l.cfg.Self)
	for i := range v.Routers {
		routers = append(routers, v.Routers[i].ID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	live := make(map[state.ReplicaID]bool)
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			live[r.ID] = true
			if l.busy[r.ID] || now.Before(l.due[r.ID]) || !l.mine(r, routers, now) {
				continue
			}
			l.busy[r.ID] = true
			l.due[r.ID] = now.Add(l.jittered())
			if !r.DownSince.IsZero() && rank(l.cfg.Self, r.ID, routers) > 0 {
				l.due[r.ID] = now.Add(l.cfg.TakeOver) // one of many who look whether it is back
			}
			l.wg.Add(1)
			go l.read(ctx, r.Replica)
		}
	}
	for id := range l.due {
		if !live[id] && !l.busy[id] {
			delete(l.due, id)
			delete(l.known, id)
			delete(l.back, id)
		}
	}
}

// mine reports whether this router should read r now: it is the first in
// rendezvous order, it has taken over, or the reading is older than its place in
// the order allows.
// The caller holds mu.
func (l *Loop) mine(r *state.ReplicaView, routers []state.RouterID, now time.Time) bool {
	if r.Reading.OK && r.Reading.Reader == l.cfg.Self {
		return true // until somebody before this router reads it again
	}
	place := rank(l.cfg.Self, r.ID, routers)
	if now.Before(l.back[r.ID]) {
		place = len(routers) - 1
	}
	if place == 0 {
		return true
	}
	// What counts is the last time that anybody found it well: the next reader
	// confirms or contradicts one that can't reach it.
	last := r.ReadingAt
	switch {
	case !r.DownSince.IsZero():
		last = r.DownSince
	case last.IsZero():
		last = r.AddedAt
	}
	return now.Sub(last) > time.Duration(place)*l.cfg.TakeOver
}

// rank is self's place in the rendezvous order of the routers for a replica.
func rank(self state.RouterID, id state.ReplicaID, routers []state.RouterID) int {
	score := func(r state.RouterID) uint64 { return xxh3.HashString(string(r) + "\x00" + string(id)) }
	own, place := score(self), 0
	for _, r := range routers {
		if s := score(r); s > own || (s == own && r < self) {
			place++
		}
	}
	return place
}

func (l *Loop) jittered() time.Duration {
	quarter := int64(l.cfg.Interval / 4)
	return l.cfg.Interval - time.Duration(quarter/2) + time.Duration(rand.Int64N(quarter+1))
}

// read takes one reading and hands it on.
func (l *Loop) read(ctx context.Context, r state.Replica) {
	defer l.wg.Done()
	rctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	reading := l.reader.Read(rctx, r)
	cancel()
	now := time.Now()
	contradicted := l.contradicted(reading, now)
	l.mu.Lock()
	delete(l.busy, r.ID)
	if contradicted {
		l.back[r.ID] = now.Add(stepBack)
	}
	l.mu.Unlock()
	if contradicted || ctx.Err() != nil {
		return
	}
	reading.Reader, reading.At = l.cfg.Self, l.store.Clock().Stamp(now)
	before := l.store.View().Replica(r.ID)
	if l.store.ApplyReading(reading) {
		l.tell(before, &reading)
		l.Note(reading, now)
		l.publish(reading)
	}
}

// tell logs that a replica can no longer be read, or can again.
func (l *Loop) tell(before *state.ReplicaView, r *state.Reading) {
	if before == nil {
		return
	}
	was := before.ReadingAt.IsZero() || before.Reading.OK
	switch {
	case was && !r.OK && r.Loading:
		l.log.Info().Str("replica", string(r.Replica)).Msg("replica is loading")
	case was && !r.OK:
		l.log.Warn().Str("replica", string(r.Replica)).Str("err", r.Err).Msg("replica can't be read")
	case r.OK && (!was || before.ReadingAt.IsZero()):
		l.log.Info().Str("replica", string(r.Replica)).Str("engine", string(r.Kind)).Msg("replica is read")
	}
}

// stepBack is how long a router leaves a replica to the others that it can't read
// itself and they can.
const stepBack = 10 * time.Second

// contradicted reports whether a reading failed here while another router's has
// just succeeded: then it says something of the way between, not of the replica.
func (l *Loop) contradicted(reading state.Reading, now time.Time) bool {
	if reading.OK || reading.Loading {
		return false
	}
	r := l.store.View().Replica(reading.Replica)
	return r != nil && r.Reading.OK && r.Reading.Reader != l.cfg.Self && now.Sub(r.ReadingAt) < 2*l.cfg.TakeOver
}

// Note looks at an accepted reading, own or another router's, for what it says
// of the replica's cache: its capacity, and whether the engine restarted or
// cleared it. Safe for concurrent use.
func (l *Loop) Note(r state.Reading, now time.Time) {
	if !r.OK {
		return
	}
	l.mu.Lock()
	old, ok := l.known[r.Replica]
	s := old
	if r.Started > 0 {
		s.started = r.Started
	}
	if r.Queries >= 0 {
		s.queries = r.Queries
	}
	if r.Capacity > 0 {
		s.capacity = r.Capacity
	}
	l.known[r.Replica] = s
	l.mu.Unlock()

	reason := ""
	switch {
	case !ok:
	case r.Started > 0 && old.started > 0 && r.Started > old.started:
		reason = "engine restarted"
	case r.Started == old.started && r.Queries >= 0 && r.Queries < old.queries:
		reason = "counters went backwards"
	}
	if reason != "" {
		l.log.Info().Str("replica", string(r.Replica)).Str("reason", reason).Msg("replica cache is gone")
		l.cache.Cleared(r.Replica, now, reason)
	}
	if s.capacity != old.capacity {
		l.cache.SetCapacity(r.Replica, s.capacity)
	}
}

// Reading lists the replicas this router reads in the given view, in id order.
func (l *Loop) Reading(v *state.View, now time.Time) []state.ReplicaID {
	routers := []state.RouterID{l.cfg.Self}
	for i := range v.Routers {
		routers = append(routers, v.Routers[i].ID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []state.ReplicaID
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			if l.mine(r, routers, now) {
				out = append(out, r.ID)
			}
		}
	}
	slices.Sort(out)
	return out
}
