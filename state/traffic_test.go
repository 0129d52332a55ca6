package state_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestTrafficOfOthers(t *testing.T) {
	s, _ := newClockedStore(2)
	chat := func(n int64) state.Traffic { return state.Traffic{Pool: "chat", Requests: n, Uncached: 100 * n} }
	f := func(name string, boot state.BootID, seq uint64, full bool, told []state.Traffic, want int64, known bool) {
		t.Helper()
		s.ApplyRows(state.Rows{Router: "a", Boot: boot, Seq: seq, Full: full, Traffic: told})
		got, ok := s.View().Routers[0].Traffic("chat")
		if ok != known || got.Requests != want || got.Uncached != 100*want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	list := func(n int64) []state.Traffic { return []state.Traffic{{Pool: "other", Requests: 9}, chat(n)} }
	f("nothing told", 1, 1, true, nil, 0, false)
	f("told", 1, 2, true, list(5), 5, true)
	old := s.View()
	f("a message of changed rows says nothing of it", 1, 3, false, nil, 5, true)
	f("nor does a full one of a release without", 1, 4, true, nil, 5, true)
	f("more", 1, 6, true, list(8), 8, true)
	f("overtaken", 1, 5, true, list(7), 8, true)
	f("repeated", 1, 6, true, list(9), 8, true)
	f("nonsense", 1, 7, true, []state.Traffic{{Pool: "chat", Requests: -4, Uncached: -1}}, 0, true)
	f("a new boot has told nothing", 2, 1, true, nil, 0, false)
	if got, _ := old.Routers[0].Traffic("chat"); got.Requests != 5 {
		t.Errorf("an older View changed: %+v", got)
	}
}

func TestOwnTraffic(t *testing.T) {
	s, _ := newClockedStore(2)
	if got := s.OwnTraffic(nil); len(got) != 0 {
		t.Errorf("%+v before anything", got)
	}
	c := s.View().PoolNamed("chat").Counter
	c.Came(300)
	c.Came(-5)
	c.Answered(20)
	c.First(true)
	c.First(false)
	c.Streamed(true)
	want := state.Traffic{Pool: "chat", Requests: 2, Uncached: 300, Answers: 1, Output: 20, Firsts: 2, FirstsMet: 1, Streams: 1, StreamsMet: 1}
	if got := s.OwnTraffic(nil); !slices.Equal(got, []state.Traffic{want}) {
		t.Errorf("%+v", got)
	}
	// It goes on when the pool is configured anew.
	spec := s.View().PoolNamed("chat").Spec
	s.SetPools(nil)
	s.SetPools([]state.PoolSpec{spec})
	if got := s.View().PoolNamed("chat").OwnTraffic(); got != want {
		t.Errorf("%+v", got)
	}
	var none *state.Counter
	none.Came(1)
	none.First(true)
	none.Streamed(true)
	none.Answered(1)
	none.Asks(state.BandHigh, 1, time.Now())
	later := want
	later.Requests, later.Output = 7, 5
	if d := later.Since(want); d.Requests != 5 || d.Output != 0 || d.Pool != "chat" {
		t.Errorf("%+v since", d)
	}
}
