package routing_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// bounded changes the world's pool.
func (w *world) bounded(change func(s *state.PoolSpec)) {
	spec := w.store.View().Pools[0].Spec
	change(&spec)
	w.store.SetPools([]state.PoolSpec{spec, {Name: "empty"}})
}

// tried makes a pick that may fail.
func (w *world) tried(anyway bool) (*routing.Choice, error) {
	c := &routing.Choice{}
	v := w.store.View()
	return c, w.pick.Pick(c, &routing.Request{Pool: v.Pools[0], PromptTokens: 500, Anyway: anyway}, v, w.now)
}

// What is saturated is passed over while another is not; when all are, only a request
// that has waited goes there.
func TestSaturated(t *testing.T) {
	f := func(name string, n int, change func(s *state.PoolSpec), fill func(w *world, i int)) {
		t.Helper()
		w := newWorld(t, n, "")
		w.bounded(change)
		for i := range n - 1 {
			fill(w, i)
		}
		for range 20 {
			c, err := w.tried(false)
			if err != nil || c.Replica.ID != id(n-1) {
				t.Fatalf("%s: picked %v, %v", name, c.Replica, err)
			}
			if x := c.Candidates[0].Excluded; x != routing.ExcludedSaturated {
				t.Fatalf("%s: the first is excluded as %q", name, x)
			}
		}
		fill(w, n-1)
		_, err := w.tried(false)
		var e *routing.PickError
		if !errors.Is(err, routing.ErrSaturated) || !errors.As(err, &e) || e.RetryAfter < time.Second || e.RetryAfter > time.Minute || e.Wait <= 0 || e.Count(routing.ExcludedSaturated) != n {
			t.Fatalf("%s: all are, and the pick says %+v", name, err)
		}
		c, err := w.tried(true)
		if err != nil || c.Candidates[c.Chosen].Despite != routing.ExcludedSaturated || c.Limit != 0 {
			t.Fatalf("%s: it can't go anyway: %v", name, err)
		}
	}
	cap4 := func(s *state.PoolSpec) { s.MaxInFlight = 4 }
	f("own requests", 2, cap4, func(w *world, i int) {
		for range 4 {
			w.store.Begin(w.replica(i), 0)
		}
	})
	f("others' requests", 2, cap4, func(w *world, i int) { w.load(i, state.Load{InFlight: 4}) })
	f("requests of nobody known", 2, cap4, func(w *world, i int) {
		w.read(i, func(r *state.Reading) { r.Running, r.Waiting = 3, 1 })
	})
	f("slots of llama.cpp", 2, func(*state.PoolSpec) {}, func(w *world, i int) {
		w.read(i, func(r *state.Reading) { r.Kind, r.Slots, r.Running, r.Waiting = state.EngineLlamaCpp, 2, 2, 0 })
	})
	f("a long queue", 2, func(s *state.PoolSpec) { s.QueueWait = 5 * time.Second }, func(w *world, i int) {
		w.load(i, state.Load{InFlight: 9, Prefill: 9, UncachedTokens: 60_000})
	})
	f("no KV space", 2, func(*state.PoolSpec) {}, func(w *world, i int) {
		w.read(i, func(r *state.Reading) { r.Running, r.Waiting, r.KVUsage, r.Capacity = 8, 2, 0.97, 100_000 })
	})
}

// What is none of it is not saturated.
func TestNotSaturated(t *testing.T) {
	f := func(name string, change func(s *state.PoolSpec), fill func(w *world)) {
		t.Helper()
		w := newWorld(t, 1, "")
		w.bounded(change)
		fill(w)
		if _, err := w.tried(false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := func(w *world) {
		w.load(0, state.Load{InFlight: 500})
		w.read(0, func(r *state.Reading) { r.Kind, r.Slots, r.Running = state.EngineLlamaCpp, 2, 500 })
	}
	f("any number", func(s *state.PoolSpec) { s.MaxInFlight = -1 }, many)
	f("full KV and nobody waits", func(*state.PoolSpec) {}, func(w *world) {
		w.read(0, func(r *state.Reading) { r.Running, r.Waiting, r.KVUsage, r.Capacity = 8, 0, 0.97, 100_000 })
	})
	f("an old reading", func(*state.PoolSpec) {}, func(w *world) {
		w.read(0, func(r *state.Reading) { r.Running, r.Waiting, r.KVUsage, r.Capacity = 8, 4, 0.97, 100_000 })
		w.now = w.now.Add(state.ReadingUseful)
	})
	f("a queue that a request may wait in", func(s *state.PoolSpec) { s.QueueWait = 5 * time.Second }, func(w *world) {
		w.load(0, state.Load{InFlight: 4, Prefill: 4, UncachedTokens: 30_000})
	})
	f("one of four places", func(s *state.PoolSpec) { s.MaxInFlight = 4 }, func(w *world) { w.load(0, state.Load{InFlight: 1}) })
}

// A pick says how many of this router's requests the replica may have.
func TestLimitOfAPick(t *testing.T) {
	w := newWorld(t, 1, "")
	w.bounded(func(s *state.PoolSpec) { s.MaxInFlight = 8 })
	limit := func() int64 {
		c, err := w.tried(false)
		if err != nil {
			t.Fatal(err)
		}
		return c.Limit
	}
	if n := limit(); n != 8 {
		t.Errorf("alone %d of 8", n)
	}
	w.load(0, state.Load{})
	if n := limit(); n != 4 {
		t.Errorf("one of two %d of 8", n)
	}
	w.load(0, state.Load{InFlight: 6}) // 8 x 1/8
	if n := limit(); n != 1 {
		t.Errorf("beside six others %d of 8", n)
	}
}
