package consensus

import (
	"fmt"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func refuse(code state.RefusalCode, format string, args ...any) *state.Refusal {
	return &state.Refusal{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// change applies a command to facts that nobody else holds. After a refusal the
// facts are to be thrown away.
func change(f *state.Facts, c *state.Command, index uint64) *state.Refusal {
	if len(c.ID) > maxText || len(c.Detail) > maxText || len(c.Of) > maxText || len(c.Settles) > maxText || len(c.Router) > maxText {
		return refuse(state.RefusedInvalid, "a text is longer than %d bytes", maxText)
	}
	if c.Epoch != 0 && c.Epoch != f.Epoch {
		return refuse(state.RefusedStaleEpoch, "epoch %d is over, the present one is %d", c.Epoch, f.Epoch)
	}
	switch c.Kind {
	case state.CommandSetTarget:
		return setTarget(f, c, index)
	case state.CommandSettle:
		return settle(f, c)
	case state.CommandAddReplica:
		return addReplica(f, c)
	case state.CommandRemoveReplica:
		delete(f.Replicas, c.Of)
		delete(f.Draining, c.Of)
		delete(f.Undrained, c.Of)
	case state.CommandDrain:
		return drain(f, c, index)
	case state.CommandUndrain:
		undrain(f, c, index)
	case state.CommandHold:
		return hold(f, c.Target)
	case state.CommandRelease:
		delete(f.Holds, c.Target)
	case state.CommandSetPolicy:
		return setPolicy(f, c)
	case state.CommandSetConfig:
		return setConfig(f, c)
	case state.CommandRestore:
		return restore(f, c, index)
	case state.CommandBeginTerm:
		f.Epoch, f.Leader = index, c.Router
	case state.CommandSetClusterID:
		if c.Cluster == "" || len(c.Cluster) > maxText {
			return refuse(state.RefusedInvalid, "no cluster id")
		}
		if f.ClusterID != "" && f.ClusterID != c.Cluster {
			return refuse(state.RefusedSettled, "the cluster already has an id")
		}
		f.ClusterID = c.Cluster
	default:
		return refuse(state.RefusedInvalid, "command kind %.64q is not known here", c.Kind)
	}
	return nil
}

func setTarget(f *state.Facts, c *state.Command, index uint64) *state.Refusal {
	d := c.Decision
	if d == nil || d.ID == "" || d.Pool == "" || d.To < 0 || d.To > maxTarget {
		return refuse(state.RefusedInvalid, "a decision needs an id, a pool and a target from 0 to %d", maxTarget)
	}
	if len(d.ID) > maxText || len(d.Reason) > maxText || len(d.Pool) > maxText || len(d.Role) > maxText || len(d.By) > maxText ||
		len(d.Evidence) > maxEvidence || len(d.Victims) > maxVictims {
		return refuse(state.RefusedInvalid, "the decision is too large")
	}
	if f.Decision(d.ID) != nil {
		return refuse(state.RefusedInvalid, "decision %.64q exists", d.ID)
	}
	k := state.TargetKey{Pool: d.Pool, Role: d.Role}
	now, exists := f.Targets[k]
	if !exists && len(f.Targets) >= maxTargets {
		return refuse(state.RefusedFull, "there are %d targets", maxTargets)
	}
	operator := d.By == state.ByOperator
	if !operator {
		if c.Epoch == 0 {
			return refuse(state.RefusedStaleEpoch, "a decision needs its term's epoch")
		}
		if f.Holds[k] {
			return refuse(state.RefusedHeld, "an operator holds the target of %.64s/%.64s", d.Pool, d.Role)
		}
		if last := f.LastDecision(k); last != nil && last.Open() {
			return refuse(state.RefusedOverlap, "decision %.64s is still being carried out", last.ID)
		}
		if exists && now != d.From {
			return refuse(state.RefusedChanged, "the target is %d, not %d", now, d.From)
		}
	}
	n := *d
	n.Index, n.Epoch = index, f.Epoch
	n.Outcome, n.Detail, n.DoneAt, n.Seen = state.OutcomeNone, "", time.Time{}, time.Time{}
	if operator && exists {
		n.From = now
	}
	for i := range f.Decisions {
		if o := &f.Decisions[i]; o.Open() && o.Pool == k.Pool && o.Role == k.Role {
			o.Outcome, o.Detail, o.DoneAt = state.OutcomeSuperseded, "by "+n.ID, n.At
		}
	}
	f.Targets[k] = n.To
	if c.Hold && operator {
		f.Holds[k] = true
	}
	f.Decisions = append(f.Decisions, n)
	if len(f.Decisions) > state.MaxDecisions {
		// The oldest one that is over goes; with none over, the oldest.
		i := max(0, slices.IndexFunc(f.Decisions, func(d state.Decision) bool { return !d.Open() }))
		f.Decisions = slices.Delete(f.Decisions, i, i+1)
	}
	return nil
}

func settle(f *state.Facts, c *state.Command) *state.Refusal {
	switch c.Outcome {
	case state.OutcomeDone, state.OutcomeFailed, state.OutcomeSuperseded:
	default:
		return refuse(state.RefusedInvalid, "outcome %.64q is not known here", c.Outcome)
	}
	d := f.Decision(c.Settles)
	if d == nil {
		return refuse(state.RefusedUnknown, "no decision %.64q", c.Settles)
	}
	if !d.Open() {
		if d.Outcome == c.Outcome {
			return nil
		}
		return refuse(state.RefusedSettled, "decision %.64s is %s", d.ID, d.Outcome)
	}
	d.Outcome, d.Detail, d.DoneAt = c.Outcome, c.Detail, c.At
	return nil
}

func addReplica(f *state.Facts, c *state.Command) *state.Refusal {
	r := c.Replica
	if r == nil || r.ID == "" || r.URL == "" || r.Pool == "" {
		return refuse(state.RefusedInvalid, "a replica needs an id, a pool and a URL")
	}
	if len(r.ID) > maxText || len(r.URL) > maxText || len(r.Pool) > maxText || len(r.Role) > maxText || len(r.Engine) > maxText {
		return refuse(state.RefusedInvalid, "a text is longer than %d bytes", maxText)
	}
	if _, ok := f.Replicas[r.ID]; !ok && len(f.Replicas) >= maxReplicas {
		return refuse(state.RefusedFull, "there are %d committed replicas", maxReplicas)
	}
	n := *r
	n.Source = state.SourceCommitted
	f.Replicas[n.ID] = n
	return nil
}

func drain(f *state.Facts, c *state.Command, index uint64) *state.Refusal {
	if c.Of == "" || c.Drain == nil || len(c.Drain.Reason) > maxText || len(c.Drain.By) > maxText || c.Drain.Deadline < 0 {
		return refuse(state.RefusedInvalid, "a drain needs a replica, and a deadline that is not negative")
	}
	if _, ok := f.Draining[c.Of]; !ok && len(f.Draining) >= maxDrains {
		return refuse(state.RefusedFull, "%d replicas are draining", maxDrains)
	}
	d := *c.Drain
	d.Index = index
	f.Draining[c.Of] = d
	delete(f.Undrained, c.Of)
	return nil
}

// undrain ends a drain. An operator's also ends what routers drained alone, and is
// remembered for them; a leader's, which bears its epoch, takes back its own drain.
func undrain(f *state.Facts, c *state.Command, index uint64) {
	delete(f.Draining, c.Of)
	if c.Epoch != 0 || c.Of == "" {
		return
	}
	f.Undrained[c.Of] = index
	if len(f.Undrained) <= state.MaxUndrained {
		return
	}
	oldest := c.Of
	for id, at := range f.Undrained {
		if at < f.Undrained[oldest] {
			oldest = id
		}
	}
	delete(f.Undrained, oldest)
}

func hold(f *state.Facts, k state.TargetKey) *state.Refusal {
	if k.Pool == "" || len(k.Pool) > maxText || len(k.Role) > maxText {
		return refuse(state.RefusedInvalid, "a hold needs a pool")
	}
	if !f.Holds[k] && len(f.Holds) >= maxTargets {
		return refuse(state.RefusedFull, "there are %d holds", maxTargets)
	}
	f.Holds[k] = true
	return nil
}

// setPolicy gives a pool a policy, or what its configuration says again. Which policies
// there are is the routers' to know: one that a router does not know is its default.
func setPolicy(f *state.Facts, c *state.Command) *state.Refusal {
	if c.Pool == "" || len(c.Pool) > maxText || len(c.Policy) > maxText {
		return refuse(state.RefusedInvalid, "a policy needs a pool")
	}
	if c.Policy == "" {
		delete(f.Policies, c.Pool)
		return nil
	}
	if _, ok := f.Policies[c.Pool]; !ok && len(f.Policies) >= maxPolicies {
		return refuse(state.RefusedFull, "there are %d pools with a policy", maxPolicies)
	}
	f.Policies[c.Pool] = c.Policy
	return nil
}
