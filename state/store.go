package state

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Rows is one router's message about its own load. Values are absolute, so a
// lost delta is repaired by the next one that names the replica, or by the next
// full message.
type Rows struct {
	Router     RouterID
	Boot       BootID
	Seq        uint64 // grows with every message of this boot
	Full       bool   // replicas not named have no load
	FactsIndex uint64 // committed facts the router has applied
	Rows       []Row
}

// Config is what a Store needs at its start.
type Config struct {
	Self  RouterID
	Clock *Clock
	Pools []PoolSpec
	Now   func() time.Time // nil: time.Now
}

// Store is the single writer of a router's knowledge. Its methods are safe for
// concurrent use; those that change something publish a new View before they
// return, except inside Batch.
type Store struct {
	self  RouterID
	clock *Clock
	now   func() time.Time
	view  atomic.Pointer[View]
	dirty chan struct{} // capacity 1: own load changed

	mu       sync.Mutex
	batch    int                      // guarded by mu; open Batch calls
	pools    []PoolSpec               // guarded by mu
	listed   map[listKey][]Replica    // guarded by mu; what each source lists
	entries  map[ReplicaID]*entry     // guarded by mu
	routers  map[RouterID]*routerRows // guarded by mu
	facts    *Facts                   // guarded by mu
	weights  *Weights                 // guarded by mu
	drains   map[ReplicaID]string     // guarded by mu; local drains with their reason
	slots    map[ReplicaID]Slot       // guarded by mu
	nextSlot Slot                     // guarded by mu
	seq      uint64                   // guarded by mu
	onGone   func(Slot, ReplicaID)    // guarded by mu
}

type listKey struct {
	source Source
	pool   string
}

// entry is the writer's side of one replica.
type entry struct {
	replica   Replica
	slot      Slot
	cell      *Cell
	reading   Reading
	readingAt time.Time
	known     Load
	addedAt   time.Time
	history   history
}

type routerRows struct {
	boot  BootID
	seq   uint64
	facts uint64
	at    time.Time
	rows  map[ReplicaID]Load // replaced, never changed: Views share it
	total Load
}

// NewStore returns a store with the given pools and no replicas. It starts
// nothing.
func NewStore(cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{
		self: cfg.Self, clock: cfg.Clock, now: cfg.Now,
		dirty:   make(chan struct{}, 1),
		pools:   slices.Clone(cfg.Pools),
		listed:  map[listKey][]Replica{},
		entries: map[ReplicaID]*entry{},
		routers: map[RouterID]*routerRows{},
		facts:   NewFacts(),
		weights: &Weights{},
		drains:  map[ReplicaID]string{},
		slots:   map[ReplicaID]Slot{},
	}
	s.mu.Lock()
	s.publish()
	s.mu.Unlock()
	return s
}

// Self is this router's id.
func (s *Store) Self() RouterID { return s.self }

// Clock is this boot's clock.
func (s *Store) Clock() *Clock { return s.clock }

// View is the present picture. Load it once per decision.
func (s *Store) View() *View { return s.view.Load() }

// Changed signals, without blocking the request path, that own load changed since
// the channel was last read. One reader.
func (s *Store) Changed() <-chan struct{} { return s.dirty }

// OnGone sets the function that is told when a replica has left every list, so
// that what is kept per Slot can be freed. It is called with the store's lock
// held: it must not call the store.
func (s *Store) OnGone(f func(Slot, ReplicaID)) {
	s.mu.Lock()
	s.onGone = f
	s.mu.Unlock()
}

// Batch runs f, whose changes to the store are published together at its end.
func (s *Store) Batch(f func()) {
	s.mu.Lock()
	s.batch++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.batch--
		s.publish()
		s.mu.Unlock()
	}()
	f()
}

// SetPools replaces the pool specs.
func (s *Store) SetPools(specs []PoolSpec) {
	s.change(func() { s.pools = slices.Clone(specs) })
}

// SetReplicas replaces what one source lists for one pool. Committed replicas
// come with the facts instead. The same replica listed twice is one replica; the
// committed facts win over discovery, and discovery over static lists.
func (s *Store) SetReplicas(source Source, pool string, list []Replica) {
	s.change(func() {
		k := listKey{source, pool}
		if len(list) == 0 {
			delete(s.listed, k)
		} else {
			s.listed[k] = slices.Clone(list)
		}
		s.relist()
	})
}

