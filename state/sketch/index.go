package sketch

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Bounds limit an Index. A zero field means its default.
type Bounds struct {
	// Entries over all replicas (a mark on a replica is one entry, about 200
	// bytes). Past it the replica with most entries forgets its oldest. Default
	// 1<<20: 4 C_eff of 64 replicas with 500k tokens each, at one mark per 120
	// tokens.
	Entries int
	// EntriesPerReplica bounds one replica's. Default: a quarter of Entries.
	EntriesPerReplica int
	// Replicas known at once. Past it the one without news for longest is
	// forgotten. Default 4096.
	Replicas int
	// Placements in flight per replica, of all routers. Default 16384, at most
	// 60000.
	Placements int
	// PlacementAge is the age past which a placement of which no end came is
	// released. Default 1 h: longer than any stream a router lets live.
	PlacementAge time.Duration
	// Journal is the number of ops kept for those who read on. Default 1<<15,
	// seconds of a busy cluster's news.
	Journal int
	// UnknownCapacity is C_eff, in tokens, of a replica of which nothing is known.
	// Default 1<<20: half of the truth costs more than twice the truth.
	UnknownCapacity float64
}

func (b Bounds) withDefaults() Bounds {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&b.Entries, 1<<20)
	def(&b.EntriesPerReplica, max(1, b.Entries/4))
	def(&b.Replicas, 4096)
	def(&b.Placements, 16384)
	b.Placements = min(b.Placements, 60000) // counts of a mark are 16 bits wide
	def(&b.Journal, 1<<15)
	if b.PlacementAge <= 0 {
		b.PlacementAge = time.Hour
	}
	if b.UnknownCapacity <= 0 {
		b.UnknownCapacity = 1 << 20
	}
	b.UnknownCapacity = min(max(b.UnknownCapacity, minCapacity), maxCapacity)
	return b
}

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
	clock   *state.Clock
	slots   func(state.ReplicaID) state.Slot
	bounds  Bounds
	now     func() time.Time
	journal *Journal
	table   table
	entries atomic.Int64
	nextID  atomic.Uint64 // placements
	sweepAt atomic.Int64
	scratch sync.Pool // *scratch
	totals  totals

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
		journal: newJournal(b.Journal),
		byID:    make(map[state.ReplicaID]*replica),
		gone:    make(map[state.ReplicaID]int64),
		seen:    make(map[state.BootID]*window),
		drops:   make(map[state.BootID]int64),
	}
	x.table.init()
	x.bySlot.Store(&[]*replica{})
	x.scratch.New = func() any { return new(scratch) }
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
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.byID[id]; r != nil {
		return r
	}
	if at, ok := x.gone[id]; ok {
		if t <= at {
			return nil
		}
		delete(x.gone, id)
	}
	if len(x.byID) >= x.bounds.Replicas {
		var idlest *replica
		for _, r := range x.byID {
			if idlest == nil || r.lastNews.Load() < idlest.lastNews.Load() {
				idlest = r
			}
		}
		x.totals.replicasDropped.Add(1)
		x.forget(idlest)
	}
	r := &replica{id: id, slot: slot, x: x, ages: newAges(), dead: never, lostFrom: liveForever, flights: make(map[flightKey]*flight), owed: make(map[uint64][]owed)}
	r.learn.init(x.bounds.UnknownCapacity)
	r.liveFrom.Store(liveAlways)
	r.lastNews.Store(now)
	x.byID[id] = r
	slots := *x.bySlot.Load()
	grown := make([]*replica, max(len(slots), int(slot)+1))
	copy(grown, slots)
	grown[slot] = r
	x.bySlot.Store(&grown)
	return r
}

// Forget frees all that is kept of a replica that left every list
// (state.Store.OnGone). What peers still tell of it from before is ignored.
func (x *Index) Forget(_ state.Slot, id state.ReplicaID) {
	now := x.ownTime(x.now())
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.gone) >= x.bounds.Replicas {
		for old, at := range x.gone {
			if now-at > int64(time.Minute) || len(x.gone) >= 2*x.bounds.Replicas {
				delete(x.gone, old)
			}
		}
	}
	x.gone[id] = now
	if r := x.byID[id]; r != nil {
		x.forget(r)
	}
}

// forget removes a replica. x.mu is held.
func (x *Index) forget(r *replica) {
	delete(x.byID, r.id)
	slots := *x.bySlot.Load()
	less := make([]*replica, len(slots))
	copy(less, slots)
	less[r.slot] = nil
	x.bySlot.Store(&less)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	for _, f := range r.flights {
		r.release(f, phaseWithdrawn, 0)
	}
	for e := r.ages.oldest(); e != nil; e = r.ages.oldest() {
		r.ages.remove(e)
		r.free(e)
	}
	r.tombs = tombs{}
}

// makeRoom lets the replica with most entries forget its oldest until n more fit.
// Other replicas' locks are only tried, since r's is held.
func (x *Index) makeRoom(r *replica, n int) {
	over := x.entries.Load() + int64(n) - int64(x.bounds.Entries)
	if over <= 0 {
		return
	}
	big := r
	most := r.entries
	for _, o := range *x.bySlot.Load() {
		if o == nil || o == r || !o.mu.TryLock() {
			continue
		}
		if o.entries > most {
			if big != r {
				big.mu.Unlock()
			}
			big, most = o, o.entries
			continue
		}
		o.mu.Unlock()
	}
	big.evict(maxCapacity, max(0, big.entries-int(over)-x.bounds.Entries/256))
	if big != r {
		big.settle()
		big.mu.Unlock()
	}
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
