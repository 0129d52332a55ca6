package sketch

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"pgregory.net/rapid"
)

type holding struct {
	hash uint64
	slot state.Slot
}

// naive is what Lookup promises, mark by mark and replica by replica.
func naive(x *Index, held map[holding]*entry, marks []prefix.Mark, slots []state.Slot, now time.Time) []Match {
	dst := make([]Match, len(slots))
	replicas := *x.bySlot.Load()
	for i, slot := range slots {
		if int(slot) >= len(replicas) || replicas[slot] == nil {
			continue
		}
		r, m := replicas[slot], &dst[i]
		m.Trust = r.learn.now.trust
		for n := 1; n <= len(marks); n++ {
			e := held[holding{marks[n-1].Hash, slot}]
			if e == nil {
				continue
			}
			pending := pendOf(e.state.Load()) > 0
			switch {
			case r.live(e):
				m.Live, m.Pending, m.Faded = n, 0, 0
				if !e.answer() {
					m.Solid = n
				}
			case pending:
				m.Pending, m.PendingAge = n, time.Duration(x.ownTime(now)-e.since.Load())
			case !e.answer():
				m.Faded = n
			}
		}
		m.Answer = m.Solid < m.Live
		if m.Pending == 0 {
			m.PendingAge = 0
		}
	}
	return dst
}

// Replicas enough that several share a bit of the filter, caches so small that
// marks fade, and all phases of placements.
func TestLookupFindsWhatANaiveSearchFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 21))
		w := newWorld()
		x := w.index(1, Bounds{UnknownCapacity: 2000})
		ids := make([]state.ReplicaID, rapid.SampledFrom([]int{1, 3, 20, 130}).Draw(t, "replicas"))
		slots := []state.Slot{9999}
		for i := range ids {
			ids[i] = state.ReplicaID(fmt.Sprintf("replica-%d", i))
			slots = append(slots, w.slot(ids[i]))
		}
		text := func() ([]prefix.Mark, []int32) {
			return prompt(rng.IntN(2), 1+rng.IntN(6), rng.IntN(4), rng.IntN(25))
		}
		var open []*Placement
		for n := range 50 + 2*len(ids) {
			now := w.at(time.Duration(n+1) * 10 * time.Millisecond)
			id := ids[rng.IntN(len(ids))]
			m, d := text()
			switch k := rng.IntN(12); {
			case k < 5:
				serve(x, id, m, d, now)
			case k < 8:
				open = append(open, x.Place(id, m, d, now))
			case k == 8:
				x.Clear(id, x.clock.Stamp(now.Add(-time.Duration(rng.IntN(50))*time.Millisecond)))
			case k == 9 && rng.IntN(4) == 0:
				x.Forget(w.slot(id), id)
			case len(open) > 0:
				i := rng.IntN(len(open))
				p := open[i]
				switch rng.IntN(4) {
				case 0:
					p.First(now)
					continue
				case 1:
					p.Withdraw(now)
				case 2:
					p.Answer(m, d)
				}
				p.End(now)
				open = append(open[:i], open[i+1:]...)
			}
		}
		check(t, x)
		now := w.at(w.now.Sub(epoch) + time.Second)
		held := map[holding]*entry{}
		x.table.each(func(e *entry) { held[holding{e.hash, e.slot}] = e })
		for range 4 {
			m, _ := text()
			rng.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
			some := slots[:1+rng.IntN(len(slots))]
			got, want := make([]Match, len(some)), naive(x, held, m, some, now)
			x.Lookup(got, m, some, now)
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("slot %d of %d marks: %+v, want %+v", some[i], len(m), got[i], want[i])
				}
			}
		}
	})
}

func TestTheTableKnowsWhoHoldsWhat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 22))
		var tab table
		held := map[holding]*entry{}
		marks := rapid.IntRange(1, 60).Draw(t, "marks")
		random := func() holding { // of two shards, so that cells collide and are resized
			return holding{uint64(rng.IntN(2))<<63 | uint64(1+rng.IntN(marks)), state.Slot(rng.IntN(300))}
		}
		same := func() {
			var bytes int64
			for i := range tab.shards {
				for c := range tab.in(i) {
					bytes += cellBytes
					if h := c.many.Load(); h != nil {
						bytes += h.bytes()
					}
				}
			}
			if got := tab.bytes.Load(); got != bytes {
				t.Fatalf("%d bytes counted, there are %d", got, bytes)
			}
			for k, e := range held {
				if tab.get(k.hash, k.slot) != e {
					t.Fatalf("%x at %d is lost", k.hash, k.slot)
				}
			}
			n := 0
			tab.each(func(e *entry) {
				n++
				if held[holding{e.hash, e.slot}] != e {
					t.Fatalf("%x at %d was dropped", e.hash, e.slot)
				}
			})
			if n != len(held) {
				t.Fatalf("%d holders, want %d", n, len(held))
			}
		}
		for _, keep := range []int{8, 5, 2} { // of ten changes, those that add
			for range rapid.IntRange(0, 400).Draw(t, "changes") {
				k := random()
				switch e := held[k]; {
				case e == nil && tab.get(k.hash, k.slot) != nil:
					t.Fatalf("%x at %d was never put", k.hash, k.slot)
				case e == nil && rng.IntN(10) < keep:
					e = &entry{hash: k.hash, slot: k.slot}
					held[k] = e
					tab.put(e)
				case e != nil && rng.IntN(10) >= keep:
					tab.drop(e)
					delete(held, k)
				}
			}
			same()
		}
		for k, e := range held {
			tab.drop(e)
			delete(held, k)
		}
		same()
		if tab.bytes.Load() != 0 {
			t.Fatalf("%d bytes left of nothing", tab.bytes.Load())
		}
	})
}

// What a replica holds is found at every moment, whatever is written meanwhile to
// the same marks and the same shards.
func TestLookupMissesNothingBesideWrites(t *testing.T) {
	w := newWorld()
	x := New(Config{Clock: state.NewClock(1, epoch), Slots: w.slot, Now: func() time.Time { return epoch }})
	m, d := prompt(1, 40, 0, 0)
	slots := make([]state.Slot, 100)
	ids := make([]state.ReplicaID, len(slots))
	for i := range slots {
		ids[i] = state.ReplicaID(fmt.Sprintf("replica-%d", i))
		slots[i] = w.slot(ids[i])
	}
	x.Place(ids[70], m, d, epoch).First(epoch)
	done := make(chan struct{})
	var writers sync.WaitGroup
	for k := range 2 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 23))
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				i := 2*rng.IntN(len(ids)/2) + k
				if i == 70 || n%5 > 0 {
					i = 2*rng.IntN(4) + k // some come and go often, so that marks have one holder again
				}
				p := x.Place(ids[i], m[:1+rng.IntN(len(m))], d, epoch)
				p.Answer(prompt(2, rng.IntN(20), n, 200))
				p.End(epoch)
				x.Clear(ids[i], state.Stamp{Boot: 1, At: time.Duration(n)})
			}
		})
	}
	dst := make([]Match, len(slots))
	for n := range 3000 {
		x.Lookup(dst, m, slots, epoch)
		if got := dst[70].Live; got != len(m) {
			t.Errorf("look-up %d: %d of %d marks live", n, got, len(m))
			break
		}
	}
	close(done)
	writers.Wait()
	check(t, x)
}
