package autoscale

import (
	"math"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// A replica carries 10 requests, prefills 10,000 tokens/s, 20,000 of them within the
// objective, and gives 1,000 tokens/s from 100,000 tokens of KV.
func TestNeedByHand(t *testing.T) {
	f := func(name string, role state.Role, want float64, by resource, set func(o *Observation)) {
		t.Helper()
		o := &Observation{Key: state.TargetKey{Pool: "chat", Role: role}, Target: 2, StartUp: 10 * time.Second, Capacity: Capacity{10, 20000, 10000, 1000, 100000}}
		set(o)
		n := needOf(o, 0.8)
		if math.Abs(n.replicas-want) > 1e-9 || want > 0 && n.by != by {
			t.Errorf("%s: %.4f by %s, want %.4f by %s", name, n.replicas, resourceNames[n.by], want, resourceNames[by])
		}
	}
	f("nothing", state.RoleBoth, 0, 0, func(*Observation) {})
	f("requests: (12+4)/10/0.8", state.RoleBoth, 2, byRequests, func(o *Observation) { o.InFlight, o.Queued = 12, 4 })
	f("requests that wait inside do not count: (32-20)/10/0.8", state.RoleBoth, 1.5, byRequests, func(o *Observation) { o.InFlight, o.Inside = 32, 20 })
	f("prefill: 20000/10000/0.8", state.RoleBoth, 2.5, byPrefill, func(o *Observation) { o.PrefillRate, o.InFlight = 20000, 12 })
	f("output: 3200/1000/0.8", state.RoleBoth, 4, byOutput, func(o *Observation) { o.OutputRate = 3200 })
	f("both take of the same steps: (10000/10000+500/1000)/0.8", state.RoleBoth, 1.875, byPrefill, func(o *Observation) { o.PrefillRate, o.OutputRate = 10000, 500 })
	f("more of output: (2000/10000+800/1000)/0.8", state.RoleBoth, 1.25, byOutput, func(o *Observation) { o.PrefillRate, o.OutputRate = 2000, 800 })
	f("kv: 120000/100000/0.8", state.RoleBoth, 1.5, byKV, func(o *Observation) { o.KVTokens = 120000 })
	f("a replica that prefills gives no output", state.RolePrefill, 0, 0, func(o *Observation) { o.OutputRate = 3200 })
	f("one that decodes does not prefill", state.RoleDecode, 0, 0, func(o *Observation) { o.PrefillRate = 20000 })
	f("what waits fits into the room: 1 + 20000/10000/10 < 1.25", state.RoleBoth, 1.25, byPrefill, func(o *Observation) { o.PrefillRate, o.PrefillTokens = 10000, 20000 })
	f("what waits needs more: 1 + 150000/10000/10", state.RoleBoth, 2.5, byPrefill, func(o *Observation) { o.PrefillRate, o.PrefillTokens = 10000, 150000 })
	f("a rate that is unknown: 50000/20000", state.RoleBoth, 2.5, byPrefill, func(o *Observation) { o.PrefillTokens, o.Capacity.PrefillRate = 50000, 0 })
	f("what is foreseen counts", state.RoleBoth, 3, byPrefill, func(o *Observation) { o.PrefillRate, o.Ahead.PrefillRate = 10000, 24000 })
	f("what is foreseen takes nothing away", state.RoleBoth, 1.25, byPrefill, func(o *Observation) { o.PrefillRate, o.Ahead.PrefillRate = 10000, 2000 })
	f("corrected: 1.25 * 1.2", state.RoleBoth, 1.5, byPrefill, func(o *Observation) { o.PrefillRate, o.Correction = 10000, 0.2 })
	f("unknown capacity does not count", state.RoleBoth, 0, 0, func(o *Observation) { o.PrefillRate, o.Capacity.PrefillRate = 10000, 0 })
	f("an empty pool's backlog does not count", state.RoleBoth, 0.5, byRequests, func(o *Observation) { o.Target, o.Queued, o.PrefillTokens = 0, 4, 90000 })
}

func TestOutlasts(t *testing.T) {
	f := func(name string, want bool, set func(o *Observation)) {
		t.Helper()
		o := &Observation{Serving: 2, StartUp: time.Minute, Objective: 2 * time.Second, Capacity: Capacity{10, 20000, 10000, 1000, 0}, MeanOutput: 100}
		set(o)
		if o.outlasts() != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	f("59 s of prefill", false, func(o *Observation) { o.PrefillTokens = 1180000 })
	f("61 s of prefill", true, func(o *Observation) { o.PrefillTokens = 1220000 })
	f("61 s by the objective's tokens", true, func(o *Observation) { o.PrefillTokens, o.Capacity.PrefillRate = 1220000, 0 })
	f("59 s of decode", false, func(o *Observation) { o.InFlight = 1180 })
	f("61 s of decode", true, func(o *Observation) { o.Queued = 1220 })
}

func TestCapacityIsTheMedianOfThoseKnown(t *testing.T) {
	w := grown(t, 3)
	learned := map[state.ReplicaID]Capacity{
		"fake:1": {Requests: 20, PrefillRate: 9000, OutputRate: 800}, "fake:2": {Requests: 22, PrefillRate: 8000, OutputRate: 900},
		"fake:3": {Requests: 2, PrefillRate: 100, OutputRate: 10},
	}
	w.loop.cfg.Learned = func(id state.ReplicaID) (Capacity, bool) { c, ok := learned[id]; return c, ok }
	f := func(name string, most float64, want Capacity) {
		t.Helper()
		p := poolOf(w.View(), "chat")
		if got := w.loop.capacityOf(p, p.Replicas, most, w.now); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	f("an odd one does not count", 10, Capacity{20, 10000, 8000, 800, 0})
	f("no more requests are believed than twice what was seen", 8, Capacity{16, 10000, 8000, 800, 0})
	f("nor less than the default", 0, Capacity{10, 10000, 8000, 800, 0})
	s := spec()
	s.MaxInFlight = 5
	w.store.SetPools([]state.PoolSpec{s})
	f("nor more than a replica may have", 10, Capacity{5, 10000, 8000, 800, 0})
	w.store.SetPools([]state.PoolSpec{spec()})
	learned = nil
	f("the default until something is known", 50, Capacity{10, 10000, 0, 0, 0})
}

// A replica that has just come is left out while others are known.
func TestYoungReplicaTeachesNoCapacity(t *testing.T) {
	w := grown(t, 1)
	w.run(time.Minute)
	learned := map[state.ReplicaID]Capacity{"fake:1": {PrefillRate: 9000}, "fake:2": {PrefillRate: 50}, "fake:3": {PrefillRate: 50}}
	w.loop.cfg.Learned = func(id state.ReplicaID) (Capacity, bool) { c, ok := learned[id]; return c, ok }
	w.order(3)
	w.until(time.Minute, "three", func() bool { return len(w.facts.Replicas) == 3 })
	w.run(5 * time.Second)
	rate := func() float64 { return w.loop.Reports()[0].Seen.Capacity.PrefillRate }
	if rate() != 9000 {
		t.Errorf("%v with young ones", rate())
	}
	w.run(70*time.Second + time.Duration(w.loop.cfg.Rated/2)*15*time.Second) // the median of so many
	if rate() != 50 {
		t.Errorf("%v once they are not young", rate())
	}
}
