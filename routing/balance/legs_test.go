package balance_test

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Replicas of one role don't stand in for those of another: how many may be ejected is
// counted in each, and so is how uneven their queues are.
func TestShareOfEjectedInEachRole(t *testing.T) {
	w := newWorld(t, 0)
	var list []state.Replica
	for i, r := range []state.Role{state.RolePrefill, state.RolePrefill, state.RolePrefill, state.RoleDecode} {
		list = append(list, state.Replica{ID: id(i), Role: r})
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
	w.step(time.Second)
	for i := range list {
		w.report(i, failed, failed, failed)
	}
	w.step(0)
	ejected := 0
	for i := range 3 {
		if w.phase(i) == "ejected" {
			ejected++
		}
	}
	if ejected != 1 || w.phase(3) == "ejected" {
		t.Errorf("%d of 3 that prefill, and the one that decodes: %s", ejected, w.phase(3))
	}
}

func TestSkewWithinARole(t *testing.T) {
	w := newWorld(t, 0)
	var list []state.Replica
	for i, r := range []state.Role{state.RolePrefill, state.RolePrefill, state.RoleDecode, state.RoleDecode} {
		list = append(list, state.Replica{ID: id(i), Role: r})
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
	v := w.store.View()
	for i := range 2 {
		w.store.Begin(v.Replica(id(i)), 5000)
	}
	for i := 2; i < 4; i++ {
		w.store.Begin(v.Replica(id(i)), 0)
	}
	for range 100 {
		w.step(time.Second)
	}
	if s := w.pool().Skew; s < 0.99 || s > 1.01 {
		t.Errorf("prefill queues are even, decode has none: skew %v", s)
	}
}
