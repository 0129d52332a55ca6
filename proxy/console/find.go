package console

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// findID takes a replica's id, its URL or host:port in any spelling, or the name that
// it was discovered by.
func (s *Server) findID(given string) state.ReplicaID {
	id := state.ReplicaID(given)
	v := s.node.View()
	if exists(v, id) {
		return id
	}
	for _, p := range v.Pools {
		for _, u := range []string{given, "http://" + given} {
			rep, err := s.operate.Replica(p.Spec.Name, u)
			if err != nil && rep.ID == "" { // one that may not be added may be there
				continue
			}
			if exists(v, rep.ID) {
				return rep.ID
			}
			if x := at(v, rep.URL); x != nil {
				return x.Process()
			}
		}
	}
	if x := named(v, given); x != nil {
		return x.Process()
	}
	return id
}

// named finds a replica by its name, or the first of its ranks. A Pod that was made
// anew has the name of one that leaves; of two that stay neither is meant.
func named(v *state.View, name string) (found *state.ReplicaView) {
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			if name == "" || r.Name != name || r.Leaving != "" && found != nil {
				continue
			}
			if found != nil && found.Leaving == "" && found.Process() != r.Process() {
				return nil
			}
			if found == nil || found.Leaving != "" {
				found = r
			}
		}
	}
	return found
}

// exists reports whether a replica is in traffic or committed.
func exists(v *state.View, id state.ReplicaID) bool {
	_, committed := v.Facts.Replicas[id]
	return committed || v.Replica(id) != nil
}

// at finds a replica, or the first of its ranks, by its normal URL.
func at(v *state.View, url string) *state.ReplicaView {
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			if r.URL == url {
				return r
			}
		}
	}
	return nil
}

// addedBefore answers for a replica that need not be added, or can't be, because
// it is there. One that an operator added is only added again if that changes it:
// that is how it is moved to another pool.
func addedBefore(w http.ResponseWriter, v *state.View, rep *state.Replica) bool {
	x := at(v, rep.URL)
	if x == nil {
		return false
	}
	where := ""
	switch {
	case x.Source == state.SourceStatic:
		where = "in the configuration already"
	case x.Source == state.SourceDiscovery:
		where = "discovered already"
	case x.Process() != rep.ID:
		where = "there already, as " + string(x.Process())
	case added(v, rep):
		where = "there already"
	default:
		return false
	}
	if x.Pool != rep.Pool {
		fail(w, http.StatusConflict, "elsewhere", rep.URL+" is "+where+", in pool "+x.Pool)
		return true
	}
	unchanged(w, v, rep.URL+" is "+where)
	return true
}

// added reports whether the committed facts have just this replica.
func added(v *state.View, rep *state.Replica) bool {
	was, ok := v.Facts.Replicas[rep.ID]
	was.Source = rep.Source
	return ok && was == *rep
}

// actuated reports whether an actuator runs a committed replica: it would add what
// is taken from it again. One that answers nobody may have lost its host, and its
// actuator with it.
func actuated(v *state.View, rep *state.Replica, now time.Time) bool {
	if _, authority, _ := strings.Cut(rep.URL, "://"); string(rep.ID) == authority {
		return false // an operator's: those are called as their URL
	}
	x := cmp.Or(v.Replica(rep.ID), at(v, rep.URL))
	if x == nil {
		return false
	}
	for _, p := range v.Pools {
		if p.Spec.Name == x.Pool {
			return x.Sensed(&p.Spec, now) != state.Unreachable
		}
	}
	return false
}
