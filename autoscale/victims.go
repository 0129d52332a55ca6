package autoscale

import (
	"cmp"
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

// uniqueGrain is the tokens below which two replicas lose alike: what an accelerator
// prefills in a fraction of a second is no reason to cut a replica that is busier.
const uniqueGrain = 1024

// candidate is a replica that could go.
type candidate struct {
	id       state.ReplicaID
	named    bool
	ready    bool
	unique   int // tokens that would be lost with it, in units of uniqueGrain
	inFlight int64
	turn     int // its place in the order that the actuator can't change
}

// victims chooses which n of an actuator's replicas go: those that would go first whatever
// is asked (Instance.Turn), those named already, then those that are not ready, then those that lose the fewest warm tokens which no other replica
// has, then those with the least running work. Of two that hold the same, one goes: what
// the first takes along is the second's alone from then on. What leaving ones hold does
// not count, either.
func (l *Loop) victims(v *state.View, a state.Actual, named, leaving []state.ReplicaID, n int) (ids []state.ReplicaID) {
	var list []candidate
	for _, i := range a.Instances {
		if i.Stopping {
			continue
		}
		c := candidate{id: i.Replica.ID, named: slices.Contains(named, i.Replica.ID), ready: i.Ready, turn: i.Turn}
		if rv := v.Replica(c.id); rv != nil {
			c.inFlight = rv.Load().InFlight
		}
		list = append(list, c)
	}
	gone := slices.Clone(leaving)
	for len(ids) < n && len(list) > 0 {
		if l.cfg.Unique != nil {
			for i := range list {
				list[i].unique = l.cfg.Unique(list[i].id, gone) / uniqueGrain
			}
		}
		next := slices.MinFunc(list, candidate.compare)
		list = slices.DeleteFunc(list, func(c candidate) bool { return c.id == next.id })
		ids, gone = append(ids, next.id), append(gone, next.id)
	}
	return ids
}

// compare is negative when c goes before d.
func (c candidate) compare(d candidate) int {
	return cmp.Or(cmp.Compare(c.turn, d.turn), before(c.named, d.named), before(!c.ready, !d.ready),
		cmp.Compare(c.unique, d.unique), cmp.Compare(c.inFlight, d.inFlight), cmp.Compare(c.id, d.id))
}

// before orders what is so before what is not.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// leavingIDs are the actuator's replicas that drain because of this target.
func (r *round) leavingIDs() (ids []state.ReplicaID) {
	_, leaving := r.kept()
	for _, i := range leaving {
		ids = append(ids, i.Replica.ID)
	}
	return ids
}
