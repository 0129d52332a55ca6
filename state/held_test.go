package state_test

import (
	"math"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// What bands have at a time is an average of the last half minute, or so, here and, by
// what they told, at others.
func TestWhatBandsAskFor(t *testing.T) {
	s, clock := newClockedStore(2)
	c := s.View().PoolNamed("chat").Counter
	own := func() state.Holds { return c.Holds(clock.t) }
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.02*want+0.001 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if h := own(); h != (state.Holds{}) {
		t.Errorf("%+v before anything", h)
	}
	// Two of the high band at a time, one of which waits; of the last one nothing counts.
	told := func(seq uint64, high int64) {
		s.ApplyRows(state.Rows{Router: "a", Boot: 1, Seq: seq, Full: true, Traffic: []state.Traffic{{Pool: "chat", HighTime: high}}})
	}
	told(1, 7_000_000) // whatever was before this router began to listen
	c.Asks(state.BandHigh, 2, clock.t)
	c.Runs(state.BandHigh, 1, clock.t)
	c.Asks(state.BandLow, 9, clock.t)
	for i := range 120 {
		clock.t = clock.t.Add(time.Second)
		told(uint64(i+2), 7_000_000+int64(i+1)*3000)
	}
	h := own()
	near("own", h.Asked[0], 2*(1-math.Exp(-4)))
	if h.Running[0] != 1 || h.Running[1] != 0 || h.Asked[1] != 0 {
		t.Errorf("%+v", h)
	}
	asked := func() float64 {
		h, v := own(), s.View()
		return v.Asked(v.PoolNamed("chat"), &h)[0]
	}
	near("all", asked(), 5*(1-math.Exp(-4)))
	if got := s.OwnTraffic(nil); len(got) != 1 || got[0].HighTime != 240_000 || got[0].NormalTime != 0 {
		t.Errorf("told as %+v", got)
	}
	// It fades.
	c.Asks(state.BandHigh, -2, clock.t)
	c.Runs(state.BandHigh, -1, clock.t)
	for i := range 60 {
		clock.t = clock.t.Add(time.Second)
		told(uint64(200+i), 7_360_000)
	}
	near("a minute later", asked(), 5*(1-math.Exp(-4))*math.Exp(-2))
	s.ApplyRows(state.Rows{Router: "a", Boot: 2, Seq: 1, Full: true, Traffic: []state.Traffic{{Pool: "chat", HighTime: 1 << 40}}})
	near("the other one began anew", asked(), 2*(1-math.Exp(-4))*math.Exp(-2))
}
