package sketch

import "github.com/hearsay-llm/hearsay/state"

// flight is one placement as every router knows it: the entries it holds on one
// replica. Guarded by the replica's mu.
type flight struct {
	key   flightKey
	phase phase
	began int64    // own time of the placing
	path  []*entry // from the deepest mark to the root
	pend  int      // path[:pend] is still to be prefilled, path[pend:] was live
}

type flightKey struct {
	boot state.BootID
	id   uint64
}

// phase of a placement. It only grows: merging two reports of a placement takes
// the later phase.
type phase uint8

const (
	phasePending phase = iota
	phaseFirst
	phaseEnded
	phaseWithdrawn
)

// walk lists e and its ancestors.
func (r *replica) walk(dst []*entry, e *entry) []*entry {
	for n := 0; e != nil && n < MaxLinks; e, n = r.up(e), n+1 {
		dst = append(dst, e)
	}
	return dst
}

// begin registers a placement whose deepest mark is leaf and holds its path. It
// reports false when a bound refuses it.
func (r *replica) begin(key flightKey, leaf *entry, began int64) (*flight, bool) {
	if len(r.flights) >= r.x.bounds.Placements {
		r.x.totals.placementsDropped.Add(1)
		return nil, false
	}
	f := &flight{key: key, began: began, path: r.walk(nil, leaf)}
	for f.pend < len(f.path) && !r.live(f.path[f.pend]) {
		f.pend++
	}
	for i, e := range f.path {
		if i < f.pend {
			r.hold(e, onePend, began)
		} else {
			r.hold(e, onePin, began)
		}
	}
	r.flights[key] = f
	return f, true
}

// extend lets the placements whose path ended at e, until now a mark without a
// known parent, hold e's ancestors too.
func (r *replica) extend(e *entry) {
	if !held(e.state.Load()) {
		return
	}
	for _, f := range r.flights {
		n := len(f.path)
		if n == 0 || f.path[n-1] != e {
			continue
		}
		f.path = r.walk(f.path, r.up(e))
		for _, p := range f.path[n:] {
			if f.phase == phasePending && f.pend == n && !r.live(p) {
				r.hold(p, onePend, f.began)
				n++
				f.pend = n
			} else {
				r.hold(p, onePin, f.began)
			}
		}
	}
}

// first makes the placement's path resident since t.
func (r *replica) first(f *flight, t int64) bool {
	if f.phase != phasePending {
		return false
	}
	f.phase = phaseFirst
	for _, e := range f.path[:f.pend] {
		r.hold(e, onePin, f.began)
		r.unhold(e, onePend)
	}
	f.pend = 0
	r.touch(f.path[0], t)
	return true
}

// end releases a placement that had its first token: its path was used at t.
func (r *replica) end(f *flight, t int64) {
	for _, e := range f.path {
		e.confirm()
	}
	r.touch(f.path[0], t)
	r.release(f, phaseEnded, t)
}

// release lets go of the placement's path and remembers how it ended.
func (r *replica) release(f *flight, p phase, t int64) {
	delete(r.flights, f.key)
	f.phase = p
	for i, e := range f.path {
		if i < f.pend {
			r.unhold(e, onePend)
		} else {
			r.unhold(e, onePin)
		}
	}
	f.path = nil
	r.tombs.put(f.key, tomb{p, t, true})
}

// tombs remembers the last placements' phases that came before, or outlived, the
// placement itself, so that a late or repeated placing changes nothing. Bounded:
// the oldest is forgotten.
type tombs struct {
	m    map[flightKey]tomb
	keys []flightKey
	next int
}

type tomb struct {
	phase  phase
	at     int64 // own time of the phase
	placed bool  // the placing was seen
}

func (t *tombs) put(k flightKey, v tomb) (news bool) {
	if old, ok := t.m[k]; ok {
		if news = v.phase > old.phase; !news {
			old.placed = old.placed || v.placed
			v = old
		}
		t.m[k] = v
		return news
	}
	if t.m == nil {
		t.m = make(map[flightKey]tomb)
	}
	if len(t.keys) < maxTombs {
		t.keys = append(t.keys, k)
	} else {
		delete(t.m, t.keys[t.next])
		t.keys[t.next] = k
		t.next = (t.next + 1) % maxTombs
	}
	t.m[k] = v
	return true
}

// maxTombs covers some seconds of one replica's placements.
const maxTombs = 1024
