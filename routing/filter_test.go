package routing_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

func TestWhoIsEligible(t *testing.T) {
	trials := func(n int) *state.Trials {
		x := &state.Trials{}
		x.Grant(n)
		return x
	}
	down := func(w *world, i int, readers ...state.RouterID) {
		for n := range 5 {
			w.now = w.now.Add(700 * time.Millisecond)
			w.read(i, func(r *state.Reading) { r.OK, r.Reader = false, readers[n%len(readers)] })
		}
	}
	// Replica 0 is cheapest: it holds everything. It is picked unless excluded.
	f := func(name, excluded string, setUp func(*world, *routing.Request)) {
		t.Helper()
		w := newWorld(t, 3, "")
		w.hold(0, 2048)
		req := w.prompt(2048)
		setUp(w, req)
		c := w.one(req)
		if c.Candidates[0].Excluded != excluded || (c.Replica.ID == id(0)) != (excluded == "") {
			t.Errorf("%s: r0 excluded for %q and r%s picked, want %q", name, c.Candidates[0].Excluded, c.Replica.ID, excluded)
		}
	}
	f("all is well", "", func(*world, *routing.Request) {})
	f("already tried", routing.ExcludedTried, func(_ *world, r *routing.Request) { r.Exclude = []state.ReplicaID{id(0)} })
	f("another is the only one", routing.ExcludedPinned, func(_ *world, r *routing.Request) { r.Only = id(1) })
	f("the only one", "", func(_ *world, r *routing.Request) { r.Only = id(0) })
	f("the only one, draining", "", func(w *world, r *routing.Request) { r.Only = id(0); w.store.SetDrain(id(0), true, "") })
	f("draining", routing.ExcludedDraining, func(w *world, _ *routing.Request) { w.store.SetDrain(id(0), true, "") })
	f("ejected", routing.ExcludedEjected, func(w *world, _ *routing.Request) {
		w.weigh(map[int]state.Weight{0: {Ejected: true, Slow: 1}}, false)
	})
	f("ejected, but the pool is in panic", "", func(w *world, _ *routing.Request) {
		w.weigh(map[int]state.Weight{0: {Ejected: true, Slow: 1}}, true)
	})
	f("half open with a trial left", "", func(w *world, _ *routing.Request) {
		w.weigh(map[int]state.Weight{0: {Ejected: true, Trial: true, Trials: trials(1), Slow: 1}}, false)
	})
	f("half open with no trial left", routing.ExcludedTrial, func(w *world, _ *routing.Request) {
		w.weigh(map[int]state.Weight{0: {Trial: true, Trials: trials(0), Slow: 1}}, false)
	})
	f("loading", routing.ExcludedLoading, func(w *world, _ *routing.Request) {
		w.read(0, func(r *state.Reading) { r.OK, r.Loading = false, true })
	})
	f("said to be loading long ago", "", func(w *world, _ *routing.Request) {
		w.read(0, func(r *state.Reading) { r.OK, r.Loading = false, true })
		w.now = w.now.Add(time.Minute)
	})
	f("all are loading", "", func(w *world, _ *routing.Request) {
		for i := range 3 {
			w.read(i, func(r *state.Reading) { r.OK, r.Loading = false, true })
		}
	})
	f("of another model", routing.ExcludedWrongModel, func(w *world, _ *routing.Request) {
		w.read(0, func(r *state.Reading) { r.WrongModel = "llama" })
	})
	f("not of the model that another router asks for", "", func(w *world, _ *routing.Request) {
		w.read(0, func(r *state.Reading) { r.WrongModel = "llama-3" })
	})
	f("all of another model", "", func(w *world, _ *routing.Request) {
		for i := range 3 {
			w.read(i, func(r *state.Reading) { r.WrongModel = "llama" })
		}
	})
	f("of another model, and nobody else can be reached", routing.ExcludedWrongModel, func(w *world, _ *routing.Request) {
		w.read(0, func(r *state.Reading) { r.WrongModel = "llama" })
		for i := 1; i < 3; i++ {
			w.read(i, func(r *state.Reading) { r.OK, r.Refused = false, true })
		}
	})
	f("refused a moment ago", routing.ExcludedUnreachable, func(w *world, _ *routing.Request) {
		w.read(0, func(r *state.Reading) { r.OK, r.Refused = false, true })
	})
	f("refused long ago", "", func(w *world, _ *routing.Request) {
		w.read(0, func(r *state.Reading) { r.OK, r.Refused = false, true })
		w.now = w.now.Add(time.Minute)
	})
	f("all refuse", "", func(w *world, _ *routing.Request) {
		for i := range 3 {
			w.read(i, func(r *state.Reading) { r.OK, r.Refused = false, true })
		}
	})
	w := newWorld(t, 2, "")
	for i := range 2 {
		w.read(i, func(r *state.Reading) { r.OK, r.Refused = false, true })
	}
	if c := w.one(w.prompt(2048)); c.Candidates[0].Despite != routing.ExcludedUnreachable || c.Candidates[0].Excluded != "" {
		t.Errorf("all refuse: %+v", c.Candidates[0])
	}
	f("unreachable by two readers, one request out to find out", routing.ExcludedUnreachable, func(w *world, _ *routing.Request) {
		down(w, 0, "a", "b")
		w.store.Begin(w.replica(0), 0)
	})
	f("unreachable by two readers, nobody has tried", "", func(w *world, _ *routing.Request) { down(w, 0, "a", "b") })
	f("metrics hang and requests are served", "", func(w *world, _ *routing.Request) {
		down(w, 0, "a", "b")
		w.store.Begin(w.replica(0), 0).FirstToken()
		w.store.Begin(w.replica(0), 0)
	})
	f("unreachable by one reader for a while", "", func(w *world, _ *routing.Request) {
		down(w, 0, "a")
		w.store.Begin(w.replica(0), 0)
	})
	f("unreachable by one reader for long", routing.ExcludedUnreachable, func(w *world, _ *routing.Request) {
		down(w, 0, "a")
		down(w, 0, "a")
		w.store.Begin(w.replica(0), 0)
	})
	f("all unreachable", "", func(w *world, _ *routing.Request) {
		for i := range 3 {
			down(w, i, "a", "b")
			w.store.Begin(w.replica(i), 0)
		}
	})
	f("others list the adapter", routing.ExcludedAdapter, func(w *world, r *routing.Request) {
		r.Adapter = "a1"
		w.read(0, func(r *state.Reading) { adapters(r, "base") })
		w.read(1, func(r *state.Reading) { adapters(r, "a1", "base") })
	})
	f("it lists the adapter", "", func(w *world, r *routing.Request) {
		r.Adapter = "a1"
		w.read(0, func(r *state.Reading) { adapters(r, "a1", "base") })
	})
	f("nobody lists adapters", "", func(_ *world, r *routing.Request) { r.Adapter = "a1" })
	f("one more stream breaks the ITL objective", routing.ExcludedITL, func(w *world, _ *routing.Request) {
		slo(w, 40*time.Millisecond)
		w.cal.Seed(w.replica(0).Slot, id(0), "chat", routing.Params{Rate: 9000, Fixed: 1, ITL: 39, ITLPerStream: 0.2, Uncached: 100})
		w.load(0, state.Load{InFlight: 6})
	})
	f("it would break it on all", "", func(w *world, _ *routing.Request) { slo(w, 10*time.Millisecond) })
	f("it does prefill only", routing.ExcludedRole, func(w *world, _ *routing.Request) { roles(w, state.RolePrefill) })
	f("it does prefill, which is asked for", "", func(w *world, r *routing.Request) {
		roles(w, state.RolePrefill)
		r.Role = state.RolePrefill
	})
	f("it does prefill, decode is asked for", routing.ExcludedRole, func(w *world, r *routing.Request) {
		roles(w, state.RolePrefill)
		r.Role = state.RoleDecode
	})
	f("it does both, decode is asked for", "", func(_ *world, r *routing.Request) { r.Role = state.RoleDecode })
}