// SetFacts publishes newer committed facts. Older ones than the present are
// ignored. The store keeps f: it must not be changed afterwards.
func (s *Store) SetFacts(f *Facts) {
	s.change(func() {
		if f.Index < s.facts.Index {
			return
		}
		s.facts = f
		s.relist()
	})
}

// SetWeights publishes the balance loop's output. The store keeps w.
func (s *Store) SetWeights(w *Weights) { s.change(func() { s.weights = w }) }

// SetDrain marks a replica as draining on this router alone, or ends that. The
// committed facts may drain it too.
func (s *Store) SetDrain(id ReplicaID, on bool, reason string) {
	s.change(func() {
		if on {
			s.drains[id] = reason
		} else {
			delete(s.drains, id)
		}
	})
}

// ApplyRows takes another router's load message. It reports false for a message
// that is not news: of this router, of an older boot's sequence, or repeated.
func (s *Store) ApplyRows(m Rows) (news bool) {
	s.change(func() {
		if m.Router == s.self {
			return
		}
		r := s.routers[m.Router]
		if r == nil || r.boot != m.Boot {
			r = &routerRows{boot: m.Boot, rows: map[ReplicaID]Load{}}
			s.routers[m.Router] = r
		} else if m.Seq <= r.seq {
			return
		}
		news = true
		r.seq, r.at, r.facts = m.Seq, s.now(), max(r.facts, m.FactsIndex)
		rows := map[ReplicaID]Load{}
		if !m.Full {
			rows = maps.Clone(r.rows)
		}
		for _, row := range m.Rows {
			if row.Load == (Load{}) {
				delete(rows, row.Replica)
			} else if len(rows) < MaxRows {
				rows[row.Replica] = row.Load
			}
		}
		r.rows, r.total = rows, Load{}
		for _, l := range rows {
			r.total = r.total.Add(l)
		}
	})
	return news
}

// MaxRows bounds the rows kept of one router.
const MaxRows = 1 << 16

// DropRouter forgets another router's rows: it left, died, or fell silent.
func (s *Store) DropRouter(id RouterID) { s.change(func() { delete(s.routers, id) }) }

// DropSilent forgets the rows of routers from which nothing came since before,
// and returns their ids.
func (s *Store) DropSilent(before time.Time) (dropped []RouterID) {
	s.change(func() {
		for id, r := range s.routers {
			if r.at.Before(before) {
				delete(s.routers, id)
				dropped = append(dropped, id)
			}
		}
	})
	return dropped
}

// ApplyReading takes a reading of a replica, own or another router's. The one
// taken last wins; it reports false for one that is not newer.
func (s *Store) ApplyReading(r Reading) (news bool) {
	s.change(func() {
		e := s.entries[r.Replica]
		if e == nil {
			return
		}
		now := s.now()
		at, _ := s.clock.Place(r.At, now, s.clock.Since(now))
		t := s.clock.Time(at)
		if !t.After(e.readingAt) {
			return
		}
		news = true
		e.reading, e.readingAt = r, t
		e.known = e.history.at(t, e.cell.Load().Add(s.others(r.Replica)))
	})
	return news
}

// SlotOf is the slot of a replica, listed already or not: knowledge about a
// replica may come before discovery does. An id that never gets listed keeps its
// slot until ForgetSlot.
func (s *Store) SlotOf(id ReplicaID) Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slot(id)
}

// ForgetSlot gives up the slot of a replica that is not listed; it reports false
// when it is listed.
func (s *Store) ForgetSlot(id ReplicaID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[id] != nil {
		return false
	}
	delete(s.slots, id)
	return true
}

func (s *Store) slot(id ReplicaID) Slot {
	n, ok := s.slots[id]
	if !ok {
		n = s.nextSlot
		s.nextSlot++
		s.slots[id] = n
	}
	return n
}

// OwnRows appends this router's non-zero load rows, in no order.
func (s *Store) OwnRows(dst []Row) []Row {
	for _, p := range s.View().Pools {
		for _, r := range p.Replicas {
			if l := r.Cell.Load(); l != (Load{}) {
				dst = append(dst, Row{Replica: r.ID, Load: l})
			}
		}
	}
	return dst
}

// change runs f under the lock and publishes unless a Batch is open.
func (s *Store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.publish()
}

func (s *Store) others(id ReplicaID) (sum Load) {
	for _, r := range s.routers {
		sum = sum.Add(r.rows[id])
	}
	return sum
}
