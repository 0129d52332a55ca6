package sketch

// tombs remembers the last placements' phases that came before, or outlived, the
// placement itself, so that a late or repeated placing changes nothing. Bounded:
// the oldest is forgotten.
type tombs struct {
	m      map[flightKey]tomb
	keys   []flightKey
	next   int
	limit  int
	ghosts int64  // bytes
	lost   uint64 // forgotten: no room
}

type tomb struct {
	phase  phase
	placed bool   // the placing was seen
	scale  uint16 // of evidence that came before the placing
	count  uint32
	at     int64  // own time of the phase
	ghost  *ghost // placed by a router found dead since, without a first token
}

const (
	maxTombs  = 1024    // covers some seconds of one replica's placements
	allTombs  = 1 << 16 // of all replicas, about
	leastTomb = 64
)

func newTombs(replicas int) tombs {
	return tombs{limit: min(maxTombs, max(leastTomb, allTombs/max(1, replicas)))}
}

// put merges v into what is known of the placement.
func (t *tombs) put(k flightKey, v tomb) (news bool) {
	if old, ok := t.m[k]; ok {
		t.ghosts -= old.ghost.bytes()
		news = v.phase > old.phase
		if news {
			old.phase, old.at, old.ghost = v.phase, v.at, nil
		}
		if v.ghost != nil && old.phase == phasePending {
			old.ghost = v.ghost
		}
		old.placed = old.placed || v.placed
		if v.scale > old.scale {
			old.scale, old.count = v.scale, v.count
		}
		t.ghosts += old.ghost.bytes()
		t.m[k] = old
		return news
	}
	if t.m == nil {
		t.m = make(map[flightKey]tomb)
	}
	if len(t.keys) < t.limit {
		t.keys = append(t.keys, k)
	} else {
		t.takeGhost(t.keys[t.next])
		delete(t.m, t.keys[t.next])
		t.keys[t.next] = k
		t.next = (t.next + 1) % t.limit
		t.lost++
	}
	t.m[k] = v
	t.ghosts += v.ghost.bytes()
	return true
}

// takeGhost returns the placement's ghost, if it has one, and lays it to rest.
func (t *tombs) takeGhost(k flightKey) *ghost {
	v := t.m[k]
	g := v.ghost
	if g != nil {
		t.ghosts -= g.bytes()
		v.ghost = nil
		t.m[k] = v
	}
	return g
}
