package state_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestBacklogsOfOthers(t *testing.T) {
	s, c := newClockedStore(2)
	f := func(name string, seq uint64, full bool, told []state.Backlog, want ...state.Backlog) {
		t.Helper()
		before := s.View()
		had := slices.Clone(others0(before))
		s.ApplyRows(state.Rows{Router: "a", Boot: 1, Seq: seq, Full: full, Backlogs: told})
		if got := others0(s.View()); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if !slices.Equal(others0(before), had) {
			t.Errorf("%s: an older View changed", name)
		}
	}
	x := func(pool string, n int64) state.Backlog {
		return state.Backlog{Pool: pool, Requests: n, Tokens: 10 * n}
	}
	f("first", 1, false, []state.Backlog{x("code", 3), x("chat", 2)}, x("chat", 2), x("code", 3))
	f("one changes", 2, false, []state.Backlog{x("chat", 5)}, x("chat", 5), x("code", 3))
	f("overtaken", 1, false, []state.Backlog{x("chat", 9)}, x("chat", 5), x("code", 3))
	f("one ends", 3, false, []state.Backlog{x("code", 0)}, x("chat", 5))
	f("nothing said", 4, false, nil, x("chat", 5))
	f("nonsense", 5, false, []state.Backlog{{Pool: "chat", Requests: -4, Tokens: 7}}, state.Backlog{Pool: "chat", Tokens: 7})
	f("all that is", 6, true, []state.Backlog{x("code", 1)}, x("code", 1))
	f("nothing at all", 7, true, nil)

	s.ApplyRows(state.Rows{Router: "a", Boot: 1, Seq: 8, Backlogs: []state.Backlog{x("chat", 4)}})
	s.Wait("chat", 2, 30)
	v := s.View()
	if b := v.Backlog(v.Pools[0]); b.Requests != 6 || b.Tokens != 70 {
		t.Errorf("in all %+v", b)
	}
	c.advance(1000)
	s.DropRouter("a")
	if v := s.View(); v.Backlog(v.Pools[0]) != (state.Backlog{Pool: "chat", Requests: 2, Tokens: 30}) {
		t.Errorf("of a router that is gone: %+v", v.Backlog(v.Pools[0]))
	}
}

func others0(v *state.View) []state.Backlog {
	if len(v.Routers) == 0 {
		return nil
	}
	return v.Routers[0].Backlogs
}

// A demand of this router counts once the others know it, and no more as soon as it is
// over.
func TestDemands(t *testing.T) {
	s, c := newClockedStore(2)
	s.ApplyRows(state.Rows{
		Router: "b", Boot: 2, Seq: 1, Backlogs: []state.Backlog{{Pool: "chat", Requests: 4}},
		Rows: []state.Row{{Replica: replicaID(0), Load: state.Load{InFlight: 3}}, {Replica: replicaID(1), Load: state.Load{InFlight: 2}}},
	})
	s.ApplyRows(state.Rows{Router: "a", Boot: 1, Seq: 1, Rows: []state.Row{{Replica: replicaID(1), Load: state.Load{InFlight: 1}}}})
	v := s.View()
	for range 2 {
		if got := v.Demands(v.Pools[0]); !slices.Equal(got, []int64{1, 9}) {
			t.Errorf("the others' %v", got)
		}
	}
	own := func(want int64) {
		t.Helper()
		if got := s.View().Pools[0].OwnDemand(c.now()); got != want {
			t.Errorf("own %d, want %d", got, want)
		}
	}
	ticket := s.Begin(v.Pools[0].Replicas[0], 100)
	s.Wait("chat", 5, 50)
	own(0)
	c.advance(29)
	own(0)
	c.advance(2)
	own(6)
	s.Wait("chat", -3, -30)
	own(3)
	ticket.End()
	own(2)
}

func TestBeginUnderALimit(t *testing.T) {
	s := newStore(1)
	r := s.View().Pools[0].Replicas[0]
	var got atomic.Int64
	var wg sync.WaitGroup
	tickets := make(chan *state.Ticket, 100)
	for range 100 {
		wg.Go(func() {
			if x := s.BeginUnder(r, 10, 7); x != nil {
				got.Add(1)
				tickets <- x
			}
		})
	}
	wg.Wait()
	if l := r.Cell.Load(); got.Load() != 7 || l != (state.Load{InFlight: 7, Prefill: 7, UncachedTokens: 70}) {
		t.Errorf("%d began: %+v", got.Load(), l)
	}
	(<-tickets).End()
	if s.BeginUnder(r, 10, 7) == nil || s.BeginUnder(r, 10, 7) != nil {
		t.Error("one more has room, and only one")
	}
}

func TestViewsAreAnnounced(t *testing.T) {
	s := newStore(1)
	<-s.Published()
	s.Wait("chat", 1, 1) // no View
	select {
	case <-s.Published():
		t.Error("there is no new View")
	default:
	}
	s.DropSilent(time.Now())
	s.SetDrain(replicaID(0), true, "")
	<-s.Published()
}
