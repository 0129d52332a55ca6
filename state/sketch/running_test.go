package sketch

import (
	"testing"
	"time"
)

func none(uint64) bool { return false }

func TestAMissedEndIsMadeUpFor(t *testing.T) {
	w := newWorld()
	x, y := w.index(3, Bounds{}), w.index(1, Bounds{})
	pass := w.pass(x, y)
	m, d := prompt(1, 3, 1, 3)
	missed := x.Place("a", m, d, w.at(time.Second))
	missed.First(w.at(2 * time.Second))
	runs := x.Place("a", m, d, w.at(2*time.Second))
	waits := x.Place("a", m, d, w.at(2*time.Second))
	later := x.Place("a", m, d, w.at(20*time.Second))
	pass()
	y.Running(3, func(id uint64) bool { return id == runs.id }, w.at(10*time.Second))
	if s := y.Stats("a"); s.Placements != 2 || s.Lost != 1 {
		t.Errorf("%d placements and %d lost, want those that run and came later, and the one missed", s.Placements, s.Lost)
	}
	y.SetCapacity("a", 1000, CapacityEngine)
	runs.Withdraw(w.at(21 * time.Second))
	later.Withdraw(w.now)
	pass()
	if got := w.look(y, "a", m); got.Live == 0 {
		t.Error("what it used is forgotten at once")
	}
	for i := range 10 {
		o, od := prompt(10+i, 2, 0, 0)
		serve(y, "a", o, od, w.at(time.Duration(30+i)*time.Second))
	}
	if got := w.look(y, "a", m); got.Live != 0 {
		t.Errorf("still pinned beyond the horizon: %+v", got)
	}
	waits.First(w.at(50 * time.Second)) // it ran after all
	waits.End(w.at(51 * time.Second))
	pass()
	if s, got := y.Stats("a"), w.look(y, "a", m); s.Placements != 0 || got.Live != 6 {
		t.Errorf("told since: %+v, %+v", s, got)
	}
	check(t, y)
}

// Once all is told, it makes no difference that ends were taken for missed.
func TestWhatComesAfterAMissedEndCountsInFull(t *testing.T) {
	for _, name := range []string{"withdrawn", "ended"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			x := w.index(3, Bounds{})
			lives[name](w, x)
			var c uint64
			ops := drain(x, &c)
			told := func(order []int) string {
				y := w.index(1, Bounds{})
				w.at(20 * time.Second)
				for _, i := range order {
					if i == len(ops) {
						y.Running(3, none, at(10*time.Second))
						continue
					}
					y.Apply(ops[i], w.now)
				}
				check(t, y)
				return picture(y)
			}
			want := told(inOrder(len(ops)))
			permute(len(ops)+1, func(order []int) {
				if got := told(order); got != want {
					t.Fatalf("order %v:\n%swithout\n%s", order, got, want)
				}
			})
		})
	}
}
