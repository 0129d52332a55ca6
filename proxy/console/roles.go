package console

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

// ofRole are a pool's replicas of one role.
func ofRole(p *state.PoolView, r state.Role) (list []*state.ReplicaView) {
	for _, x := range p.Replicas {
		if cmp.Or(x.Role, state.RoleBoth) == r {
			list = append(list, x)
		}
	}
	return list
}

// targetsOf are the targets of a pool that has one for each role: those of the roles that
// its replicas have, and what was committed.
func targetsOf(v *state.View, p *state.PoolView) (list []RoleTarget) {
	for _, r := range []state.Role{state.RolePrefill, state.RoleDecode, state.RoleBoth} {
		k := state.TargetKey{Pool: p.Spec.Name, Role: r}
		if target, known := v.Facts.Targets[k]; known || len(ofRole(p, r)) > 0 {
			list = append(list, RoleTarget{Role: string(r), Target: target, TargetSet: known, Held: v.Facts.Holds[k]})
		}
	}
	return list
}

// belowTarget warns of the targets that have fewer replicas than they should, each role's
// by itself, where something hinders that.
func (s *Server) belowTarget() (list []string) {
	v := s.node.View()
	for _, p := range v.Pools {
		for _, t := range targetsOf(v, p) {
			k := state.TargetKey{Pool: p.Spec.Name, Role: state.Role(t.Role)}
			n, why := len(ofRole(p, k.Role)), s.node.Hindrance(k)
			if why == "" || n >= t.Target {
				continue
			}
			at := k.Pool
			if k.Role != state.RoleBoth {
				at += " (" + t.Role + ")"
			}
			list = append(list, fmt.Sprintf("pool %s has %d of %s: %s", at, n, replicas(t.Target), why))
		}
	}
	return list
}

// targetKey is the target that is meant by a role, empty for none; why says what is wrong
// with it. A target for a role that the pool does not have would be reached by nobody.
func targetKey(v *state.View, p *state.PoolView, role state.Role) (k state.TargetKey, why string) {
	k = state.TargetKey{Pool: p.Spec.Name, Role: cmp.Or(role, state.RoleBoth)}
	has := func(t RoleTarget) bool { return t.Role == string(k.Role) }
	switch {
	case !slices.Contains([]state.Role{state.RoleBoth, state.RolePrefill, state.RoleDecode}, k.Role):
		return k, fmt.Sprintf("role is %.20q: use both, prefill or decode", role)
	case role == "" && p.Split:
		return k, fmt.Sprintf("the replicas of pool %s have roles, and a target each: say which with --role (in JSON role): prefill, decode or both", k.Pool)
	case len(p.Replicas) > 0 && !slices.ContainsFunc(targetsOf(v, p), has):
		return k, fmt.Sprintf("pool %s has no replicas of role %s", k.Pool, k.Role)
	}
	return k, ""
}
