package state_test

import (
	"sync"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

func TestTicketCountsEachChangeOnce(t *testing.T) {
	f := func(name string, uncached int, want state.Load, calls ...func(*state.Ticket)) {
		t.Helper()
		s := newStore(1)
		r := s.View().Pools[0].Replicas[0]
		ticket := s.Begin(r, uncached)
		for _, call := range calls {
			call(ticket)
		}
		if got := r.Cell.Load(); got != want {
			t.Errorf("%s: load %+v, want %+v", name, got, want)
		}
	}
	first := (*state.Ticket).FirstToken
	end := func(k *state.Ticket) { k.End() }
	f("sent", 70, state.Load{InFlight: 1, Prefill: 1, UncachedTokens: 70})
	f("first token", 70, state.Load{InFlight: 1}, first)
	f("first token twice", 70, state.Load{InFlight: 1}, first, first)
	f("ended", 70, state.Load{}, first, end)
	f("ended twice", 70, state.Load{}, first, end, end)
	f("ended before the first token", 70, state.Load{}, end)
	f("first token after the end", 70, state.Load{}, end, first)
	f("nothing uncached", 0, state.Load{InFlight: 1, Prefill: 1})
	f("a negative estimate", -5, state.Load{InFlight: 1, Prefill: 1})
}

func TestTicketEndSaysWhoEndedIt(t *testing.T) {
	s := newStore(1)
	ticket := s.Begin(s.View().Pools[0].Replicas[0], 1)
	if !ticket.End() || ticket.End() {
		t.Fatal("want the first End to report true and the second false")
	}
}

func TestTicketsOfManyGoroutinesSumToZero(t *testing.T) {
	s := newStore(2)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				r := s.View().Pools[0].Replicas[(g+i)%2]
				ticket := s.Begin(r, 10)
				var racers sync.WaitGroup
				racers.Go(ticket.FirstToken)
				racers.Go(func() { ticket.End() })
				racers.Wait()
				ticket.End()
			}
		})
	}
	wg.Wait()
	for _, r := range s.View().Pools[0].Replicas {
		if l := r.Cell.Load(); l != (state.Load{}) {
			t.Errorf("%s: %+v left", r.ID, l)
		}
	}
}

func TestDispatchIsSeenThroughEveryView(t *testing.T) {
	s := newStore(1)
	old := s.View().Pools[0].Replicas[0]
	s.ApplyRows(fullRows(1, 1, 1))
	now := s.View().Pools[0].Replicas[0]
	if old == now {
		t.Fatal("want a new ReplicaView after rows came")
	}
	s.Begin(now, 5)
	if old.Cell.Load().InFlight != 1 || now.Load().InFlight != 3 {
		t.Errorf("old view has %+v, new one %+v in all", old.Cell.Load(), now.Load())
	}
}

func TestChangedSignalsWithoutBlocking(t *testing.T) {
	s := newStore(1)
	r := s.View().Pools[0].Replicas[0]
	for range 3 {
		s.Begin(r, 1)
	}
	<-s.Changed()
	select {
	case <-s.Changed():
		t.Error("three dispatches signalled twice, want them merged")
	default:
	}
}

func TestFirstTokenIsRemembered(t *testing.T) {
	s, c := newClockedStore(1)
	r := s.View().Pools[0].Replicas[0]
	if !r.Cell.LastFirstToken().IsZero() {
		t.Fatal("a first token before any request")
	}
	ticket := s.Begin(r, 1)
	c.advance(5)
	ticket.FirstToken()
	if got := r.Cell.LastFirstToken(); !got.Equal(c.now()) {
		t.Errorf("last first token %v, want %v", got, c.now())
	}
	if !new(state.Cell).LastFirstToken().IsZero() {
		t.Error("a cell outside a store has seen a first token")
	}
}
