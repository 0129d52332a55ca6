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
		id: id, slot: slot, x: x, ages: newAges(), dead: never, lostFrom: liveForever, tombs: newTombs(replicas),
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

// capacity is C_eff in tokens.
func (r *replica) capacity() int64 { return int64(r.learn.now.tokens) }

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

// publish works out the horizon. Where slots hold what is there, no use is late
// enough by itself.
func (r *replica) publish(capacity int64) {
	from := max(r.ages.settle(capacity), r.dead)
	if r.book.n > 0 {
		from = liveForever
	}
	r.liveFrom.Store(from)
}

// free removes an entry that is in no bucket and not held, and those ancestors
// that only it needed. Children it may still have become orphans (see above).
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

// up is the parent of e, nil when it has none or it was removed.
func (r *replica) up(e *entry) *entry {
	if p := e.parent; p != nil && p.gone {
		e.parent, e.known = nil, false
	}
	return e.parent
}

// obtain returns the entry of a mark, made if need be; nil when a bound refuses.
func (r *replica) obtain(hash uint64) (e *entry, made bool) {
	if e = r.x.table.get(hash, r.slot); e != nil || hash == 0 {
		return e, false
	}
	if r.x.full() {
		r.x.totals.entriesDropped.Add(1)
		r.drops.Refused++
		return nil, false
	}
	e = &entry{hash: hash, slot: r.slot}
	e.use.Store(never)
	r.entries++
	r.x.entries.Add(1)
	r.x.table.put(e)
	r.made = append(r.made, e)
	return e, true
}

// link makes the entry known below parent (nil = the root) with l's token count.
// The closest parent wins, as a mark between two known ones must take over its
// share of the child's tokens; the measured correction merges by the larger.
func (r *replica) link(e, parent *entry, l *Link) (news bool) {
	est, scale := e.est, max(e.scale, l.Scale)
	switch up := r.up(e); {
	case !e.known:
		e.known, news, est = true, true, l.Tokens
		r.adopt(e, parent)
	default:
		var has, wants uint64
		if up != nil {
			has = up.hash
		}
		if parent != nil {
			wants = parent.hash
		}
		if has == wants {
			est = min(est, l.Tokens)
		} else if (l.Tokens < est || l.Tokens == est && wants > has) && r.adopt(e, parent) {
			est = l.Tokens
		}
	}
	news = r.recount(e, est, scale) || news
	if len(r.owed) > 0 {
		r.settleOwed(e)
	}
	return news
}

// adopt hangs e below parent, unless that would close a ring.
func (r *replica) adopt(e, parent *entry) bool {
	if parent == e.parent {
		return true
	}
	if e.kids > 0 {
		n := 0
		for p := parent; p != nil; p = r.up(p) {
			if n++; p == e || n > MaxLinks {
				return false
			}
		}
	} else if parent == e {
		return false
	}
	if e.parent != nil {
		e.parent.kids--
		r.made = append(r.made, e.parent)
	}
	e.parent, r.book.dirty = parent, r.book.n > 0
	if parent == nil {
		return true
	}
	parent.kids++
	if use := e.use.Load(); use != never {
		r.touch(parent, use+1, e.began)
	}
	if !e.answer() {
		r.confirm(parent)
	}
	r.extend(e)
	return true
}

// confirm notes that a prompt with this mark, and so with its ancestors, was
// prefilled. Ancestors of a confirmed mark are confirmed.
func (r *replica) confirm(e *entry) (changed bool) {
	for n := 0; e != nil && n < MaxLinks && e.answer(); e, n = r.up(e), n+1 {
		e.state.Store(e.state.Load() | promptFlag)
		changed = true
	}
	return changed
}

// recount sets the entry's token count and keeps the sums right.
func (r *replica) recount(e *entry, est uint32, scale uint16) bool {
	if e.est == est && e.scale == scale {
		return false
	}
	before := e.tokens()
	e.est, e.scale = est, scale
	switch d := e.tokens() - before; {
	case held(e.state.Load()):
		r.ages.held += d
	case e.use.Load() != never:
		r.ages.grow(r.ages.find(e.use.Load()), d)
	}
	return true
}

