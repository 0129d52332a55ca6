package autoscale

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// round is one reconciliation of one target.
type round struct {
	l      *Loop
	key    state.TargetKey
	mem    *memory
	now    time.Time
	view   *state.View
	pool   *state.PoolView
	last   *state.Decision // the newest about the target
	want   int             // replicas the actuator should have
	others int             // listed replicas that are not the actuator's
	away   int             // of those, who answer no reading: none of the actuator's goes for one
	act    state.Actual
}

// reconcile takes one step from what there is to what the facts want. It reads
// nothing but the facts, the view and the actuator, so it does not matter which
// leader took the step before.
func (l *Loop) reconcile(ctx context.Context, k state.TargetKey, m *memory, now time.Time) (state.Actual, error) {
	r := &round{l: l, key: k, mem: m, now: now}
	r.look()
	if r.pool == nil {
		return state.Actual{}, nil
	}
	a := l.cfg.Actuators[r.pool.Spec.ScaleActuator]
	if a == nil {
		return state.Actual{}, fmt.Errorf("no actuator %q", r.pool.Spec.ScaleActuator)
	}
	var err error
	if r.act, err = a.List(ctx, k); err != nil {
		return r.act, r.hindered(ctx, fmt.Errorf("list replicas: %w", err))
	}
	target, known := r.view.Facts.Targets[k]
	if !known || r.last == nil {
		return r.act, nil // nothing was ever decided: hands off
	}
	if err := r.doubt(); err != nil {
		return r.act, r.hindered(ctx, err)
	}
	decision := r.last.ID
	if err := r.split(target); err != nil {
		return r.act, err
	}
	if err := r.chooseDrains(ctx); err != nil {
		return r.act, err
	}
	if r.look(); !r.stillCarriesOut(decision) {
		return r.act, nil
	}
	d := state.Desired{
		Epoch: l.epoch, Decision: r.last.Index, ID: r.last.ID, Target: k, Pool: r.pool.Spec, Cluster: r.view.Facts.ClusterID,
		Want: r.want, Remove: r.removable(), Grace: l.cfg.StopGrace,
	}
	if r.last.Open() {
		d.Deadline = r.last.Seen.Add(r.deadline(r.last))
	}
	if r.act, err = a.Ensure(ctx, d); err != nil {
		return r.act, r.hindered(ctx, fmt.Errorf("reach the target: %w", err))
	}
	if err := r.doubt(); err != nil {
		return r.act, r.hindered(ctx, err)
	}
	r.noteMended()
	if err := r.record(ctx); err != nil {
		return r.act, err
	}
	if r.look(); !r.stillCarriesOut(decision) {
		return r.act, nil
	}
	return r.act, r.conclude(ctx, target)
}

// stillCarriesOut reports whether the newest view still wants what this round set
// out to do. A decision that came meanwhile is the next round's: the numbers here
// say nothing of it.
func (r *round) stillCarriesOut(decision string) bool {
	return r.pool != nil && r.last != nil && r.last.ID == decision
}

// look takes the newest view.
func (r *round) look() {
	r.view = r.l.cfg.Cluster.View()
	r.pool = poolOf(r.view, r.key.Pool)
	r.last = r.view.Facts.LastDecision(r.key)
}

// split divides a target between the actuator and the replicas that exist without
// it: listed in files, discovered, or added by an operator.
func (r *round) split(target int) error {
	r.others, r.away = 0, 0
	for _, x := range replicasOf(r.pool, r.key) {
		if r.isPart(x.ID) {
			return fmt.Errorf("%s is one of several replicas of an instance: such a pool can't be scaled by the %s actuator", x.ID, r.pool.Spec.ScaleActuator)
		}
		if r.ours(x) || r.drainedByUs(x.ID) {
			continue
		}
		r.others++
		if c := x.Sensed(&r.pool.Spec, r.now); c == state.Unreachable || c == state.Unread {
			r.away++
		}
	}
	r.want = max(0, target-r.others)
	return nil
}

func (r *round) owns(id state.ReplicaID) bool {
	return slices.ContainsFunc(r.act.Instances, func(i state.Instance) bool { return i.Replica.ID == id })
}

// drainedByUs reports whether a replica drains because a decision about this
// target wants it to go.
func (r *round) drainedByUs(id state.ReplicaID) bool {
	d, ok := r.view.Facts.Draining[id]
	if !ok {
		return false
	}
	x := r.view.Facts.Decision(d.By)
	return x != nil && x.Pool == r.key.Pool && x.Role == r.key.Role
}

// kept and leaving divide the actuator's running replicas.
func (r *round) kept() (kept, leaving []state.Instance) {
	for _, i := range r.act.Instances {
		switch {
		case i.Stopping:
		case r.drainedByUs(i.Replica.ID):
			leaving = append(leaving, i)
		default:
			kept = append(kept, i)
		}
	}
	return kept, leaving
}

