package routing_test

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

func TestWarmPoliciesChoose(t *testing.T) {
	f := func(policy, name string, want int, reason string, setUp func(*world)) {
		t.Helper()
		w := newWorld(t, 3, policy)
		setUp(w)
		if got := w.picks(20, w.prompt(4096)); got[id(want)] != 20 {
			t.Errorf("%s, %s: picks %v, want all at r%d", policy, name, got, want)
		}
		if c := w.one(w.prompt(4096)); c.Reason != reason {
			t.Errorf("%s, %s: reason %s, want %s", policy, name, c.Reason, reason)
		}
	}
	queue := func(n int64) state.Load { return state.Load{InFlight: n, Prefill: n, UncachedTokens: 1000 * n} }
	for _, policy := range []string{routing.Hybrid, routing.CacheAware, routing.Product} {
		f(policy, "the holder, when all are idle", 1, routing.ReasonWarm, func(w *world) { w.hold(1, 3072) })
		f(policy, "the less loaded of two holders", 2, routing.ReasonWarm, func(w *world) {
			w.hold(1, 3072)
			w.hold(2, 3072)
			w.load(1, queue(2))
		})
		passed := routing.ReasonWarm
		if policy == routing.Product { // it says that there was a deeper one
			passed = routing.ReasonSpill
		}
		f(policy, "not a holder that backs off", 2, passed, func(w *world) {
			w.hold(1, 3840)
			w.hold(2, 3072)
			w.weigh(map[int]state.Weight{1: {Slow: 1, BusyUntil: w.now.Add(time.Minute)}}, false)
		})
	}
	f(routing.Hybrid, "the holder, while its queue is short", 1, routing.ReasonWarm, func(w *world) { w.hold(1, 3072); w.load(1, queue(8)) })
	f(routing.Hybrid, "another once it is long", 2, routing.ReasonSpill, func(w *world) {
		w.hold(1, 3072)
		w.load(1, queue(20))
		w.load(0, queue(2))
	})
	f(routing.CacheAware, "the holder of little is passed over", 2, routing.ReasonLoad, func(w *world) {
		w.hold(1, 1024)
		w.load(0, queue(1))
		w.load(1, queue(1))
	})
	f(routing.CacheAware, "the holder, though it has more to do", 1, routing.ReasonWarm, func(w *world) { w.hold(1, 3072); w.load(1, queue(60)) })
	f(routing.CacheAware, "load alone when that is out of balance", 2, routing.ReasonLoad, func(w *world) {
		w.hold(1, 3072)
		w.load(1, queue(70))
		w.load(0, queue(1))
	})
	f(routing.Product, "the idle one rather than a holder with much to do", 2, routing.ReasonSpill, func(w *world) {
		w.hold(1, 3072)
		w.load(1, queue(6))
		w.load(0, queue(1))
	})
}