// touch notes that e and its ancestors were used at t by a request placed at
// began. Ancestors count as used a nanosecond later per step, since engines evict
// the tail of a prefix before its head. An ancestor used later has ancestors used
// later still: the walk ends. What a request placed before dead_before used is
// gone, however late it was released.
func (r *replica) touch(e *entry, t, began int64) (changed bool) {
	if began <= r.dead {
		return false
	}
	if r.book.n > 0 && t > e.use.Load() {
		r.book.note(e, began, t)
	}
	for n := 0; e != nil && n < MaxLinks && (e.use.Load() < t || e.began < began); e, t, n = r.up(e), t+1, n+1 {
		if e.use.Load() == never {
			e.began = began
		}
		e.began = max(e.began, began)
		if e.use.Load() < t {
			r.setUse(e, t)
		}
		changed = true
	}
	return changed
}

func (r *replica) setUse(e *entry, t int64) {
	if held(e.state.Load()) {
		e.use.Store(t)
		return
	}
	if e.use.Load() != never {
		r.ages.remove(e)
	}
	e.use.Store(t)
	if t != never {
		r.ages.add(e)
	}
}

// hold adds d to the counts of pinning placements of e; unhold takes it back. An
// entry that nothing holds and nobody used is freed.
func (r *replica) hold(e *entry, d uint64, now int64) {
	s := e.state.Load()
	if !held(s) {
		if e.use.Load() != never {
			r.ages.remove(e)
		}
		r.ages.held += e.tokens()
	}
	if d == onePend && pendOf(s) == 0 {
		e.since.Store(now)
	}
	e.state.Store(s + d)
}

func (r *replica) unhold(e *entry, d uint64) {
	s := e.state.Load() - d
	e.state.Store(s)
	if held(s) {
		return
	}
	r.ages.held -= e.tokens()
	if e.use.Load() != never {
		r.ages.add(e)
	} else if e.idle() {
		r.free(e)
	}
}

// idle reports that nothing needs the entry: no use, no placement, no child.
func (e *entry) idle() bool {
	return !e.gone && e.kids == 0 && e.use.Load() == never && !held(e.state.Load())
}

// live reports whether the replica probably holds e.
func (r *replica) live(e *entry) bool {
	return pinsOf(e.state.Load()) > 0 || e.use.Load() > r.liveFrom.Load()
}

// chain makes links known below the mark parent, oldest first, and returns the
// deepest entry, or nil when a bound refused one.
func (r *replica) chain(parent uint64, links []Link) (leaf *entry, news bool) {
	if len(links) == 0 {
		return nil, false
	}
	var up *entry
	if parent != 0 {
		if up, _ = r.obtain(parent); up == nil {
			return nil, false
		}
	}
	for i := range links {
		e, _ := r.obtain(links[i].Hash)
		if e == nil {
			return nil, news
		}
		news = r.link(e, up, &links[i]) || news
		up = e
	}
	return up, news
}

// kill makes everything that requests placed at t or before used gone.
func (r *replica) kill(t int64) bool {
	if t <= r.dead {
		return false
	}
	r.dead = t
	r.liveFrom.Store(max(r.liveFrom.Load(), t))
	for _, f := range r.book.held {
		r.unpin(f)
	}
	r.book.held, r.book.dirty = nil, r.book.n > 0
	for _, f := range r.flights {
		if f.began <= t {
			r.release(f, phaseWithdrawn, t)
			continue
		}
		if f.phase == phasePending {
			// What it was matched with is gone: it must prefill all of its path.
			for _, e := range f.path[f.pend:] {
				r.hold(e, onePend, f.began)
				r.unhold(e, onePin)
			}
			f.pend = len(f.path)
		}
		for _, e := range f.path {
			if e.began <= t {
				e.use.Store(never)
			}
		}
	}
	for i := range r.ages.b {
		for e, next := r.ages.b[i].head, (*entry)(nil); e != nil; e = next {
			if next = e.next; e.began <= t {
				r.ages.remove(e)
				r.free(e)
			}
		}
	}
	r.settle()
	return true
}

// ownTime is an instant as nanoseconds since this boot began.
func (x *Index) ownTime(t time.Time) int64 { return int64(x.clock.Since(t)) }
