package sketch

import (
	"testing"
	"time"
)

func TestPlacementLife(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	m, d := prompt(1, 3, 1, 4)
	other, _ := prompt(1, 3, 2, 4)
	want := func(name string, got, want Match) {
		t.Helper()
		want.Trust = got.Trust
		if got != want {
			t.Fatalf("%s: got %+v, want %+v", name, got, want)
		}
	}
	want("nothing known", w.look(x, "a", m), Match{})
	p := x.Place("a", m, d, w.at(time.Second))
	w.at(3 * time.Second)
	want("pending", w.look(x, "a", m), Match{Pending: 7, PendingAge: 2 * time.Second})
	want("pending stem", w.look(x, "a", other), Match{Pending: 3, PendingAge: 2 * time.Second})
	p.First(w.now)
	want("resident", w.look(x, "a", other), Match{Live: 3, Solid: 3})
	long, ld := prompt(1, 3, 1, 6)
	p.Answer(long, ld)
	p.End(w.at(4 * time.Second))
	want("answered", w.look(x, "a", long), Match{Live: 9, Solid: 7, Answer: true})
	check(t, x)

	q := x.Place("a", long, ld, w.at(5*time.Second))
	q.First(w.now)
	q.End(w.now)
	want("sent back", w.look(x, "a", long), Match{Live: 9, Solid: 9})

	v := x.Place("b", m, d, w.now)
	v.Withdraw(w.now)
	v.First(w.now)
	v.End(w.now)
	want("withdrawn", w.look(x, "b", m), Match{})
	check(t, x)
}
