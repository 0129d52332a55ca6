package sketch

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
	at     int64  // own time of the phase
	placed bool   // the placing was seen
	scale  uint16 // of evidence that came before the placing
	count  uint32
	ghost  *ghost // placed by a router found dead since, without a first token
}

// put merges v into what is known of the placement.
func (t *tombs) put(k flightKey, v tomb) (news bool) {
	if old, ok := t.m[k]; ok {
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
		t.m[k] = old
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
