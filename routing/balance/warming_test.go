package balance_test

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// holding says which replicas hold which marks.
type holding struct {
	store *state.Store
	marks map[state.ReplicaID]map[uint64]bool
}

func (h *holding) Lookup(dst []sketch.Match, marks []prefix.Mark, slots []state.Slot, _ time.Time) {
	for _, p := range h.store.View().Pools {
		for _, r := range p.Replicas {
			for i, s := range slots {
				if s == r.Slot && h.marks[r.ID][marks[0].Hash] {
					dst[i].Live = 1
				}
			}
		}
	}
}

// warmWorld is a pool of two that prewarms, with two hot prefixes that r0 holds, and a
// third replica that has just joined and is ready.
func warmWorld(t *testing.T, prefixes int) (w *world, h *holding, hot []state.HotPrefix) {
	w = newWorld(t, 2, func(s *state.PoolSpec) { s.Prewarm = prefixes })
	h = &holding{w.store, map[state.ReplicaID]map[uint64]bool{}}
	w.sketch(h)
	w.read(0, func(r *state.Reading) {})
	w.read(1, func(r *state.Reading) {})
	w.step(10 * time.Second)
	for i := range uint64(100) {
		w.loop.Picked(prompt(1+i%2, 100+i, 512, 600, 0))
	}
	w.step(time.Second)
	if hot = w.pool().Hot; len(hot) != 2 || len(w.pool().Prewarm) != min(2, prefixes) {
		t.Fatalf("hot: %+v, to warm with: %+v", hot, w.pool().Prewarm)
	}
	w.list(3)
	w.step(0)
	w.read(2, func(r *state.Reading) {})
	w.step(0)
	return w, h, hot
}

func (w *world) warms(i int) bool {
	x := w.weight(i)
	return x.Warms(w.now)
}

// goOn steps for so long and keeps readings fresh.
func (w *world) goOn(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.step(250 * time.Millisecond)
		for i := range 3 {
			w.read(i, func(r *state.Reading) {})
		}
	}
	w.step(0)
}

func (h *holding) hold(i int, mark uint64) {
	if h.marks[id(i)] == nil {
		h.marks[id(i)] = map[uint64]bool{}
	}
	h.marks[id(i)][mark] = true
}

func TestWarmingEndsWhenAllIsHeld(t *testing.T) {
	w, h, hot := warmWorld(t, 4)
	if w.warms(0) || w.warms(1) || !w.warms(2) {
		t.Fatalf("warming: %v %v %v, want the third alone", w.warms(0), w.warms(1), w.warms(2))
	}
	if c := w.store.View().Replica(id(2)).Condition(&state.PoolSpec{}, w.weight(2), w.now); c != state.Warming {
		t.Errorf("its condition is %s", c)
	}
	w.others(2, 0)
	h.hold(2, hot[0].Mark)
	w.goOn(500 * time.Millisecond)
	if !w.warms(2) {
		t.Error("it ended with one of two prefixes")
	}
	h.hold(2, hot[1].Mark)
	w.step(250 * time.Millisecond)
	if w.warms(2) {
		t.Error("it goes on though all is held")
	}
	if s := w.weight(2).Slow; s > 0.11 {
		t.Errorf("it then starts at %.2f of its weight", s)
	}
	w.goOn(time.Minute)
	if w.warms(2) {
		t.Error("it is warmed again")
	}
}

// Whatever becomes of it, a replica is passed over for a time only.
func TestWarmingIsBounded(t *testing.T) {
	f := func(name string, least, most time.Duration, change func(w *world, h *holding, hot []state.HotPrefix, at time.Duration)) {
		t.Run(name, func(t *testing.T) {
			w, h, hot := warmWorld(t, 4)
			at := time.Duration(0)
			for ; w.warms(2) && at < time.Minute; at += 500 * time.Millisecond {
				change(w, h, hot, at)
				w.goOn(500 * time.Millisecond)
			}
			if at < least || at > most {
				t.Errorf("it took %v, want %v to %v", at, least, most)
			}
		})
	}
	running := func(w *world) {
		w.seq++
		w.store.ApplyRows(state.Rows{Router: "b", Boot: 2, Seq: w.seq, Rows: []state.Row{{Replica: id(2), Load: state.Load{InFlight: 1, Prefill: 1}}}})
	}
	f("nobody sends anything", 2*time.Second, 4*time.Second, func(*world, *holding, []state.HotPrefix, time.Duration) {})
	f("it hangs", 9*time.Second, 11*time.Second, func(w *world, _ *holding, _ []state.HotPrefix, _ time.Duration) { running(w) })
	f("it hangs at the second", 13*time.Second, 16*time.Second, func(w *world, h *holding, hot []state.HotPrefix, at time.Duration) {
		if running(w); at >= 5*time.Second {
			h.hold(2, hot[0].Mark)
		}
	})
	f("the sender gives up", time.Second, 2*time.Second, func(w *world, h *holding, hot []state.HotPrefix, _ time.Duration) { h.hold(2, hot[0].Mark) })
}

func TestWhoIsWarmed(t *testing.T) {
	w, h, hot := warmWorld(t, 4)
	w.goOn(10 * time.Second)
	again := func(what string, want bool, change func(r *state.Reading)) {
		t.Helper()
		for i := range uint64(100) {
			w.loop.Picked(prompt(1+i%2, 1000+i, 512, 600, 0))
		}
		w.step(250 * time.Millisecond)
		w.read(1, change)
		w.step(250 * time.Millisecond)
		w.read(1, func(r *state.Reading) { r.Started = 2 })
		w.step(250 * time.Millisecond)
		if w.warms(1) != want {
			t.Errorf("%s: warming is %v", what, !want)
		}
		w.goOn(10 * time.Second)
	}
	again("nothing happened", false, func(r *state.Reading) { r.Started = 2 })
	again("refused", true, func(r *state.Reading) { r.OK, r.Refused = false, true })
	again("loading", true, func(r *state.Reading) { r.OK, r.Loading = false, true })
	again("another process", true, func(r *state.Reading) { r.Started = 1 })
	h.hold(1, hot[1].Mark)
	again("refused, and its cache is not empty", false, func(r *state.Reading) { r.OK, r.Refused = false, true })

	w, _, _ = warmWorld(t, 0)
	if w.warms(2) {
		t.Error("warming in a pool that does not prewarm")
	}
}
