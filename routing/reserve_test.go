package routing_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// banded makes a pick of a request of a band.
func (w *world) banded(band state.Band, change func(*routing.Request)) (*routing.Choice, error) {
	c, v := &routing.Choice{}, w.store.View()
	req := &routing.Request{Pool: v.Pools[0], PromptTokens: 500, Band: band}
	if change != nil {
		change(req)
	}
	return c, w.pick.Pick(c, req, v, w.now)
}

// counts are what bands ask for: so many of the high and of the normal one, running.
func (w *world) counts(high, normal int64) {
	c := w.store.View().Pools[0].Counter
	for band, n := range map[state.Band]int64{state.BandHigh: high, state.BandNormal: normal} {
		c.Asks(band, n, w.now)
		c.Runs(band, n, w.now)
	}
	w.now = w.now.Add(10 * time.Minute)
}

// Lower bands leave two roots of what higher ones ask for free, and no more than a
// third.
func TestPlacesAreLeftToHigherBands(t *testing.T) {
	f := func(name string, high, normal int64, busy int64, band state.Band, refused bool, change func(*routing.Request)) {
		t.Helper()
		w := newWorld(t, 2, "")
		w.bounded(func(s *state.PoolSpec) { s.MaxInFlight = 10 })
		w.counts(high, normal)
		for i := range busy {
			w.store.Begin(w.replica(int(i%2)), 0)
		}
		c, err := w.banded(band, change)
		if !refused {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		var e *routing.PickError
		if !errors.As(err, &e) || e.Kind != routing.ErrSaturated || e.Wait <= 0 || e.Count(routing.ExcludedReserved) == 0 || c.Candidates[0].Excluded != routing.ExcludedReserved {
			t.Errorf("%s: %v, excluded as %q", name, err, c.Candidates[0].Excluded)
		}
	}
	f("nobody of a higher band", 0, 0, 19, state.BandLow, false, nil)
	f("2 x root of 4 are left: the fifth last", 4, 0, 15, state.BandNormal, false, nil)
	f("the fourth last", 4, 0, 16, state.BandNormal, true, nil)
	f("for the higher band itself", 4, 0, 16, state.BandHigh, false, nil)
	f("it is its band's turn", 4, 0, 16, state.BandLow, false, func(r *routing.Request) { r.Due = true })
	f("it has waited", 4, 0, 16, state.BandLow, false, func(r *routing.Request) { r.Anyway = true })
	f("what the normal one asks for is left by the low one", 0, 4, 16, state.BandLow, true, nil)
	f("and not by itself", 0, 4, 16, state.BandNormal, false, nil)
	f("both, for the low one", 4, 5, 14, state.BandLow, true, nil)
	f("of the high one alone, for the normal one", 4, 5, 15, state.BandNormal, false, nil)
	f("a third at most", 64, 0, 13, state.BandLow, false, nil)
	f("a third", 64, 0, 14, state.BandLow, true, nil)
	f("one replica, one place left for its own", 4, 0, 16, state.BandLow, true, func(r *routing.Request) { r.Only = id(0) })

	w := newWorld(t, 2, "") // no cap: no places to be left
	w.counts(50, 0)
	if _, err := w.banded(state.BandLow, nil); err != nil {
		t.Error(err)
	}
}

// What the high band lacks of its mean right now is left too, and what it has beyond it
// is not.
func TestPlacesLeftFollowWhatRuns(t *testing.T) {
	f := func(running, busy int64, refused bool) {
		t.Helper()
		w := newWorld(t, 2, "")
		w.bounded(func(s *state.PoolSpec) { s.MaxInFlight = 10 })
		w.counts(4, 0)
		w.store.View().Pools[0].Counter.Runs(state.BandHigh, running-4, w.now)
		for i := range busy {
			w.store.Begin(w.replica(int(i%2)), 0)
		}
		if _, err := w.banded(state.BandLow, nil); (err != nil) != refused {
			t.Errorf("%d of 4 run beside %d: %v", running, busy, err)
		}
	}
	f(2, 13, false)
	f(2, 14, true)
	f(6, 17, false)
	f(6, 18, true)
}

// A place that is left to the high band is one at any router, whatever that one's share.
func TestPlacesLeftAreNotShared(t *testing.T) {
	w := newWorld(t, 1, "")
	w.bounded(func(s *state.PoolSpec) { s.MaxInFlight = 8 })
	w.counts(1, 0)
	w.load(0, state.Load{InFlight: 5})
	w.store.Begin(w.replica(0), 0)
	limit := func(band state.Band) int64 {
		c, err := w.banded(band, func(r *routing.Request) { r.Due = true })
		if errors.Is(err, routing.ErrSaturated) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return c.Limit
	}
	w.now = w.now.Add(time.Minute)
	if n := limit(state.BandHigh); n != 3 {
		t.Errorf("it may have %d, want 8 less the others' 5", n)
	}
	if n := limit(state.BandLow); n > 2 {
		t.Errorf("a low one may have %d, want its share of 2 at most", n)
	}
	w.store.View().Pools[0].Counter.Runs(state.BandHigh, 4, w.now) // beyond what is kept
	if n := limit(state.BandHigh); n > 2 {
		t.Errorf("beyond what is kept it may have %d", n)
	}
}

// At replicas that prefill the part is as large as at those that answer.
func TestPlacesLeftOfLegs(t *testing.T) {
	w := newWorld(t, 0, "")
	w.store.SetReplicas(state.SourceStatic, "chat", []state.Replica{
		{ID: id(0), URL: "http://a", Role: state.RolePrefill}, {ID: id(1), URL: "http://b", Role: state.RoleDecode}, {ID: id(2), URL: "http://c", Role: state.RoleDecode},
	})
	w.bounded(func(s *state.PoolSpec) { s.MaxInFlight = 10 })
	w.counts(4, 0) // four are left of 20, two of 10
	prefill := func(r *routing.Request) { r.Role = state.RolePrefill }
	for n := range 9 {
		if _, err := w.banded(state.BandLow, prefill); (err != nil) != (n >= 8) {
			t.Errorf("beside %d: %v", n, err)
		}
		w.store.Begin(w.replica(0), 0)
	}
}
