package autoscale

import (
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/state"
)

// What is here serves actuators whose replicas discovery lists (state.Actual's
// Discovered). Ids say nothing of their owner then: what the actuator lists is its.

// ours reports whether a listed replica is the actuator's, gone ones included. A
// discovered one that leaves is on no list of the actuator any more, or will soon not be.
func (r *round) ours(x *state.ReplicaView) bool {
	if r.act.Discovered {
		return r.owns(x.ID) || x.Leaving != ""
	}
	return r.act.Prefix != "" && strings.HasPrefix(string(x.ID), r.act.Prefix)
}

// isPart reports whether a replica is one of several of an instance: the sizes of
// decisions are replicas, those of the actuator instances.
func (r *round) isPart(id state.ReplicaID) bool {
	of, _, part := strings.Cut(string(id), ":")
	return part && r.act.Discovered && r.owns(state.ReplicaID(of))
}

// known reports whether routers have a replica on their lists, as far as the leader
// can tell.
func (r *round) known(id state.ReplicaID) bool {
	if r.act.Discovered {
		return r.view.Replica(id) != nil
	}
	_, ok := r.view.Facts.Replicas[id]
	return ok
}

// drainsOver lists the replicas that were drained to go, and have.
func (r *round) drainsOver() (ids []state.ReplicaID) {
	for id := range r.view.Facts.Draining {
		if !r.owns(id) && r.drainedByUs(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// foreign counts the replicas of a target that the actuator does not have.
func foreign(p *state.PoolView, k state.TargetKey, a state.Actual) (n int) {
	r := round{act: a}
	for _, x := range replicasOf(p, k) {
		if !r.ours(x) {
			n++
		}
	}
	return n
}

// outOfTurn reports whether one that is kept goes before a drained one, whatever is
// asked: then waiting for the drained one to go is in vain. n is how many drained ones
// were found to be out of turn, for each of which another one is to go.
func outOfTurn(drained state.Instance, n int, kept []state.Instance) bool {
	sooner := 0
	for _, i := range kept {
		if i.Turn < drained.Turn {
			sooner++
		}
	}
	return sooner > n
}

// spare bounds how many of the surplus are to be drained, with so many draining
// already. An orchestrator that has more replicas than it was asked for, as during a
// roll-out, will remove those itself.
func (r *round) spare(surplus, leaving int) int {
	if !r.act.Discovered {
		return surplus
	}
	return min(surplus, r.act.Asked-r.want-leaving)
}

// note is what the actuator has to tell beside what was decided.
func (r *round) note() string {
	if r.act.Note == "" {
		return ""
	}
	return "; " + r.act.Note
}
