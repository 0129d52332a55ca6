package sketch

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Config is what an Index needs.
type Config struct {
	Clock *state.Clock
	// Slots gives a replica's dense number, whether it is listed or not
	// (state.Store.SlotOf). It is called with no lock of a replica's held.
	Slots  func(state.ReplicaID) state.Slot
	Bounds Bounds
	Now    func() time.Time // for Save, Load and Snapshot; nil: time.Now
}

// Index is what this router knows of all replicas' caches. All methods are safe
// for concurrent use; none blocks on I/O.
type Index struct {
	clock    *state.Clock
	slots    func(state.ReplicaID) state.Slot
	bounds   Bounds
	now      func() time.Time
	journal  *Journal
	table    table
	entries  atomic.Int64
	weight   atomic.Int64  // bytes of replicas, see weigh
	origins  atomic.Int64  // bytes of windows
	nextID   atomic.Uint64 // placements
	sweepAt  atomic.Int64
	searches sync.Pool // *search
	totals   totals

	bySlot atomic.Pointer[[]*replica] // indexed by slot, replaced whole

	mu    sync.RWMutex
	byID  map[state.ReplicaID]*replica // guarded by mu
	gone  map[state.ReplicaID]int64    // guarded by mu; own time of Forget
	seen  map[state.BootID]*window     // guarded by seenMu
	drops map[state.BootID]int64       // guarded by seenMu; own time of DropBoot

	seenMu sync.Mutex
}

// New returns an empty index. It starts nothing.
func New(cfg Config) *Index {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	b := cfg.Bounds.withDefaults()
	x := &Index{
		clock: cfg.Clock, slots: cfg.Slots, bounds: b, now: cfg.Now,
		journal: newJournal(b.Journal, b.Bytes/journalShare),
		byID:    make(map[state.ReplicaID]*replica),
		gone:    make(map[state.ReplicaID]int64),
		seen:    make(map[state.BootID]*window),
		drops:   make(map[state.BootID]int64),
	}
	x.bySlot.Store(&[]*replica{})
	x.searches.New = func() any { return new(search) }
	return x
}

// Journal is where the news of this index is read.
func (x *Index) Journal() *Journal { return x.journal }

// find returns a known replica, or nil.
func (x *Index) find(id state.ReplicaID) *replica {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byID[id]
}

// replica returns the replica, made if it is new, with its mu held; nil when it
// was forgotten at t or later.
func (x *Index) replica(id state.ReplicaID, t, now int64) *replica {
	for {
		r := x.find(id)
		if r == nil {
			if r = x.create(id, t, now); r == nil {
				return nil
			}
		}
		r.mu.Lock()
		if !r.gone {
			return r
		}
		r.mu.Unlock()
	}
}

func (x *Index) create(id state.ReplicaID, t, now int64) *replica {
	slot := x.slots(id)
	for {
		r, idlest := x.list(id, slot, t, now)
		if idlest == nil {
			return r
		}
		x.totals.replicasDropped.Add(1)
		idlest.forget()
	}
}

// list puts a new replica on the lists; or names the one that must go before.
func (x *Index) list(id state.ReplicaID, slot state.Slot, t, now int64) (r, idlest *replica) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.byID[id]; r != nil {
		return r, nil
	}
	if at, ok := x.gone[id]; ok {
		if t <= at {
			return nil, nil
		}
		delete(x.gone, id)
	}
	if len(x.byID) >= x.bounds.Replicas {
		for _, r := range x.byID {
			if idlest == nil || r.lastNews.Load() < idlest.lastNews.Load() {
				idlest = r
			}
		}
		return nil, idlest
	}
	r = newReplica(x, id, slot, now, len(x.byID)+1)
	x.byID[id] = r
	slots := *x.bySlot.Load()
	grown := make([]*replica, max(len(slots), int(slot)+1))
	copy(grown, slots)
	grown[slot] = r
	x.bySlot.Store(&grown)
	return r, nil
}

// Forget frees all that is kept of a replica that left every list
// (state.Store.OnGone). What peers still tell of it from before is ignored.
func (x *Index) Forget(_ state.Slot, id state.ReplicaID) {
	now := x.ownTime(x.now())
	x.mu.Lock()
	if len(x.gone) >= x.bounds.Replicas {
		for old, at := range x.gone {
			if now-at > int64(time.Minute) || len(x.gone) >= 2*x.bounds.Replicas {
				delete(x.gone, old)
			}
		}
	}
	x.gone[id] = now
	r := x.byID[id]
	x.mu.Unlock()
	if r != nil {
		r.forget()
	}
}

// unlist takes a replica off the lists; its mu is held.
func (x *Index) unlist(r *replica) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byID, r.id)
	slots := *x.bySlot.Load()
	n := len(slots)
	for n > 0 && (slots[n-1] == nil || slots[n-1] == r) {
		n--
	}
	less := make([]*replica, n)
	copy(less, slots)
	if int(r.slot) < n {
		less[r.slot] = nil
	}
	x.bySlot.Store(&less)
}

// news notes the change and tells the journal.
func (x *Index) news(r *replica, op Op, own bool, now int64) {
	r.lastNews.Store(now)
	x.journal.append(op, own)
}

// Sweep takes placements of which no end came for Bounds.PlacementAge as if their
// router was found dead (DropBoot). The index does it by itself while it is used;
// an idle one may be swept by a timer.
func (x *Index) Sweep(now time.Time) {
	t := x.ownTime(now)
	x.sweepAt.Store(t)
	old := t - int64(x.bounds.PlacementAge)
	for _, r := range *x.bySlot.Load() {
		if r == nil {
			continue
		}
		r.mu.Lock()
		for _, f := range r.flights {
			if f.began <= old && f.lost == never {
				x.totals.placementsExpired.Add(1)
				r.lose(f, t)
			}
		}
		r.releaseLost(old)
		r.settle()
		r.mu.Unlock()
	}
}

func (x *Index) maybeSweep(now time.Time) {
	t, last := x.ownTime(now), x.sweepAt.Load()
	if t-last > int64(10*time.Second) && x.sweepAt.CompareAndSwap(last, t) {
		x.Sweep(now)
	}
}
