package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

// Commit edits the committed facts, which all routers follow at once. It is the
// loop's Committer.
func (h *hearsay) Commit(_ context.Context, c state.Command) error {
	f := h.facts.Clone()
	f.Index++
	if c.Epoch != f.Epoch {
		return &state.Refusal{Code: state.RefusedStaleEpoch}
	}
	switch c.Kind {
	case state.CommandSetTarget:
		if err := h.decide(f, *c.Decision); err != nil {
			return err
		}
	case state.CommandSettle:
		d := f.Decision(c.Settles)
		d.Outcome, d.Detail, d.DoneAt = c.Outcome, c.Detail, c.At
	case state.CommandAddReplica:
		f.Replicas[c.Replica.ID] = *c.Replica
		if r := h.byID(c.Replica.ID); r != nil {
			r.listed = true
		}
	case state.CommandRemoveReplica:
		delete(f.Replicas, c.Of)
		delete(f.Draining, c.Of)
	case state.CommandDrain:
		d := *c.Drain
		d.Index = f.Index
		f.Draining[c.Of] = d
		h.drain(c.Of, true)
	case state.CommandUndrain:
		delete(f.Draining, c.Of)
		h.drain(c.Of, false)
	default:
		return fmt.Errorf("unexpected command %s", c.Kind)
	}
	h.facts = f
	h.store.SetFacts(f)
	return nil
}

// decide applies a new target as the state machine does.
func (h *hearsay) decide(f *state.Facts, d state.Decision) error {
	if last := f.LastDecision(target); last != nil && last.Open() {
		return &state.Refusal{Code: state.RefusedOverlap}
	}
	if f.Targets[target] != d.From {
		return &state.Refusal{Code: state.RefusedChanged}
	}
	d.Index, d.Seen = f.Index, h.clock
	f.Targets[target] = d.To
	f.Decisions = append(f.Decisions, d)
	if over := len(f.Decisions) - state.MaxDecisions; over > 0 {
		f.Decisions = slices.Delete(f.Decisions, 0, over)
	}
	h.pool.want(d.To)
	return nil
}

func (h *hearsay) drain(id state.ReplicaID, on bool) {
	if r := h.byID(id); r != nil {
		r.draining, r.since = on, h.pool.now
	}
}

// List says what there is. With Ensure it is the loop's Actuator.
func (h *hearsay) List(context.Context, state.TargetKey) (a state.Actual, err error) {
	a.Prefix = idPrefix
	for _, r := range h.pool.list {
		a.Instances = append(a.Instances, state.Instance{Replica: h.card(r), Ready: h.pool.up(r) && !r.unready})
	}
	slices.SortFunc(a.Instances, func(x, y state.Instance) int { return compareIDs(x.Replica.ID, y.Replica.ID) })
	return a, nil
}

// Ensure stops and starts at once.
func (h *hearsay) Ensure(ctx context.Context, d state.Desired) (state.Actual, error) {
	if d.Epoch < h.fence[0] || d.Decision < h.fence[1] {
		return state.Actual{}, state.ErrFenced
	}
	h.fence = [2]uint64{d.Epoch, d.Decision}
	for _, id := range d.Remove {
		if r := h.byID(id); r != nil {
			h.pool.stop(r)
		}
	}
	for have := len(h.pool.list); have < d.Want; have++ {
		h.pool.launch()
	}
	return h.List(ctx, d.Target)
}

func compareIDs(a, b state.ReplicaID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
