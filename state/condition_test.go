package state_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestConditionOfAReplica(t *testing.T) {
	now := time.Now()
	spec := &state.PoolSpec{Name: "chat", Model: "m"}
	seen := map[state.Condition]bool{}
	f := func(name string, want state.Condition, change func(r *state.ReplicaView, w *state.Weight)) {
		t.Helper()
		r := &state.ReplicaView{Cell: &state.Cell{}, ReadingAt: now, Reading: state.Reading{OK: true}}
		w := state.Weight{Slow: 1}
		change(r, &w)
		got := r.Condition(spec, w, now)
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		seen[got] = true
	}
	down := func(r *state.ReplicaView) { r.Reading, r.DownSince = state.Reading{}, now.Add(-time.Second) }
	f("all is well", state.Ready, func(*state.ReplicaView, *state.Weight) {})
	f("new", state.SlowStart, func(_ *state.ReplicaView, w *state.Weight) { w.Slow = 0.5 })
	f("busy and new", state.Busy, func(_ *state.ReplicaView, w *state.Weight) { w.Slow, w.BusyUntil = 0.5, now.Add(time.Second) })
	f("it was busy", state.Ready, func(_ *state.ReplicaView, w *state.Weight) { w.BusyUntil = now.Add(-time.Second) })
	f("being warmed, and busy", state.Warming, func(_ *state.ReplicaView, w *state.Weight) {
		w.Warming, w.WarmFrom, w.BusyUntil = true, now.Add(-time.Second), now.Add(time.Second)
	})
	f("warmed for too long", state.Ready, func(_ *state.ReplicaView, w *state.Weight) { w.Warming, w.WarmFrom = true, now.Add(-state.MaxWarming) })
	f("failing, and may not be ejected", state.Failing, func(_ *state.ReplicaView, w *state.Weight) {
		w.Reason, w.BusyUntil = state.ReasonEjectionLimit, now.Add(time.Second)
	})
	f("failing, for nothing listens there", state.Unreachable, func(r *state.ReplicaView, w *state.Weight) {
		w.Reason = state.ReasonEjectionLimit
		down(r)
		r.Reading.Refused = true
	})
	f("ejected", state.Ejected, func(r *state.ReplicaView, w *state.Weight) {
		w.Ejected = true
		r.Reading = state.Reading{Loading: true}
	})
	f("half open", state.HalfOpen, func(r *state.ReplicaView, w *state.Weight) {
		w.Ejected, w.Trial = true, true
		r.Reading = state.Reading{Answered: true}
	})
	f("ejected, for nothing answers", state.Unreachable, func(r *state.ReplicaView, w *state.Weight) { w.Ejected = true; down(r) })
	f("half open, and nothing answers", state.Unreachable, func(r *state.ReplicaView, w *state.Weight) { w.Ejected, w.Trial = true, true; down(r) })
	f("draining", state.Draining, func(r *state.ReplicaView, w *state.Weight) { r.Draining, w.Ejected = true, true; down(r) })
	f("never read", state.Unread, func(r *state.ReplicaView, _ *state.Weight) { r.Reading, r.ReadingAt = state.Reading{}, time.Time{} })
	f("read long ago", state.Unread, func(r *state.ReplicaView, _ *state.Weight) { r.ReadingAt = now.Add(-time.Minute) })
	f("loading", state.Loading, func(r *state.ReplicaView, _ *state.Weight) { r.Reading = state.Reading{Loading: true} })
	f("silent", state.Unreachable, func(r *state.ReplicaView, _ *state.Weight) { down(r) })
	f("known of old and silent", state.Unreachable, func(r *state.ReplicaView, _ *state.Weight) { down(r); r.Reading.Kind = state.EngineVLLM })
	f("it answers nonsense", state.Unreadable, func(r *state.ReplicaView, _ *state.Weight) { r.Reading = state.Reading{Answered: true} })
	f("another model", state.WrongModel, func(r *state.ReplicaView, _ *state.Weight) { r.Reading.WrongModel = "m" })
	f("not of a name that is no more", state.Ready, func(r *state.ReplicaView, _ *state.Weight) { r.Reading.WrongModel = "old" })
	for _, c := range state.Conditions() {
		if !seen[c] || c.Meaning() == "" {
			t.Errorf("%q: not tried, or without a meaning", c)
		}
	}
	if len(seen) != len(state.Conditions()) || slices.Contains(state.Conditions(), "") {
		t.Errorf("conditions that are not listed: %v", seen)
	}
}

// A replica whose metrics hang while it serves is not away.
func TestServingReplicaIsNotUnreachable(t *testing.T) {
	now := time.Now()
	s := state.NewStore(state.Config{
		Self: "self", Clock: state.NewClock(1, now), Now: func() time.Time { return now },
		Pools: []state.PoolSpec{{Name: "chat", Model: "m"}},
	})
	s.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "a"}})
	is := func(want state.Condition, refused bool) {
		t.Helper()
		now = now.Add(time.Second)
		r := state.UnknownReading("a")
		r.Refused, r.At = refused, s.Clock().Stamp(now)
		s.ApplyReading(r)
		v := s.View()
		if got := v.Replica("a").Condition(&v.Pools[0].Spec, v.Weights.Of("a"), now); got != want {
			t.Errorf("condition %s, want %s", got, want)
		}
	}
	is(state.Unreachable, false)
	ticket := s.Begin(s.View().Replica("a"), 1)
	is(state.Unreachable, false)
	ticket.FirstToken()
	is(state.Unreadable, false)
	is(state.Unreachable, true)
}
