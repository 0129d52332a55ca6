package sketch

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
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
	t.Parallel()
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
	t.Parallel()
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
				dead := false
				for c := range tab.in(i) {
					if c.hash.Load() == 0 && dead {
						t.Fatalf("a dead cell before a free one")
					}
					dead = c.hash.Load() != 0 && c.filter.Load() == 0
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

// A reader that has a mark's cell in hand meets nobody there when the mark has been
// dropped and the cell is another one's, of one holder or several.
func TestACellThatChangedHandsNamesNobody(t *testing.T) {
	const a, b = 1, 1 + 1<<40 // of one shard
	f := func(name string, slots ...state.Slot) {
		t.Helper()
		var tab table
		tab.put(&entry{hash: 2, slot: 5}) // so that the shard is not given up
		first := &entry{hash: a, slot: slots[0]}
		first.use.Store(1)
		tab.put(first)
		c := tab.find(a)
		meet := func() (m Match) {
			dst := make([]Match, len(slots))
			s := search{open: make([]int32, 64), bits: make([]uint64, 1), cand: make([]candidate, len(slots)), dst: dst, left: len(slots)}
			for i, slot := range slots {
				s.open[slot], s.bits[0] = int32(i)+1, s.bits[0]|filterBit(slot)
			}
			s.meet(c, a, 1)
			for _, d := range dst {
				m.Live += d.Live
			}
			return m
		}
		if m := meet(); m.Live != 1 {
			t.Errorf("%s: %+v of its own mark", name, m)
		}
		tab.drop(first)
		for _, slot := range slots {
			e := &entry{hash: b, slot: slot}
			e.use.Store(1)
			tab.put(e)
		}
		if tab.find(b) != c {
			t.Fatalf("%s: the cell was not used again", name)
		}
		if m := meet(); m.Live != 0 {
			t.Errorf("%s: %+v of another mark", name, m)
		}
		for _, slot := range slots {
			if tab.get(a, slot) != nil || tab.get(b, slot) == nil {
				t.Errorf("%s: slot %d holds the wrong mark", name, slot)
			}
		}
	}
	f("one holder", 7)
	f("several holders", 7, 8, 9)
}

// Marks that come and go in one shard, whose cells change hands all the time, hide none
// that stays, and nobody is met at a mark that he never held.
func TestNoReaderIsMisledByCellsThatChangeHands(t *testing.T) {
	const marks, slots, stays, enough = 60, 5, 4, 200_000
	var tab table
	put := func(n int, slot state.Slot) *entry {
		e := &entry{hash: mix(uint64(n)+1, 0) >> shardBits, slot: slot} // all of one shard
		e.use.Store(1)
		tab.put(e)
		return e
	}
	// One replica holds every third mark for good, two each come and go at the even and
	// at the odd marks.
	holds := func(n int, slot state.Slot) bool {
		if slot == stays {
			return n%3 == 0
		}
		return n%2 == int(slot)%2
	}
	for n := 0; n < marks; n += 3 {
		put(n, stays)
	}
	var writers sync.WaitGroup
	var changes atomic.Int64
	for k := range stays {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 24))
			mine := map[int]*entry{}
			for changes.Add(1) < enough {
				n := rng.IntN(marks)
				if e := mine[n]; e != nil {
					tab.drop(e)
					delete(mine, n)
				} else if holds(n, state.Slot(k)) {
					mine[n] = put(n, state.Slot(k))
				}
			}
		})
	}
	s := search{open: make([]int32, 64), bits: make([]uint64, 1), cand: make([]candidate, slots), dst: make([]Match, slots)}
	for read := 0; changes.Load() < enough; read++ {
		n := read % marks
		hash := mix(uint64(n)+1, 0) >> shardBits
		c := tab.find(hash)
		if read%4 == 0 {
			runtime.Gosched() // much may happen between finding a cell and looking at it
		}
		clear(s.dst)
		for slot := range slots {
			s.open[slot], s.bits[0] = int32(slot)+1, s.bits[0]|1<<slot
		}
		s.left = slots
		if c != nil {
			s.meet(c, hash, 1)
		}
		for slot := range s.dst {
			if met, may := s.dst[slot].Live == 1, holds(n, state.Slot(slot)); met && !may || !met && may && slot == stays {
				changes.Store(enough)
				writers.Wait()
				t.Fatalf("read %d: mark %d at replica %d: met %v, holds it %v", read, n, slot, met, may)
			}
		}
	}
	writers.Wait()
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
