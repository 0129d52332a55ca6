package observe

import (
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// What a series of readings, 200 ms apart, says of the cache at its end.
func TestRestartIsNoticed(t *testing.T) {
	const step = 200 * time.Millisecond
	unknown := state.UnknownReading("a")
	ok := func(change func(*state.Reading)) state.Reading {
		r := unknown
		r.OK = true
		change(&r)
		return r
	}
	counts := func(queries, processed float64) state.Reading {
		return ok(func(r *state.Reading) { r.Queries, r.Processed = queries, processed })
	}
	process := func(started, queries float64, up time.Duration) state.Reading {
		return ok(func(r *state.Reading) { r.Started, r.Queries, r.Uptime = started, queries, up })
	}
	refused, hung, loading := unknown, unknown, unknown
	refused.Refused, loading.Loading, loading.Kind = true, true, state.EngineLlamaCpp
	busy := loading
	busy.Kind = state.EngineOpenAI

	// ago is how long before the last reading the cache died; negative: not at all.
	f := func(name string, reason string, ago time.Duration, readings ...state.Reading) {
		t.Helper()
		c := newCache()
		s := store("r1", 1, "a")
		l := New(Config{Self: "r1"}, s, nil, c, nil, zerolog.Nop())
		now := time.Now()
		for _, r := range readings {
			now = now.Add(step)
			r.Replica, r.At = "a", s.Clock().Stamp(now)
			l.Note(r, now)
		}
		got := c.cleared["a"]
		if got.reason != reason || reason != "" && now.Sub(got.at) != ago {
			t.Errorf("%s: %q %v ago, want %q %v", name, got.reason, now.Sub(got.at), reason, ago)
		}
	}
	day := 24 * time.Hour
	f("first reading without a start", "", 0, counts(100, 100))
	f("first reading", reasonFirst, day+firstSlack, process(5, 100, day))
	f("steady", reasonFirst, day+step+firstSlack, process(5, 100, day), process(5, 120, day))
	f("restarted a little ago", reasonRestart, 150*time.Millisecond, process(5, 100, day), process(9, 0, 150*time.Millisecond))
	f("restarted while nobody could read it", reasonRestart, 500*time.Millisecond, process(5, 100, day), hung, hung, hung, process(9, 0, 500*time.Millisecond))
	f("its clock says before the last reading of the old one", reasonRestart, step, process(5, 100, day), process(9, 0, time.Hour))
	f("it was refused later than its clock says", reasonRestart, step, process(5, 100, day), hung, refused, process(9, 0, time.Hour))
	f("its clock is unknown", reasonRestart, 0, process(5, 100, day), process(9, 0, -1))
	f("a start that jitters", reasonFirst, day+step+firstSlack, process(5, 100, day), process(5.1, 100, day))
	f("counters went backwards", reasonCounters, step, counts(100, 100), counts(3, 3))
	f("only prompt tokens are counted", reasonCounters, step, counts(-1, 100), counts(-1, 3))
	f("backwards after a gap", reasonCounters, 3*step, counts(100, 100), hung, hung, counts(3, 3))
	f("the prefix cache alone was reset", reasonCleared, step, counts(100, 100), counts(0, 150))
	f("a missing counter is not zero", "", 0, counts(100, 100), counts(-1, -1), counts(110, 110))
	f("gone and back, nothing else known", reasonBack, step, counts(-1, -1), refused, counts(-1, -1))
	f("loading and back", reasonBack, step, counts(-1, 50), loading, loading, counts(-1, 70))
	f("was loading at first", reasonFirst, step, loading, counts(-1, 0))
	f("started after the router", reasonFirst, step, refused, refused, counts(-1, 0))
	f("started after the router, with a clock", reasonFirst, step, refused, process(5, 0, 100*time.Millisecond))
	f("gone and back, the same process", reasonFirst, day+2*step+firstSlack, process(5, 100, day), refused, process(5, 100, day))
	f("only slow", "", 0, counts(-1, 100), hung, hung, counts(-1, 100))
	f("503 of something else", "", 0, counts(-1, -1), busy, counts(-1, -1))
	f("twice", reasonCounters, step, counts(100, 100), counts(3, 3), counts(90, 90), counts(1, 1))
}

// Readings of a slow engine overtake each other when two routers take them.
func TestOvertakenReadingsAreNoRestart(t *testing.T) {
	const step = 200 * time.Millisecond
	read := func(by state.RouterID, started, count float64) state.Reading {
		r := state.UnknownReading("a")
		r.OK, r.Reader, r.Started, r.Queries, r.Processed = true, by, started, count, count
		return r
	}
	times := func(n int, r state.Reading) (list []state.Reading) {
		for range n {
			list = append(list, r)
		}
		return list
	}
	f := func(name, reason string, ago time.Duration, readings ...[]state.Reading) {
		t.Helper()
		c, s := newCache(), store("r1", 1, "a")
		l := New(Config{Self: "r1"}, s, nil, c, nil, zerolog.Nop())
		now := time.Now()
		for _, r := range slices.Concat(readings...) {
			now = now.Add(step)
			r.At = s.Clock().Stamp(now)
			l.Note(r, now)
		}
		got := c.cleared["a"]
		if got.reason != reason || reason != "" && now.Sub(got.at) != ago {
			t.Errorf("%s: %q %v ago, want %q %v", name, got.reason, now.Sub(got.at), reason, ago)
		}
	}
	refused := state.UnknownReading("a")
	refused.Refused = true
	gone := []state.Reading{refused}
	one := func(by state.RouterID, started, count float64) []state.Reading {
		return times(1, read(by, started, count))
	}
	f("an earlier figure comes later", "", 0, one("r1", -1, 120), one("r2", -1, 100), one("r1", -1, 130), one("r2", -1, 110))
	f("of a process whose start is known", "", 0, one("r1", 5, 120), one("r2", 5, 100), one("r2", 5, 90))
	f("of the process before", reasonRestart, step, one("r1", 5, 120), one("r2", 9, 0), one("r1", 5, 110))
	f("a router's own readings go backwards", reasonCounters, 2*step, one("r2", -1, 100), one("r1", -1, 120), one("r2", -1, 3))
	f("the reader died with the engine", "", 0, one("r2", -1, 100), times(19, read("r1", -1, 3)))
	f("and nothing else explains it any more", reasonCounters, 20*step, one("r2", -1, 100), times(20, read("r1", -1, 3)))
	f("gone and back at another reader", reasonBack, 30*step, one("r2", -1, 100), gone, times(30, read("r1", -1, 3)))
	f("it is told once", reasonCounters, 30*step, one("r2", -1, 100), times(30, read("r1", -1, 3)))
}

// Placements on the new process survive, those on the old one do not, wherever in
// between the restart lay.
func TestClearedLiesBetweenTheProcesses(t *testing.T) {
	for up := time.Duration(0); up <= 200*time.Millisecond; up += 10 * time.Millisecond {
		c, s := newCache(), store("r1", 1, "a")
		l := New(Config{Self: "r1"}, s, nil, c, nil, zerolog.Nop())
		now := time.Now()
		r := state.UnknownReading("a")
		r.OK, r.Started, r.Uptime, r.At = true, 5, time.Hour, s.Clock().Stamp(now)
		l.Note(r, now)
		now = now.Add(200 * time.Millisecond)
		r.Started, r.Uptime, r.At = 9, up, s.Clock().Stamp(now)
		l.Note(r, now)
		if got := now.Sub(c.cleared["a"].at); got != up {
			t.Errorf("up for %v: cleared %v ago", up, got)
		}
	}
}

func TestCapacityIsToldOnce(t *testing.T) {
	c, s := newCache(), store("r1", 1, "a")
	l := New(Config{Self: "r1"}, s, nil, c, nil, zerolog.Nop())
	now := time.Now()
	note := func(change func(*state.Reading)) {
		now = now.Add(time.Second)
		r := state.UnknownReading("a")
		r.OK, r.At = true, s.Clock().Stamp(now)
		change(&r)
		l.Note(r, now)
	}
	note(func(r *state.Reading) { r.Capacity, r.BlockSize = 1000, 16 })
	if got := c.sizes["a"]; got != (Capacity{Tokens: 1000, BlockSize: 16}) {
		t.Errorf("blocks: %+v", got)
	}
	delete(c.sizes, "a")
	note(func(r *state.Reading) { r.Capacity, r.BlockSize = 1000, 16 })
	note(func(*state.Reading) {})
	if got, again := c.sizes["a"]; again {
		t.Errorf("told again: %+v", got)
	}
	note(func(r *state.Reading) { r.Capacity, r.Slots, r.Context = 8192, 4, 2048 })
	if got := c.sizes["a"]; got != (Capacity{Tokens: 8192, Slots: 4, Context: 2048}) {
		t.Errorf("slots: %+v", got)
	}
}

// A replica that is gone and comes back under its id is as new: the cache has forgotten
// its capacity.
func TestCapacityIsToldAgainOfOneThatCameBack(t *testing.T) {
	c, s := newCache(), store("r1", 1, "a")
	l := New(Config{Self: "r1"}, s, nil, c, nil, zerolog.Nop())
	s.OnGone(func(_ state.Slot, id state.ReplicaID) {
		delete(c.sizes, id)
		l.Forget(id)
	})
	now := time.Now()
	note := func() {
		now = now.Add(time.Second)
		r := state.UnknownReading("a")
		r.OK, r.Capacity, r.At = true, 1000, s.Clock().Stamp(now)
		l.Note(r, now)
	}
	note()
	s.SetReplicas(state.SourceStatic, "chat", nil)
	if len(c.sizes) > 0 {
		t.Fatal("it is not gone")
	}
	s.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "a", Role: state.RoleBoth}})
	note()
	if got := c.sizes["a"]; got != (Capacity{Tokens: 1000}) {
		t.Errorf("told %+v", got)
	}
}
