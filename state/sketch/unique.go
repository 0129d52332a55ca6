package sketch

import "github.com/hearsay-llm/hearsay/state"

// Unique is how many live tokens of a replica none of the others holds alive: what
// would be lost with it. The others are given by their slots. It looks at all of the
// replica's marks and holds up changes of its sketch meanwhile, some milliseconds for a
// hundred thousand: it is for decisions, not for requests. 0 for an unknown replica.
func (x *Index) Unique(id state.ReplicaID, others []state.Slot) (tokens int64) {
	r := x.find(id)
	if r == nil {
		return 0
	}
	bySlot := *x.bySlot.Load()
	from := make(map[state.Slot]int64, len(others)) // horizons
	for _, s := range others {
		if s != r.slot && int(s) < len(bySlot) && bySlot[s] != nil {
			from[s] = bySlot[s].liveFrom.Load()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.each(func(e *entry) {
		if r.live(e) && !x.heldElsewhere(e, from) {
			tokens += e.tokens()
		}
	})
	return tokens
}

// heldElsewhere reports whether one of the others, given with their horizons, has an
// entry's mark alive.
func (x *Index) heldElsewhere(e *entry, from map[state.Slot]int64) bool {
	c := x.table.find(e.hash)
	if c == nil {
		return false
	}
	h := c.many.Load()
	if h == nil || h.hash != e.hash {
		return false // e is the only holder
	}
	for _, o := range h.refs {
		if horizon, ok := from[o.slot]; ok && (pinsOf(o.state.Load()) > 0 || o.use.Load() > horizon) {
			return true
		}
	}
	return false
}

// each calls f once for every mark of the replica that was used or that a placement
// holds. r.mu is held.
func (r *replica) each(f func(e *entry)) {
	for i := range r.ages.b {
		for e := r.ages.b[i].head; e != nil; e = e.next {
			f(e)
		}
	}
	seen := map[*entry]bool{}
	all := func(fl *flight) {
		for _, e := range fl.path {
			if (held(e.state.Load()) || e.use.Load() != never) && !seen[e] {
				seen[e] = true
				f(e)
			}
		}
	}
	for _, fl := range r.flights {
		all(fl)
	}
	for _, fl := range r.book.held {
		all(fl)
	}
}

// eachUsed calls f once for every used mark of the replica. r.mu is held.
func (r *replica) eachUsed(f func(e *entry)) {
	r.each(func(e *entry) {
		if e.use.Load() != never {
			f(e)
		}
	})
}
