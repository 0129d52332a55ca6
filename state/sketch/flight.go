package sketch

import (
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

// flight is one placement as every router knows it: the entries it holds on one
// replica. Guarded by the replica's mu.
type flight struct {
	key   flightKey
	phase phase
	began int64    // own time of the placing
	told  int64    // own time of the last its router told of it: the placing or the first token
	lost  int64    // own time at which its router was found dead since; never = it lives (see lose)
	path  []*entry // from the deepest mark to the root
	pend  int      // path[:pend] is still to be prefilled, path[pend:] was live
}

func (f *flight) bytes() int64 { return flightBytes + int64(cap(f.path))*8 }

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
	if dst == nil {
		depth := 0
		for up := e; up != nil && depth < MaxLinks; up = r.up(up) {
			depth++
		}
		dst = make([]*entry, 0, depth)
	}
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
		r.drops.Placements++
		return nil, false
	}
	f := &flight{key: key, began: began, told: began, lost: never, path: r.walk(nil, leaf)}
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
	r.inFlight += f.bytes()
	return f, true
}

// extend lets the placements that hold e hold those ancestors too which e got
// since: a mark was known without its parent, or one came between the two.
func (r *replica) extend(e *entry) {
	if !held(e.state.Load()) {
		return
	}
	for _, f := range r.flights {
		if !slices.Contains(f.path, e) {
			continue
		}
		old, i := f.path, 0
		path := r.walk(make([]*entry, 0, len(old)+1), old[0])
		if !subsequence(old, path) {
			continue // links that contradict each other: keep what is held
		}
		r.inFlight -= f.bytes()
		f.path = path
		r.inFlight += f.bytes()
		for j, p := range path {
			if i < len(old) && old[i] == p {
				i++
				continue
			}
			switch {
			case j < f.pend || j == f.pend && f.phase == phasePending && !r.live(p):
				f.pend++
				r.hold(p, onePend, f.began)
			default:
				r.hold(p, onePin, f.began)
			}
		}
	}
}

// subsequence reports whether all of part stands in whole, in the same order.
func subsequence(part, whole []*entry) bool {
	for _, e := range whole {
		if len(part) > 0 && part[0] == e {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// first makes the placement's path resident since t.
func (r *replica) first(f *flight, t int64) bool {
	if f.phase != phasePending {
		return false
	}
	f.phase, f.told = phaseFirst, max(f.told, t)
	for _, e := range f.path[:f.pend] {
		r.hold(e, onePin, f.began)
		r.unhold(e, onePend)
	}
	f.pend = 0
	r.confirm(f.path[0])
	r.touch(f.path[0], t, f.began)
	return true
}

// end releases a placement that had its first token: its path was used at t.
func (r *replica) end(f *flight, t int64) {
	r.confirm(f.path[0])
	r.touch(f.path[0], t, f.began)
	r.release(f, phaseEnded, t)
}

// release ends the placement and remembers how.
func (r *replica) release(f *flight, p phase, t int64) {
	r.letGo(f)
	f.phase = p
	r.tombs.put(f.key, tomb{phase: p, at: t, placed: true})
}

// letGo takes the placement's hands off its path.
func (r *replica) letGo(f *flight) {
	delete(r.flights, f.key)
	r.inFlight -= f.bytes()
	if f.lost != never {
		r.lost--
	}
	for i, e := range f.path {
		if i < f.pend {
			r.unhold(e, onePend)
		} else {
			r.unhold(e, onePin)
		}
	}
	f.path = nil
}
