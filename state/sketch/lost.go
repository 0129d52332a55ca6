package sketch

import "unsafe"

// A router that is found dead tells no ends any more, but what it told before may
// still be on its way, and it may only be cut off. So its placements are not ended
// in its name; they wait, without harm, for what may still come:
//
//   - one without a first token holds nothing and matches nothing. Its path is
//     remembered, so that a first token or an end that comes late finds it.
//   - one with a first token stays resident until the horizon passes the instant of
//     the death, as if it was used until then; but no use is made up for it, so that
//     an end that comes late says when it was really used.
//
// A placement of which something was told from after that instant is of a router
// that lives, and is like any other.

// ghost is a placement without a first token whose router was found dead.
type ghost struct {
	began  int64
	leaf   uint64
	parent uint64
	links  []Link // of its whole path, oldest first
}

func (g *ghost) bytes() int64 {
	if g == nil {
		return 0
	}
	return int64(unsafe.Sizeof(*g)) + int64(cap(g.links))*linkBytes
}

// lose says that the placement's router was found dead at the given own time.
func (r *replica) lose(f *flight, at int64) {
	switch {
	case f.told > at || f.phase > phaseFirst:
	case f.phase == phasePending:
		g := &ghost{began: f.began, leaf: f.path[0].hash}
		g.parent, g.links = r.links(f.path)
		r.letGo(f)
		f.phase = phaseWithdrawn // for its own Placement, if it is ours and expired
		r.tombs.put(f.key, tomb{phase: phasePending, at: f.began, placed: true, ghost: g})
	default:
		if f.lost == never {
			r.lost++
		}
		f.lost = max(f.lost, at)
		r.lostFrom = min(r.lostFrom, f.lost)
	}
}

// loseIfDropped does so when the router was found dead since it told of f.
func (r *replica) loseIfDropped(f *flight) {
	if at, ok := r.x.dropped(f.key.boot, f.told); ok {
		r.lose(f, at)
	}
}

// revive makes a placement of a ghost, since something was told of it; nil when
// there is none or a bound refuses it.
func (r *replica) revive(key flightKey) *flight {
	past := r.tombs.m[key]
	g := r.tombs.takeGhost(key)
	if g == nil || g.began <= r.dead {
		return nil
	}
	leaf, _ := r.chain(g.parent, g.links)
	if leaf == nil || leaf.hash != g.leaf {
		if leaf, _ = r.obtain(g.leaf); leaf == nil {
			return nil
		}
	}
	f, ok := r.begin(key, leaf, g.began)
	if !ok {
		return nil
	}
	r.rescale(g.leaf, past.scale, past.count)
	return f
}

// releaseLost lets go of lost placements that the horizon has passed, and of those
// lost before the given own time. An end that still comes counts.
func (r *replica) releaseLost(before int64) (any bool) {
	horizon := r.liveFrom.Load()
	if r.lost == 0 || r.lostFrom > max(horizon, before) {
		return false
	}
	r.lostFrom = liveForever
	for _, f := range r.flights {
		switch {
		case f.lost == never:
		case f.lost > max(horizon, before):
			r.lostFrom = min(r.lostFrom, f.lost)
		default:
			r.letGo(f)
			f.phase = phaseEnded
			r.tombs.put(f.key, tomb{phase: phaseFirst, at: f.told, placed: true})
			any = true
		}
	}
	return any
}