// slo gives the pool an ITL objective.
func slo(w *world, itl time.Duration) {
	w.store.SetPools([]state.PoolSpec{{Name: "chat", Model: "llama", SLOITL: itl}})
}

// roles gives replica 0 another role.
func roles(w *world, role state.Role) {
	w.store.SetReplicas(state.SourceStatic, "chat", []state.Replica{
		{ID: id(0), Role: role}, {ID: id(1), Role: state.RoleBoth}, {ID: id(2)},
	})
}

// An engine of another model stands in for nobody: while any replica is, or may be,
// of the pool's model, the client is told to ask again. Where all are of another, the
// pool's model may be what is wrong, and the engines say so best.
func TestEngineOfAnotherModelStandsInForNobody(t *testing.T) {
	wrong := func(r *state.Reading) { r.WrongModel = "llama" }
	f := func(name, eligible, reasons string, setUp func(*world, *routing.Request)) {
		t.Helper()
		w := newWorld(t, 2, "")
		w.read(1, wrong)
		req := w.prompt(100)
		setUp(w, req)
		req.Pool = w.store.View().Pools[0]
		var c routing.Choice
		err := w.pick.Pick(&c, req, w.store.View(), w.now)
		got, why := "", ""
		for _, k := range c.Candidates {
			if k.Excluded == "" {
				got += string(k.Replica.ID) + " " + k.Despite
			}
		}
		var pe *routing.PickError
		if errors.As(err, &pe) {
			for _, r := range pe.Reasons {
				why += r.Reason + " "
			}
		}
		if got != eligible || why != reasons {
			t.Errorf("%s: eligible %q (%v), want %q, %q", name, got, err, eligible, reasons)
		}
	}
	f("the other one is well", "r0 ", "", func(*world, *routing.Request) {})
	f("the other one refuses", "r0 unreachable", "", func(w *world, _ *routing.Request) {
		w.read(0, func(r *state.Reading) { r.OK, r.Refused = false, true })
	})
	f("the other one was tried", "", "tried wrong_model ", func(_ *world, r *routing.Request) { r.Exclude = []state.ReplicaID{id(0)} })
	f("the other one is ejected", "", "ejected wrong_model ", func(w *world, _ *routing.Request) {
		w.weigh(map[int]state.Weight{0: {Ejected: true, Slow: 1}}, false)
	})
	f("the other one drains", "", "draining wrong_model ", func(w *world, _ *routing.Request) { w.store.SetDrain(id(0), true, "") })
	f("both are", "r0 wrong_modelr1 wrong_model", "", func(w *world, _ *routing.Request) { w.read(0, wrong) })
	f("both are, and the other one was tried", "r1 wrong_model", "", func(w *world, r *routing.Request) {
		w.read(0, wrong)
		r.Exclude = []state.ReplicaID{id(0)}
	})
	f("the other one is for another leg", "r1 wrong_model", "", func(w *world, _ *routing.Request) {
		w.store.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: id(0), Role: state.RolePrefill}, {ID: id(1)}})
	})
	f("that is long ago", "r0 r1 ", "", func(w *world, _ *routing.Request) { w.now = w.now.Add(time.Minute) })
}

