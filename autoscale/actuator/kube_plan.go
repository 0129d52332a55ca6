package actuator

import (
	"cmp"
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

// step is what is to be written of a target now.
type step struct {
	replicas int
	victims  []*pod // that go by it
	price    []*pod // that are to bear our cost and do not
	unprice  []*pod // that bear it and are not to
	held     string // why fewer go than may
}

// writes reports whether something differs from what was seen.
func (s step) writes(l *look) bool {
	return s.replicas != l.scale.Spec.Replicas || len(s.price)+len(s.unprice) > 0
}

// plan is the step towards d: a pure function. It raises the replicas to what is
// wanted, and lowers them by no more than the Pods that may go and are those that the
// controller would take.
func plan(l *look, d *state.Desired) step {
	now, active := l.scale.Spec.Replicas, l.active()
	may := func(p *pod) bool { return slices.Contains(d.Remove, state.ReplicaID(p.Metadata.UID)) }
	s := step{replicas: d.Want}
	if now > d.Want {
		s.lower(l, d.Want, active, may)
		s.replicas = min(s.replicas, now)
	}
	for _, p := range s.victims {
		if _, ordered := p.ordinal(); !ordered && !p.priced() && s.replicas < now {
			s.price = append(s.price, p)
		}
	}
	if len(active) <= now { // else the controller is about to choose
		for _, p := range active {
			if p.priced() && !may(p) {
				s.unprice = append(s.unprice, p)
			}
		}
	}
	return s
}

// lower finds how few replicas may be asked for, and who goes then.
func (s *step) lower(l *look, want int, active []*pod, may func(*pod) bool) {
	order, top := slices.Clone(active), l.top()
	slices.SortStableFunc(order, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(a.rank(top), b.rank(top)), cmp.Compare(first(may(a)), first(may(b))))
	})
	s.replicas = want
	for i, p := range order {
		keeps := len(order) - i // the replicas with which p stays
		if n, ordered := p.ordinal(); ordered {
			keeps = n - l.first + 1
		}
		switch {
		case keeps <= want: // it stays anyhow, and so do those after it
			return
		case !may(p):
			s.replicas, s.held = keeps, p.Metadata.Name+" would go first"
			return
		case mixed(order):
			s.replicas, s.held, s.victims = keeps, "a roll-out is under way", nil
			if l.paused {
				s.held = "a roll-out is under way, and paused: kubectl rollout resume it"
			}
			return
		}
		s.victims = append(s.victims, p)
	}
}

// mixed reports whether several controllers made the Pods: during a roll-out each of
// them chooses among its own.
func mixed(pods []*pod) bool {
	return slices.ContainsFunc(pods, func(p *pod) bool { return p.owner() != pods[0].owner() })
}

// first sorts what holds before what does not.
func first(b bool) int {
	if b {
		return 0
	}
	return 1
}

// explain notes why drained Pods are not removed yet.
func (l *look) explain(s *step, d *state.Desired) {
	if s.held != "" && len(d.Remove) > 0 {
		l.trouble = "drained replicas can't be removed yet: " + s.held
	}
}
