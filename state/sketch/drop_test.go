package sketch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"pgregory.net/rapid"
)

// lives are what a router may tell of a placement, each at its second.
var lives = map[string]func(w *world, x *Index){
	"placed": func(w *world, x *Index) {
		m, d := prompt(1, 3, 1, 3)
		x.Place("a", m, d, w.at(time.Second))
	},
	"withdrawn": func(w *world, x *Index) {
		m, d := prompt(1, 3, 1, 3)
		x.Place("a", m, d, w.at(time.Second)).Withdraw(w.at(2 * time.Second))
	},
	"streaming": func(w *world, x *Index) {
		m, d := prompt(1, 3, 1, 3)
		x.Place("a", m, d, w.at(time.Second)).First(w.at(2 * time.Second))
	},
	"ended": func(w *world, x *Index) {
		m, d := prompt(1, 3, 1, 3)
		p := x.Place("a", m, d, w.at(time.Second))
		p.First(w.at(2 * time.Second))
		long, ld := prompt(1, 3, 1, 5)
		p.Answer(long, ld)
		p.End(w.at(3 * time.Second))
		w.at(4 * time.Second)
		p.Evidence(0, 400, 0)
	},
	"measured while streaming": func(w *world, x *Index) {
		m, d := prompt(1, 3, 1, 3)
		p := x.Place("a", m, d, w.at(time.Second))
		p.First(w.at(2 * time.Second))
		w.at(3 * time.Second)
		p.Evidence(0, 400, 0)
	},
	"two on one path": func(w *world, x *Index) {
		m, d := prompt(1, 3, 1, 3)
		p := x.Place("a", m, d, w.at(time.Second))
		q := x.Place("a", m[:4], d[:4], w.at(2*time.Second))
		p.First(w.at(3 * time.Second))
		q.Withdraw(w.at(4 * time.Second))
	},
}

// inOrder is 0..n-1.
func inOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// permute calls f with every order of 0..n-1.
func permute(n int, f func([]int)) {
	order := inOrder(n)
	var rec func(int)
	rec = func(k int) {
		if k == n {
			f(order)
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			rec(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	rec(0)
}

func TestWhatComesAfterDropBootCountsAsIfItCameBefore(t *testing.T) {
	for name, life := range lives {
		for _, instant := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond, 10 * time.Second} {
			t.Run(fmt.Sprintf("%s, dead at %v", name, instant), func(t *testing.T) {
				w := newWorld()
				x := w.index(3, Bounds{})
				life(w, x)
				var c uint64
				ops := drain(x, &c)
				told := func(order []int) (string, Match) {
					y := w.index(1, Bounds{})
					w.at(20 * time.Second)
					for _, i := range order {
						if i == len(ops) {
							y.DropBoot(3, at(instant))
							continue
						}
						y.Apply(ops[i], w.now)
						y.Apply(ops[i], w.now)
					}
					check(t, y)
					m, _ := prompt(1, 3, 1, 5)
					return picture(y), w.look(y, "a", m)
				}
				want, wantMatch := told(inOrder(len(ops) + 1))
				permute(len(ops)+1, func(order []int) {
					if got, match := told(order); got != want || match != wantMatch {
						t.Fatalf("order %v:\n%s%+v\nin order:\n%s%+v", order, got, match, want, wantMatch)
					}
				})
			})
		}
	}
}

func TestAStreamOfADeadRouterStaysWarmUntilTheHorizonPassesItsDeath(t *testing.T) {
	w := newWorld()
	x, y := w.index(3, Bounds{}), w.index(1, Bounds{})
	y.SetCapacity("a", 1000, CapacityEngine)
	m, d := prompt(1, 4, 0, 0)
	p := x.Place("a", m, d, w.at(time.Second))
	p.First(w.at(2 * time.Second))
	pass := w.pass(x, y)
	pass()
	fill := func(from, n int) {
		for i := range n {
			o, od := prompt(from+i, 2, 0, 0)
			serve(y, "a", o, od, w.at(time.Duration(from+i)*time.Second))
		}
	}
	fill(10, 10) // the stream outlasts all of it
	y.DropBoot(3, w.at(20*time.Second))
	if s := y.Stats("a"); s.Placements != 0 {
		t.Errorf("%d placements of the living", s.Placements)
	}
	fill(21, 2)
	if got := w.look(y, "a", m); got.Live != 4 {
		t.Errorf("used until the death: %+v", got)
	}
	fill(30, 10)
	if got := w.look(y, "a", m); got.Live != 0 {
		t.Errorf("passed by the horizon: %+v", got)
	}
	p.End(w.at(45 * time.Second)) // it was only cut off
	pass()
	if got := w.look(y, "a", m); got.Live != 4 {
		t.Errorf("the end of one who lives: %+v", got)
	}
	check(t, y)
}

// All routers find one of them dead at one instant but hear of it, and of what it
// told before and, being cut off only, tells after, in any order.
func TestARouterFoundDeadInAnyOrderConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
		steps := rapid.IntRange(1, 80).Draw(t, "steps")
		death := rapid.IntRange(0, steps).Draw(t, "death")
		c := newCluster(4, Bounds{})
		dead := c.rs[3]
		knows := map[*router]bool{dead: true}
		learn := func(r *router) {
			if !knows[r] {
				knows[r] = true
				r.x.DropBoot(4, at(time.Duration(death)*100*time.Millisecond+50*time.Millisecond))
			}
		}
		for n := range steps {
			c.w.at(time.Duration(n+1) * 100 * time.Millisecond)
			c.step(rng, c.rs[rng.IntN(4)])
			c.spread(rng.IntN(2) == 0)
			c.deliver(rng, false)
			if n >= death && rng.IntN(4) == 0 {
				learn(c.rs[rng.IntN(3)])
			}
		}
		for _, r := range c.rs[:3] {
			learn(r)
		}
		c.settle(rng)
		c.equal(t, c.rs[:3])
		for _, r := range c.rs[:3] {
			check(t, r.x)
		}
		// It ends what it has: nothing is left of it, and they know what it knows.
		for _, p := range dead.open {
			p.End(c.w.at(time.Minute))
		}
		for _, r := range c.rs[:3] {
			for _, p := range r.open {
				p.End(c.w.now)
			}
		}
		c.settle(rng)
		c.equal(t, c.rs)
		for _, r := range c.rs {
			check(t, r.x)
			for _, id := range []state.ReplicaID{"a", "b"} {
				if f := r.x.find(id); f != nil && (len(f.flights) != 0 || f.lost != 0) {
					t.Fatalf("%d placements left, %d lost", len(f.flights), f.lost)
				}
			}
		}
	})
}

