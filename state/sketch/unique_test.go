package sketch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

// What two replicas share is neither's own, until one of them does not count.
func TestUniqueIsWhatNoOtherHolds(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	shared, depths := prompt(1, 10, 0, 0)
	own, ownDepths := prompt(1, 10, 7, 5)
	serve(x, "a", shared, depths, w.at(time.Second))
	serve(x, "b", own, ownDepths, w.at(2*time.Second))
	f := func(id state.ReplicaID, want int64, others ...state.ReplicaID) {
		t.Helper()
		var slots []state.Slot
		for _, o := range others {
			slots = append(slots, w.slot(o))
		}
		if got := x.Unique(id, slots); got != want {
			t.Errorf("%s beside %v: %d tokens, want %d", id, others, got, want)
		}
	}
	f("a", 0, "a", "b", "c")
	f("b", 5*64, "a", "b", "c")
	f("a", 10*64, "a", "c")
	f("b", 15*64)
	f("c", 0, "a", "b")
	// What is in flight at the other counts from its first token on.
	p := x.Place("c", own, ownDepths, w.at(3*time.Second))
	f("b", 5*64, "a", "c")
	p.First(w.at(4 * time.Second))
	f("b", 0, "a", "c")
	f("c", 0, "b")
	f("c", 15*64)
	p.End(w.at(5 * time.Second))
	// What the other is believed to have lost is the first one's alone.
	x.Clear("c", x.clock.Stamp(w.at(6*time.Second)))
	f("b", 5*64, "a", "c")
}

// It agrees with counting mark by mark, whatever happened.
func TestUniqueCountsAsANaiveSearchDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		w := newWorld()
		x := w.index(1, Bounds{UnknownCapacity: 2000})
		ids := make([]state.ReplicaID, rapid.SampledFrom([]int{1, 2, 5, 70}).Draw(t, "replicas"))
		for i := range ids {
			ids[i] = state.ReplicaID(fmt.Sprintf("replica-%d", i))
		}
		for n := range 100 {
			now := w.at(time.Duration(n+1) * 10 * time.Millisecond)
			m, d := prompt(rng.IntN(2), 1+rng.IntN(6), rng.IntN(4), rng.IntN(25))
			id := ids[rng.IntN(len(ids))]
			switch rng.IntN(8) {
			case 0:
				x.Place(id, m, d, now).First(now)
			case 1:
				x.Place(id, m, d, now)
			case 2:
				x.Clear(id, x.clock.Stamp(now.Add(-time.Duration(rng.IntN(50))*time.Millisecond)))
			default:
				serve(x, id, m, d, now)
			}
		}
		replicas := *x.bySlot.Load()
		holders := map[uint64][]*entry{} // alive
		x.table.each(func(e *entry) {
			if replicas[e.slot].live(e) {
				holders[e.hash] = append(holders[e.hash], e)
			}
		})
		for _, id := range ids {
			if x.find(id) == nil {
				continue
			}
			others := map[state.Slot]bool{}
			var slots []state.Slot
			for _, o := range ids {
				if rng.IntN(3) > 0 {
					others[w.slot(o)] = true
					slots = append(slots, w.slot(o))
				}
			}
			var want int64
			for _, list := range holders {
				var own int64
				elsewhere := false
				for _, e := range list {
					if e.slot == w.slot(id) {
						own = e.tokens()
					} else if others[e.slot] {
						elsewhere = true
					}
				}
				if !elsewhere {
					want += own
				}
			}
			if got := x.Unique(id, slots); got != want {
				t.Fatalf("%s: %d tokens, want %d", id, got, want)
			}
		}
		check(t, x)
	})
}
