package sketch

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// replica is what is known of one replica's cache. Everything is written under
// mu; Lookup reads liveFrom and, through the table, the entries.
type replica struct {
	id       state.ReplicaID
	slot     state.Slot
	liveFrom atomic.Int64 // a use is alive iff later: the horizon or dead_before
	tokens   atomic.Int64 // tokens kept
	fill     atomic.Int64 // the same in 1/fillOne of C_eff
	lastNews atomic.Int64 // own time of the last change, ns

	x  *Index
	mu sync.Mutex
	// Guarded by mu.
	gone     bool // forgotten; nothing may be added
	ages     ages
	entries  int
	dead     int64 // dead_before on the own clock; never = none
	deadTold int64 // what others were told of it, or told us
	learn    learner
	truth    truth
	flights  map[flightKey]*flight
	book     slotBook
	own      []*Placement // of this router, without evidence yet
	lost     int          // flights whose router was found dead
	lostFrom int64        // earliest such instant, or earlier
	tombs    tombs
	owed     map[uint64][]owed // by mark
	weighed  int64             // bytes of it in Index.weight
	inFlight int64             // bytes of flights
	drops    ReplicaDrops
	made     []*entry // by the change under way, or robbed of a child: perhaps idle
}

func newReplica(x *Index, id state.ReplicaID, slot state.Slot, now int64, replicas int) *replica {
	r := &replica{
		id: id, slot: slot, x: x, ages: newAges(), dead: never, deadTold: never, lostFrom: liveForever, tombs: newTombs(replicas),
		flights: make(map[flightKey]*flight), owed: make(map[uint64][]owed),
	}
	r.learn.init(x.bounds.UnknownCapacity)
	r.liveFrom.Store(liveAlways)
	r.lastNews.Store(now)
	return r
}

// forget gives back all that is kept of the replica and takes it off the lists, in
// this order: another one of its slot must not meet its entries. The index's mu may
// be taken while a replica's is held, never the reverse.
func (r *replica) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return
	}
	r.gone = true
	for _, f := range r.flights {
		r.release(f, phaseWithdrawn, 0)
	}
	for _, f := range r.book.held {
		r.unpin(f)
	}
	for e := r.ages.oldest(); e != nil; e = r.ages.oldest() {
		r.ages.remove(e)
		r.free(e)
	}
	r.tombs, r.ages, r.owed, r.made, r.own = tombs{}, newAges(), nil, nil, nil
	r.x.weight.Add(-r.weighed)
	r.weighed = 0
	r.x.unlist(r)
}

// capacity is C_eff in tokens; of a replica with slots, what they hold together or what
// is found again beside them, whichever is more.
func (r *replica) capacity() int64 { return int64(r.learn.reach()) }

// settle ends a change: it publishes the horizon and evicts what is too old to
// learn from, and what the change left without need.
func (r *replica) settle() {
	if r.gone {
		return
	}
	for _, e := range slices.Backward(r.made) {
		if e.idle() {
			r.free(e)
		}
	}
	clear(r.made)
	r.made = r.made[:0]
	c := r.capacity()
	r.assign()
	r.publish(c)
	if r.releaseLost(never) {
		r.publish(c)
	}
	if r.evictOld(c) {
		r.publish(c)
	}
	r.tokens.Store(r.ages.sum + r.ages.held)
	r.fill.Store(r.tokens.Load() * fillOne / c)
	r.weigh()
}

// publish works out the horizon. Where slots hold what is there, and nothing has been
// found beside them, no use is late enough by itself.
func (r *replica) publish(capacity int64) {
	if r.book.n > 0 {
		capacity = r.learn.beside()
	}
	from := max(r.ages.settle(capacity), r.dead)
	if r.book.n > 0 && capacity == 0 {
		from = liveForever
	}
	r.liveFrom.Store(from)
}

// free removes an entry that is in no bucket and not held, and those ancestors
// that only it needed. Children it may still have become orphans (see up).
func (r *replica) free(e *entry) {
	for {
		e.gone = true
		r.x.table.drop(e)
		r.entries--
		r.x.entries.Add(-1)
		up := e.parent
		e.parent = nil
		if up == nil {
			return
		}
		up.kids--
		if !up.idle() {
			return
		}
		e = up
	}
}

// obtain returns the entry of a mark, made if need be; nil when a bound refuses.
func (r *replica) obtain(hash uint64) (e *entry, made bool) {
	if e = r.x.table.get(hash, r.slot); e != nil || hash == 0 {
		return e, false
	}
	e = r.make(hash)
	return e, e != nil
}

// make returns a new entry of a mark that has none here; nil when a bound refuses.
func (r *replica) make(hash uint64) *entry {
	if r.x.full() {
		r.x.totals.entriesDropped.Add(1)
		r.drops.Refused++
		return nil
	}
	e := &entry{hash: hash, slot: r.slot}
	e.use.Store(never)
	r.entries++
	r.x.entries.Add(1)
	r.x.table.put(e)
	r.made = append(r.made, e)
	return e
}

// ownTime is an instant as nanoseconds since this boot began.
func (x *Index) ownTime(t time.Time) int64 { return int64(x.clock.Since(t)) }
