package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	podA = "01234567-89ab-cdef-0123-456789abcdef"
	podB = "11234567-89ab-cdef-0123-456789abcdef:8001"
)

// A drain goes with its Pod, after some time in which nothing was wrong; one of an
// address stays, since it may be given again.
func TestDrainsOfPodsThatAreGone(t *testing.T) {
	n := newReloading(t, PoolConfig{Name: "chat", Model: "chat"})
	list := func(ids ...state.ReplicaID) {
		var all []state.Replica
		for i, id := range ids {
			all = append(all, state.Replica{ID: id, Pool: "chat", URL: "http://10.0.0.1:" + string(rune('1'+i)), Role: state.RoleBoth})
		}
		n.store.SetReplicas(state.SourceDiscovery, "chat", all)
	}
	facts := state.NewFacts()
	facts.Index = 1
	for _, id := range []state.ReplicaID{podA, podB, "10.0.0.9:8000", "gpu-7"} {
		facts.Draining[id] = state.Drain{Index: 1, By: state.ByOperator}
	}
	n.store.SetFacts(facts)
	list(podA, podB)
	now := time.Now()
	var g goneDrains
	step := func(after time.Duration, sound bool, want ...state.ReplicaID) {
		t.Helper()
		now = now.Add(after)
		if got := g.step(n.store.View(), sound, now); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	step(0, true)
	step(time.Hour, true)
	list(podB)
	step(0, true)
	step(goneGrace-time.Second, true)
	step(time.Second, true, podA)
	step(time.Second, false) // discovery fails: the time starts again
	step(time.Second, true)
	list(podA)
	step(0, true)
	step(goneGrace-time.Second, true)
	step(time.Second, true, podB)
	list(podA, podB)
	step(goneGrace, true)
}

// The leader commits it, once, and no more when its term is over.
func TestLeaderForgetsDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{discover: newDiscoveries(nil)}
		n.store = state.NewStore(state.Config{Self: "r1", Clock: state.NewClock(1, time.Now())})
		facts := state.NewFacts()
		facts.Index, facts.Draining[podA] = 1, state.Drain{Index: 1}
		n.store.SetFacts(facts)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var applied []state.Command // guarded by mu
		fails := true               // guarded by mu
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.forgetDrains(ctx, 7, func(_ context.Context, c state.Command) error {
				mu.Lock()
				defer mu.Unlock()
				if applied = append(applied, c); fails {
					return errors.New("no leader")
				}
				n.store.SetFacts(&state.Facts{Index: 2})
				return nil
			})
		}()
		after := func(d time.Duration) []state.Command {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(applied)
		}
		if list := after(goneGrace - time.Second); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		tries := len(after(2 * goneEvery))
		mu.Lock()
		fails = false
		mu.Unlock()
		all := after(time.Hour)
		if tries == 0 || len(all) != tries+1 || all[tries].Kind != state.CommandUndrain || all[tries].Of != podA || all[tries].Epoch != 7 {
			t.Errorf("%d tries, then %+v", tries, all)
		}
		cancel()
		<-done
	})
}
