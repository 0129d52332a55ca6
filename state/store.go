package state

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

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

	published chan struct{} // capacity 1: there is a new View

	mu       sync.Mutex
	batch    int                      // guarded by mu; open Batch calls
	pools    []PoolSpec               // guarded by mu
	listed   map[listKey][]Replica    // guarded by mu; what each source lists
	entries  map[ReplicaID]*entry     // guarded by mu
	ghosts   map[ReplicaID]*Cell      // guarded by mu; cells of unlisted replicas with requests still running
	routers  map[RouterID]*routerRows // guarded by mu
	order    []RouterID               // guarded by mu; keys of routers, sorted; nil: to be made
	facts    *Facts                   // guarded by mu
	weights  *Weights                 // guarded by mu
	drains   map[ReplicaID]localDrain // guarded by mu
	slots    map[ReplicaID]Slot       // guarded by mu
	nextSlot Slot                     // guarded by mu
	queues   map[string]*Cell         // guarded by mu; by pool, kept when it goes: requests may still wait
	counters map[string]*Counter      // guarded by mu; by pool, kept when it goes
	seq      uint64                   // guarded by mu
	onGone   func(Slot, ReplicaID)    // guarded by mu
	dropped  Dropped                  // guarded by mu
	pending  pending                  // guarded by mu; what the next View must show
}

type listKey struct {
	source Source
	pool   string
}

// Dropped counts what bounds and foreign nonsense made the Store leave out.
type Dropped struct {
	Rows    uint64 // rows past MaxRows of one router
	Routers uint64 // messages of routers past MaxRouters
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
		ghosts:  map[ReplicaID]*Cell{},
		routers: map[RouterID]*routerRows{},
		facts:   NewFacts(),
		weights: &Weights{},
		drains:  map[ReplicaID]localDrain{},
		slots:   map[ReplicaID]Slot{},
		queues:  map[string]*Cell{},

		counters: map[string]*Counter{},

		published: make(chan struct{}, 1),
	}
	s.mu.Lock()
	s.pending.listing = true
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

// Published signals that there is a newer View than when the channel was last read.
// One reader.
func (s *Store) Published() <-chan struct{} { return s.published }

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
	s.change(func() {
		s.pools = slices.Clone(specs)
		s.relist() // ranks are of the pool
		s.pending.listing = true
	})
}

// SetReplicas replaces what one source lists for one pool. Committed replicas
// come with the facts instead. The same replica listed twice is one replica; the
// committed facts win over discovery, and discovery over static lists, but for a
// replica that it has ListedNoMore. Pools that SetPools did not name have none found.
func (s *Store) SetReplicas(source Source, pool string, list []Replica) {
	s.change(func() {
		k := listKey{source, pool}
		if len(list) == 0 {
			delete(s.listed, k)
		} else {
			s.listed[k] = slices.Clone(list)
		}
		s.relist()
		s.pending.listing = true
	})
}

// SetFacts publishes newer committed facts. Older ones than the present are
// ignored. A committed undrain that is news here ends SetDrain's drain too. The
// store keeps f: it must not be changed afterwards.
func (s *Store) SetFacts(f *Facts) {
	s.change(func() {
		if f.Index < s.facts.Index {
			return
		}
		s.facts = f
		maps.DeleteFunc(s.drains, func(id ReplicaID, d localDrain) bool { return f.Undrained[id] > d.facts })
		s.relist()
		s.pending.listing = true
	})
}

// SetWeights publishes the balance loop's output. The store keeps its maps, which
// must not be changed afterwards. Replicas whose Failures changed count as changed
// rows.
func (s *Store) SetWeights(w *Weights) {
	var told bool
	s.change(func() {
		next := *w
		next.bySlot = make([]*Weight, s.nextSlot)
		for id, x := range w.Replicas {
			e := s.entries[id]
			if e == nil {
				continue
			}
			next.bySlot[e.slot] = &x
			if x.Failures != s.weights.Of(id).Failures {
				e.cell.version.Add(1)
				told = true
			}
		}
		for id, was := range s.weights.Replicas {
			if e := s.entries[id]; e != nil && was.Failures != 0 && next.bySlot[e.slot] == nil {
				e.cell.version.Add(1)
				told = true
			}
		}
		s.weights = &next
		s.pending.header = true
	})
	if told {
		s.touch()
	}
}

// localDrain is a drain of this router alone.
type localDrain struct {
	reason string
	facts  uint64 // index of the facts when it was made: a later undrain ends it
}

// SetDrain marks a replica, or all ranks of a process, as draining on this router
// alone, or ends that. The committed facts may drain it too.
func (s *Store) SetDrain(id ReplicaID, on bool, reason string) {
	s.change(func() {
		if on {
			s.drains[id] = localDrain{reason, s.facts.Index}
		} else {
			delete(s.drains, id)
		}
		for _, e := range s.entries {
			if e.replica.ID == id || e.replica.Process() == id {
				s.pending.mark(e)
			}
		}
	})
}

// Dropped counts what was left out so far.
func (s *Store) Dropped() Dropped {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
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

// OwnRows appends this router's rows that are not zero, in no order.
func (s *Store) OwnRows(dst []Row) []Row {
	v := s.View()
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			if row := v.OwnRow(r); row.Load != (Load{}) || row.Failures != 0 {
				dst = append(dst, row)
			}
		}
	}
	return dst
}

// OwnRow is this router's row at one replica, zero or not.
func (v *View) OwnRow(r *ReplicaView) Row {
	return Row{Replica: r.ID, Load: r.Cell.Load(), Failures: v.Weights.Of(r.ID).Failures}
}

// change runs f under the lock and publishes what it marked, unless a Batch is
// open.
func (s *Store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.publish()
}