func TestARouterThatLivesAfterAllIsHeard(t *testing.T) {
	w := newWorld()
	x, y := w.index(3, Bounds{}), w.index(1, Bounds{})
	pass := w.pass(x, y)
	m, d := prompt(1, 3, 1, 3)
	before := x.Place("a", m, d, w.at(time.Second))
	pass()
	y.DropBoot(3, w.at(5*time.Second))
	if got := w.look(y, "a", m); got.Pending != 0 || y.Totals().Entries != 0 {
		t.Errorf("pending of the dead: %+v", got)
	}
	n, nd := prompt(2, 3, 1, 3)
	after := x.Place("a", n, nd, w.at(6*time.Second))
	pass()
	if got := w.look(y, "a", n); got.Pending != 6 {
		t.Errorf("placed since: %+v", got)
	}
	before.First(w.at(7 * time.Second))
	pass()
	if got := w.look(y, "a", m); got.Live != 6 || y.Stats("a").Placements != 2 {
		t.Errorf("a first token since: %+v, %+v", got, y.Stats("a"))
	}
	before.End(w.at(8 * time.Second))
	after.Withdraw(w.now)
	pass()
	if picture(x) != picture(y) {
		t.Errorf("one knows\n%sthe other\n%s", picture(x), picture(y))
	}
	y.DropBoot(3, at(2*time.Second)) // an earlier instant changes nothing
	check(t, y)
}

func TestGhostsAreBoundedAndEndWithTheReplica(t *testing.T) {
	w := newWorld()
	x, y := w.index(3, Bounds{}), w.index(1, Bounds{})
	for i := range 2 * maxTombs {
		m, d := prompt(i, 2, 0, 0)
		x.Place("a", m, d, w.at(time.Second))
	}
	w.pass(x, y)()
	y.DropBoot(3, w.at(2*time.Second))
	r := y.find("a")
	if n := len(r.tombs.m); n != maxTombs || y.Totals().Entries != 0 {
		t.Errorf("%d tombs, %+v", n, y.Totals())
	}
	y.Forget(w.slot("a"), "a")
	if len(r.tombs.m) != 0 {
		t.Error("tombs outlive the replica")
	}
	check(t, y)
}
