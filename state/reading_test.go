package state_test

import (
	"math"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func reading(s *state.Store, at time.Time, running, waiting float64) state.Reading {
	r := state.UnknownReading(replicaID(0))
	r.OK, r.Running, r.Waiting, r.Reader, r.At = true, running, waiting, "self", s.Clock().Stamp(at)
	return r
}

func TestTheFreshestReadingWins(t *testing.T) {
	s, c := newClockedStore(1)
	c.advance(1000)
	later, earlier := c.now(), c.now().Add(-100*time.Millisecond)
	if !s.ApplyReading(reading(s, later, 5, 0)) || s.ApplyReading(reading(s, earlier, 9, 0)) || s.ApplyReading(reading(s, later, 9, 0)) {
		t.Fatal("want only the first reading to be news")
	}
	v := s.View().Replica(replicaID(0))
	if v.Reading.Running != 5 || !v.ReadingAt.Equal(later) {
		t.Errorf("reading %+v of %v", v.Reading, v.ReadingAt)
	}
	if !v.Fresh(later.Add(2*time.Second)) || v.Fresh(later.Add(3*time.Second)) {
		t.Error("a reading is fresh for three seconds")
	}
	unknown := state.UnknownReading("nobody")
	if s.ApplyReading(unknown) {
		t.Error("a reading of an unlisted replica was news")
	}
}

func TestAReadingOfAnotherRouterIsAsOldAsItsDelivery(t *testing.T) {
	s, c := newClockedStore(1)
	s.Clock().Observe(5, 10*time.Second, c.now()) // router boot 5 is ten seconds in
	c.advance(700)
	r := reading(s, c.now(), 1, 1)
	r.At = state.Stamp{Boot: 5, At: 10*time.Second + 500*time.Millisecond}
	s.ApplyReading(r)
	if got := c.now().Sub(s.View().Replica(replicaID(0)).ReadingAt); got != 200*time.Millisecond {
		t.Errorf("reading is %v old, want 200ms", got)
	}
}

func TestForeignLoad(t *testing.T) {
	f := func(name string, want int64, ok bool, do func(*state.Store, *fakeTime)) {
		t.Helper()
		s, c := newClockedStore(1)
		c.advance(1000)
		do(s, c)
		if got, gotOK := s.View().Replica(replicaID(0)).Foreign(c.now()); got != want || gotOK != ok {
			t.Errorf("%s: foreign %d %v, want %d %v", name, got, gotOK, want, ok)
		}
	}
	begin := func(s *state.Store, n int) (tickets []*state.Ticket) {
		for range n {
			tickets = append(tickets, s.Begin(s.View().Replica(replicaID(0)), 1))
		}
		return tickets
	}
	f("never read", 0, false, func(*state.Store, *fakeTime) {})
	f("more at the engine than we sent", 5, true, func(s *state.Store, c *fakeTime) {
		begin(s, 2)
		c.advance(50)
		s.ApplyReading(reading(s, c.now(), 4, 3))
	})
	f("never negative", 0, true, func(s *state.Store, c *fakeTime) {
		begin(s, 9)
		c.advance(50)
		s.ApplyReading(reading(s, c.now(), 1, 0))
	})
	f("other routers' requests are known", 1, true, func(s *state.Store, c *fakeTime) {
		s.ApplyRows(inFlight(1, 7, 1, true, 6))
		c.advance(50)
		s.ApplyReading(reading(s, c.now(), 7, 0))
	})
	f("what was sent after the reading was not in it", 3, true, func(s *state.Store, c *fakeTime) {
		at := c.now()
		c.advance(50)
		begin(s, 2)
		s.ApplyReading(reading(s, at, 3, 0))
	})
	f("what ended after the reading was in it", 0, true, func(s *state.Store, c *fakeTime) {
		tickets := begin(s, 3)
		c.advance(50)
		at := c.now()
		c.advance(20)
		for _, k := range tickets {
			k.End()
		}
		s.ApplyReading(reading(s, at, 3, 0))
	})
	f("a row that comes a little after the reading was so at its moment", 0, true, func(s *state.Store, c *fakeTime) {
		s.ApplyReading(reading(s, c.now(), 4, 0))
		c.advance(15)
		s.ApplyRows(inFlight(1, 7, 1, true, 4))
	})
	f("the same where the reading is the one that is late", 0, true, func(s *state.Store, c *fakeTime) {
		at := c.now()
		c.advance(15)
		s.ApplyRows(inFlight(1, 7, 1, true, 4))
		c.advance(30)
		s.ApplyReading(reading(s, at, 4, 0))
	})
	f("a row of long after was not", 4, true, func(s *state.Store, c *fakeTime) {
		s.ApplyReading(reading(s, c.now(), 4, 0))
		c.advance(500)
		s.ApplyRows(inFlight(1, 7, 1, true, 4))
	})
	f("a dead router's requests are foreign at the next reading", 4, true, func(s *state.Store, c *fakeTime) {
		s.ApplyRows(inFlight(1, 7, 1, true, 4))
		c.advance(2500)
		s.DropRouter(routerID(1))
		c.advance(1000)
		s.ApplyReading(reading(s, c.now(), 4, 0))
	})
	f("unknown figures", 0, false, func(s *state.Store, c *fakeTime) {
		s.ApplyReading(reading(s, c.now(), -1, -1))
	})
	f("waiting unknown", 2, true, func(s *state.Store, c *fakeTime) {
		s.ApplyReading(reading(s, c.now(), 2, -1))
	})
	f("an old reading", 0, false, func(s *state.Store, c *fakeTime) {
		s.ApplyReading(reading(s, c.now(), 4, 0))
		c.advance(3500)
	})
	f("no number", 0, false, func(s *state.Store, c *fakeTime) {
		s.ApplyReading(reading(s, c.now(), math.NaN(), math.Inf(1)))
	})
	f("an absurd number", 0, false, func(s *state.Store, c *fakeTime) {
		s.ApplyReading(reading(s, c.now(), 1e300, 0))
	})
}

func TestDownSince(t *testing.T) {
	s, c := newClockedStore(1)
	say := func(reader state.RouterID, ok, loading bool) {
		c.advance(500)
		r := reading(s, c.now(), -1, -1)
		r.OK, r.Loading, r.Reader = ok, loading, reader
		s.ApplyReading(r)
	}
	f := func(readers int, since time.Time) {
		t.Helper()
		if v := s.View().Replica(replicaID(0)); v.DownReaders != readers || !v.DownSince.Equal(since) {
			t.Errorf("down since %v by %d readers, want %v by %d", v.DownSince, v.DownReaders, since, readers)
		}
	}
	f(0, time.Time{})
	say("a", false, false)
	since := c.now()
	say("a", false, false)
	f(1, since)
	say("b", false, false)
	f(2, since)
	say("b", false, true) // it answers, though not ready
	f(0, time.Time{})
	say("a", false, false)
	f(1, c.now())
	say("a", true, false)
	f(0, time.Time{})
	say("a", false, false)
	c.advance(500)
	r := reading(s, c.now(), -1, -1)
	r.OK, r.Answered = false, true // in a way that can't be read
	s.ApplyReading(r)
	f(0, time.Time{})
}

// One missed probe changes nothing; a restart or silence for long does.
func TestMissedReadingLeavesTheFigures(t *testing.T) {
	f := func(name string, want float64, at time.Duration, change func(*state.Reading)) {
		t.Helper()
		s, c := newClockedStore(1)
		c.advance(1000)
		s.ApplyReading(reading(s, c.now(), 5, 0))
		began := c.now()
		c.advance(int(at / time.Millisecond))
		r := state.UnknownReading(replicaID(0))
		r.Reader, r.At, r.Err = "self", s.Clock().Stamp(c.now()), "timed out"
		change(&r)
		if !s.ApplyReading(r) {
			t.Errorf("%s: not news", name)
		}
		v := s.View().Replica(replicaID(0))
		if v.Reading.Running != want || !v.AskedAt.Equal(c.now()) || (want >= 0) != v.ReadingAt.Equal(began) {
			t.Errorf("%s: %+v of %v, asked %v", name, v.Reading, v.ReadingAt, v.AskedAt)
		}
		if !r.Loading && !v.DownSince.Equal(c.now()) {
			t.Errorf("%s: down since %v", name, v.DownSince)
		}
	}
	f("missed once", 5, time.Second, func(*state.Reading) {})
	f("missed until the figures are of no use", -1, 3*time.Second, func(*state.Reading) {})
	f("refused", -1, time.Second, func(r *state.Reading) { r.Refused = true })
	f("loading", -1, time.Second, func(r *state.Reading) { r.Loading = true })
}

// A reply tells of KV use and queue between two readings; load of ours that began
// or ended since is not taken for foreign.
func TestReplyRefreshesTheReading(t *testing.T) {
	s, c := newClockedStore(1)
	c.advance(1000)
	id := replicaID(0)
	refresh := func(kv, waiting float64) { s.RefreshReading(s.View().Replica(id), c.now(), kv, waiting) }
	refresh(0.5, 3)
	if v := s.View().Replica(id); v.Reading.OK || v.Reading.Waiting >= 0 {
		t.Errorf("without a reading: %+v", v.Reading)
	}
	ours := s.Begin(s.View().Replica(id), 1)
	c.advance(50)
	s.ApplyReading(reading(s, c.now(), 3, 0)) // 2 of them are not ours
	at := c.now()
	c.advance(50)
	ours.End()
	for range 4 {
		s.Begin(s.View().Replica(id), 1)
	}
	c.advance(50)
	refresh(0.75, 5)
	v := s.View().Replica(id)
	foreign, ok := v.Foreign(c.now())
	if v.Reading.KVUsage != 0.75 || v.Reading.Waiting != 5 || v.Reading.Running != 1 || foreign != 2 || !ok || !v.ReadingAt.Equal(at) {
		t.Errorf("%+v of %v, foreign %d", v.Reading, v.ReadingAt, foreign)
	}
	c.advance(5)
	refresh(0.9, 9)
	if got := s.View().Replica(id).Reading.Waiting; got != 5 {
		t.Errorf("refreshed again after 5 ms: %v", got)
	}
	c.advance(50)
	refresh(-1, -1)
	if got := s.View().Replica(id).Reading; got.Waiting != 5 || got.KVUsage != 0.75 {
		t.Errorf("unknown figures were taken: %+v", got)
	}
}
