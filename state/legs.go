package state

import "time"

// Legs is how many replicas of a pool take requests, by what part of one they serve.
type Legs struct{ Both, Prefill, Decode int }

// Legs counts the replicas that take requests at now.
func (p *PoolView) Legs(w *Weights, now time.Time) (l Legs) {
	for _, r := range p.Replicas {
		if !r.Condition(&p.Spec, w.Of(r.ID), now).TakesRequests() {
			continue
		}
		switch r.Role {
		case RolePrefill:
			l.Prefill++
		case RoleDecode:
			l.Decode++
		default:
			l.Both++
		}
	}
	return l
}

// Missing is the leg that a pool which serves legs has no replica for, RoleBoth where
// it has none for either; empty if nothing is missing. A replica of role both serves
// whole requests and so stands in for each.
func (l Legs) Missing() string {
	switch {
	case l.Both > 0 || l.Prefill > 0 && l.Decode > 0:
		return ""
	case l.Prefill > 0:
		return string(RoleDecode)
	case l.Decode > 0:
		return string(RolePrefill)
	}
	return string(RoleBoth)
}