func TestNobodyIsEligible(t *testing.T) {
	w := newWorld(t, 4, "")
	w.weigh(map[int]state.Weight{
		0: {Ejected: true, Until: w.now.Add(7 * time.Second)},
		1: {Ejected: true, Until: w.now.Add(4 * time.Second)},
	}, false)
	w.store.SetDrain(id(2), true, "")
	req := w.prompt(100)
	req.Exclude = []state.ReplicaID{id(3)}
	var c routing.Choice
	err := w.pick.Pick(&c, req, w.store.View(), w.now)
	var pe *routing.PickError
	if !errors.Is(err, routing.ErrNoneEligible) || !errors.As(err, &pe) {
		t.Fatalf("error %v", err)
	}
	req.Pool = w.store.View().Pools[0]
	err = w.pick.Pick(&c, req, w.store.View(), w.now)
	if !errors.As(err, &pe) || pe.Count(routing.ExcludedEjected) != 2 || pe.Count(routing.ExcludedDraining) != 1 ||
		pe.Count(routing.ExcludedTried) != 1 || pe.Count(routing.ExcludedLoading) != 0 || pe.RetryAfter != 4*time.Second || pe.Total != 4 {
		t.Errorf("error %+v", pe)
	}
	if want := `pool "chat": no replica is eligible: 1 tried, 1 draining, 2 ejected (of 4)`; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if c.Replica != nil || c.Chosen != -1 || len(c.Candidates) != 4 {
		t.Errorf("choice %+v", c)
	}
}

