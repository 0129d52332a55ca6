package sketch

import (
	"slices"
	"testing"
	"time"
)

func TestPrefillsUnderWayTakeRoomFromWhatIsOld(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	x.SetCapacity("a", 1000, CapacityEngine)
	old, od := prompt(1, 8, 0, 0) // 512 tokens
	serve(x, "a", old, od, w.at(time.Second))
	m, d := prompt(2, 14, 0, 0) // 896 tokens
	p := x.Place("a", m, d, w.at(2*time.Second))
	if got := w.look(x, "a", old); got.Live > 2 {
		t.Errorf("beside a large prefill: %+v", got)
	}
	p.Withdraw(w.at(3 * time.Second))
	if got := w.look(x, "a", old); got.Live != 8 {
		t.Errorf("it came to nothing: %+v", got)
	}
	check(t, x)
}

func TestASnapshotOlderThanAnEndRevivesNothing(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
	m, d := prompt(1, 3, 1, 3)
	p, q := x.Place("a", m, d, w.at(time.Second)), x.Place("b", m, d, w.now)
	p.First(w.now)
	var snapshot []Op
	x.Snapshot(func(op Op) bool { snapshot = append(snapshot, op); return true })
	p.End(w.at(2 * time.Second))
	q.Withdraw(w.now)
	var c uint64
	for _, op := range append(drain(x, &c), snapshot...) {
		y.Apply(op, w.now)
	}
	if a, b := y.Stats("a"), y.Stats("b"); a.Placements != 0 || b.Placements != 0 || b.Entries != 0 {
		t.Errorf("%+v %+v", a, b)
	}
	check(t, y)
}

func TestWhatWasPlacedBeforeARestartUsedTheOldCacheHoweverLateItEnds(t *testing.T) {
	w := newWorld()
	m, d := prompt(1, 3, 1, 3)
	for _, late := range []bool{false, true} {
		x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
		p := x.Place("a", m, d, w.at(time.Second))
		p.First(w.at(2 * time.Second))
		if !late {
			x.Clear("a", x.clock.Stamp(at(3*time.Second)))
		}
		p.End(w.at(30 * time.Second)) // the connection timed out
		if late {
			x.Clear("a", x.clock.Stamp(at(3*time.Second)))
		}
		if got := w.look(x, "a", m); got.Live != 0 || got.Pending != 0 {
			t.Errorf("cleared late %v: %+v", late, got)
		}
		var c uint64
		ops := drain(x, &c)
		slices.Reverse(ops)
		for _, op := range ops {
			y.Apply(op, w.now)
		}
		if got := w.look(y, "a", m); got.Live != 0 || got.Pending != 0 {
			t.Errorf("cleared late %v, told backwards: %+v", late, got)
		}
		serve(x, "a", m, d, w.at(31*time.Second))
		for _, op := range drain(x, &c) {
			y.Apply(op, w.now)
		}
		if got := w.look(y, "a", m); got.Live != 6 {
			t.Errorf("prefilled anew: %+v", got)
		}
		check(t, x)
		check(t, y)
	}
}

func TestAPlacementMatchedBeforeTheClearingMustPrefillAllOfIt(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	m, d := prompt(1, 3, 1, 3)
	serve(x, "a", m, d, w.at(time.Second))
	p := x.Place("a", m, d, w.at(5*time.Second))
	x.Clear("a", x.clock.Stamp(at(4*time.Second)))
	if got := w.look(x, "a", m); got.Live != 0 || got.Pending != 6 {
		t.Errorf("after the clearing: %+v", got)
	}
	p.First(w.at(6 * time.Second))
	p.End(w.now)
	if got := w.look(x, "a", m); got.Live != 6 {
		t.Errorf("prefilled: %+v", got)
	}
	check(t, x)
}

// A restarted engine that is noticed late: what it was sent since is its own.
func TestWhatWasPlacedOnTheNewProcessSurvivesTheNoticing(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
	old, od := prompt(1, 4, 0, 0)
	serve(x, "a", old, od, w.at(time.Second))
	// The process was replaced at 8 s, and the next reading is taken at 20 s.
	fresh, fd := prompt(3, 4, 0, 0)
	serve(x, "a", fresh, fd, w.at(10*time.Second))
	stream := x.Place("a", fresh, fd, w.at(12*time.Second))
	stream.First(w.at(13 * time.Second))
	w.at(20 * time.Second)
	x.Clear("a", x.clock.Stamp(at(8*time.Second)))
	if got := x.Stats("a").Placements; got != 1 {
		t.Errorf("%d placements", got)
	}
	stream.End(w.at(21 * time.Second))
	w.pass(x, y)()
	for _, i := range []*Index{x, y} {
		if a, b := w.look(i, "a", old).Live, w.look(i, "a", fresh).Live; a != 0 || b != 4 {
			t.Errorf("%d and %d marks live, want none of the old process and 4 of the new", a, b)
		}
		check(t, i)
	}
}