// chooseDrains commits which of the actuator's replicas leave, or stay after all.
func (r *round) chooseDrains(ctx context.Context) error {
	kept, leaving := r.kept()
	all := len(kept) + len(leaving)
	slices.SortStableFunc(leaving, func(a, b state.Instance) int { return cmp.Compare(b.Turn, a.Turn) })
	for n, i := range leaving {
		if len(kept) >= r.want && !outOfTurn(i, n, kept) {
			break
		}
		c := state.Command{Kind: state.CommandUndrain, Epoch: r.l.epoch, Of: i.Replica.ID}
		if err := r.l.cfg.Committer.Commit(ctx, c); err != nil {
			return fmt.Errorf("keep %s: %w", i.Replica.ID, err)
		}
		kept = append(kept, i)
	}
	surplus := r.spare(len(kept)-r.want-r.away, all-len(kept))
	if surplus <= 0 {
		return nil
	}
	for _, id := range r.l.victims(r.view, state.Actual{Instances: kept}, r.last.Victims, r.leavingIDs(), surplus) {
		c := state.Command{Kind: state.CommandDrain, Epoch: r.l.epoch, Of: id, Drain: &state.Drain{
			Reason: "scale down", By: r.last.ID, Deadline: r.pool.Spec.DrainDeadline,
		}}
		if err := r.l.cfg.Committer.Commit(ctx, c); err != nil {
			return fmt.Errorf("drain %s: %w", id, err)
		}
	}
	return nil
}

// removable lists the replicas that may be stopped now: drained everywhere, or out
// of time; and those that are being stopped.
func (r *round) removable() (ids []state.ReplicaID) {
	_, leaving := r.kept()
	for _, i := range r.act.Instances {
		if i.Stopping && r.drainedByUs(i.Replica.ID) {
			ids = append(ids, i.Replica.ID)
		}
	}
	for _, i := range leaving {
		id := i.Replica.ID
		d := r.view.Facts.Draining[id]
		seen := r.drainSeen(id, d)
		deadline := cmp.Or(d.Deadline, r.pool.Spec.DrainDeadline)
		var quiet time.Duration
		t := r.mem.quietSince[id]
		since(&t, r.l.drained(r.view, id, d), r.now, &quiet)
		r.mem.quietSince[id] = t
		switch {
		case !t.IsZero() && quiet >= r.l.cfg.Quiet:
			ids = append(ids, id)
		case r.now.Sub(seen) >= deadline:
			r.l.log.Warn().Str("pool", r.key.Pool).Str("replica", string(id)).Msg("not drained in time: removed all the same")
			ids = append(ids, id)
		}
	}
	return ids
}

// drainSeen is since when the drain is known here: its decision's commit if this
// router saw that, else when this leader first looked.
func (r *round) drainSeen(id state.ReplicaID, d state.Drain) time.Time {
	t, ok := r.mem.drainSeen[id]
	if !ok {
		t = r.now
		// A decision that is being carried out drains at once, so its age is the
		// drain's, and a new leader need not wait anew.
		if x := r.view.Facts.Decision(d.By); x != nil && x.Open() && slices.Contains(x.Victims, id) && !x.Seen.IsZero() {
			t = x.Seen
		}
		r.mem.drainSeen[id] = t
	}
	return t
}

// drained reports whether every live router has acknowledged the drain and has
// nothing running there, and the engine, where it was read, neither. A router that
// is live but silent has not acknowledged: its vanished row is not zero.
func (l *Loop) drained(v *state.View, id state.ReplicaID, d state.Drain) bool {
	if v.Facts.Index < d.Index {
		return false
	}
	for _, x := range l.cfg.Cluster.Live() {
		if x == v.Self {
			continue
		}
		r := router(v, x)
		if r == nil || r.FactsIndex < d.Index || r.InFlight(id) != 0 {
			return false
		}
	}
	rv := v.Replica(id)
	if rv == nil {
		return true
	}
	return rv.Cell.Load().InFlight == 0 && (!rv.Fresh(v.At) || rv.Reading.Running <= 0)
}

// record commits what has become of the actuator's replicas: started ones are
// added for all routers, stopped ones removed.
func (r *round) record(ctx context.Context) error {
	r.look()
	for _, i := range r.act.Instances {
		if r.known(i.Replica.ID) || r.act.Discovered || !i.Ready || i.Stopping || r.drainedByUs(i.Replica.ID) {
			continue
		}
		x := i.Replica
		c := state.Command{Kind: state.CommandAddReplica, Epoch: r.l.epoch, Replica: &x}
		if err := r.l.cfg.Committer.Commit(ctx, c); err != nil {
			return fmt.Errorf("add %s: %w", x.ID, err)
		}
	}
	for _, id := range r.gone() {
		c := state.Command{Kind: state.CommandRemoveReplica, Epoch: r.l.epoch, Of: id}
		if err := r.l.cfg.Committer.Commit(ctx, c); err != nil {
			return fmt.Errorf("remove %s: %w", id, err)
		}
		delete(r.mem.quietSince, id)
		delete(r.mem.drainSeen, id)
	}
	return nil
}