func TestNoReplicasAtAll(t *testing.T) {
	w := newWorld(t, 1, "")
	v := w.store.View()
	for _, pool := range []*state.PoolView{nil, v.Pools[1]} {
		var c routing.Choice
		err := w.pick.Pick(&c, &routing.Request{Pool: pool}, v, w.now)
		var pe *routing.PickError
		if !errors.Is(err, routing.ErrNoReplicas) || errors.Is(err, routing.ErrNoneEligible) || !errors.As(err, &pe) || pe.RetryAfter <= 0 {
			t.Errorf("error %v", err)
		}
		if !strings.Contains(err.Error(), "has no replicas") {
			t.Errorf("error %q", err)
		}
	}
}

func TestTrialsAreUsedUp(t *testing.T) {
	w := newWorld(t, 2, "")
	trials := &state.Trials{}
	trials.Grant(2)
	w.hold(0, 2048)
	w.weigh(map[int]state.Weight{0: {Ejected: true, Trial: true, Trials: trials, Slow: 1}}, false)
	req := w.prompt(2048)
	req.DryRun = true
	if c := w.one(req); c.Replica.ID != id(0) || c.Reason != routing.ReasonTrial || trials.Left() != 2 {
		t.Errorf("explaining took a trial: %s for %s, %d left", c.Replica.ID, c.Reason, trials.Left())
	}
	req.DryRun = false
	if got := w.picks(10, req); got[id(0)] != 2 || got[id(1)] != 8 {
		t.Errorf("picks %v, want two on trial", got)
	}
}

// A request that one replica alone can serve goes nowhere else.
func TestOnlyOneCanServe(t *testing.T) {
	f := func(name, reason string, setUp func(*world, *routing.Request)) {
		t.Helper()
		w := newWorld(t, 3, "")
		w.hold(0, 2048)
		req := w.prompt(2048)
		req.Only = id(2)
		setUp(w, req)
		var c routing.Choice
		err := w.pick.Pick(&c, req, w.store.View(), w.now)
		var e *routing.PickError
		switch {
		case reason == "":
			if err != nil || c.Replica.ID != id(2) {
				t.Errorf("%s: %v", name, err)
			}
		case !errors.As(err, &e) || e.Count(reason) != 1 || e.Count(routing.ExcludedPinned) != 3-1:
			t.Errorf("%s: %v", name, err)
		}
	}
	f("it is there", "", func(*world, *routing.Request) {})
	f("loading: it says so itself", "", func(w *world, _ *routing.Request) {
		w.read(2, func(r *state.Reading) { r.OK, r.Loading = false, true })
	})
	f("already tried", routing.ExcludedTried, func(_ *world, r *routing.Request) { r.Exclude = []state.ReplicaID{id(2)} })
	f("ejected", routing.ExcludedEjected, func(w *world, _ *routing.Request) {
		w.weigh(map[int]state.Weight{2: {Ejected: true, Slow: 1}}, false)
	})
}

// adapters makes a reading one of an engine that lists these, in order.
func adapters(r *state.Reading, names ...string) {
	r.Adapters, r.AdaptersSum = names, state.SumAdapters(names)
}
