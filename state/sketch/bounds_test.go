package sketch

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestUniquePromptsReachAPlateauAndSpareAHotPrefix(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{Entries: 20_000})
	ids := []state.ReplicaID{"a", "b", "c", "d"}
	hot, hd := prompt(0, 10, 0, 0)
	var half, end runtime.MemStats
	prompts := 24_000
	if underRace {
		prompts = 6_000 // four times what fits
	}
	for i := range prompts {
		now := w.at(time.Duration(i) * 10 * time.Millisecond)
		m, d := prompt(1, 3, i, 12)
		serve(x, ids[i%4], m, d, now)
		if i%50 == 0 {
			serve(x, "a", hot, hd, now)
		}
		if i == prompts/2 {
			runtime.GC()
			runtime.ReadMemStats(&half)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&end)
	check(t, x)
	tot := x.Totals()
	if tot.Entries > 20_000 || tot.Entries < 15_000 {
		t.Errorf("%d entries", tot.Entries)
	}
	if grown := int64(end.HeapAlloc) - int64(half.HeapAlloc); grown > 4<<20 {
		t.Errorf("heap grew by %d bytes after the bound was reached", grown)
	}
	if got := w.look(x, "a", hot); got.Live != 10 {
		t.Errorf("the hot prefix: %+v", got)
	}
	if tot.EvictedLive == 0 {
		t.Error("the bound is smaller than the cache, which is counted")
	}
	for i, id := range ids {
		x.Forget(state.Slot(i), id)
	}
	if tot := x.Totals(); tot.Entries != 0 || tot.Replicas != 0 {
		t.Errorf("left after removal: %+v", tot)
	}
}

func TestARemovedReplicaStaysRemovedUntilItIsHeardOfAnew(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
	m, d := prompt(1, 3, 1, 3)
	serve(x, "a", m, d, w.at(time.Second))
	w.at(2 * time.Second)
	x.Snapshot(func(op Op) bool { y.Apply(op, w.now); return true })
	y.Forget(w.slot("a"), "a")
	x.Snapshot(func(op Op) bool {
		if y.Apply(op, w.now) {
			t.Errorf("%v of before is no news", op.Kind)
		}
		return true
	})
	if y.Totals().Replicas != 0 {
		t.Error("the replica is back")
	}
	serve(x, "a", m, d, w.at(3*time.Second))
	x.Snapshot(func(op Op) bool { y.Apply(op, w.now); return true })
	if got := w.look(y, "a", m); got.Live != 6 {
		t.Errorf("heard anew: %+v", got)
	}
}

func TestPlacementsWithoutAnEndExpire(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{PlacementAge: time.Minute, Placements: 3})
	m, d := prompt(1, 3, 1, 3)
	first := x.Place("a", m, d, w.at(time.Second))
	first.First(w.now)
	for range 3 {
		x.Place("a", m, d, w.now)
	}
	w.pass(x, y)()
	if s := y.Stats("a"); s.Placements != 3 || y.Totals().PlacementsDropped != 1 {
		t.Errorf("%d placements, %+v", s.Placements, y.Totals())
	}
	y.Sweep(w.at(30 * time.Second))
	if n := y.Stats("a").Placements; n != 3 {
		t.Errorf("%d placements before their time", n)
	}
	y.Sweep(w.at(62 * time.Second))
	if n := y.Stats("a").Placements; n != 0 || y.Totals().PlacementsExpired != 3 {
		t.Errorf("%d placements, %+v", n, y.Totals())
	}
	if got := w.look(y, "a", m); got.Live != 6 || got.Pending != 0 {
		t.Errorf("what had a first token was used: %+v", got)
	}
	check(t, y)
}

func TestJournalTellsGaps(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{Journal: 8})
	j := x.Journal()
	changed := j.Changed()
	m, d := prompt(1, 1, 1, 1)
	serve(x, "a", m, d, w.at(time.Second))
	select {
	case <-changed:
	default:
		t.Error("an append closes the channel")
	}
	ops, next, gap := j.Read(0, 2)
	if len(ops) != 2 || next != 2 || gap || ops[0].Seq != 1 || ops[1].Seq != 2 {
		t.Errorf("read %d to %d, gap %v", len(ops), next, gap)
	}
	for i := range 5 {
		m, d := prompt(2+i, 1, 1, 1)
		serve(x, "a", m, d, w.at(time.Second))
	}
	ops, next, gap = j.Read(next, 100)
	if !gap || len(ops) != 8 || next != j.Head() || ops[7].Seq != next {
		t.Errorf("after an overrun: %d ops to %d of %d, gap %v", len(ops), next, j.Head(), gap)
	}
	if _, next, gap := j.Read(1<<40, 1); !gap || next > j.Head() {
		t.Error("a cursor of another start is a gap")
	}
	if ops, _, gap := j.Read(j.Head(), 5); len(ops) != 0 || gap {
		t.Error("nothing new is no gap")
	}
}

// Run with -race.
func TestConcurrentUse(t *testing.T) {
	w := newWorld()
	w.slots = map[state.ReplicaID]state.Slot{"a": 0, "b": 1, "c": 2}
	x, y := w.index(1, Bounds{Entries: 2000}), w.index(2, Bounds{Entries: 2000})
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	var wg sync.WaitGroup
	run := func(f func(n int)) {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				f(n)
			}
		})
	}
	ids := []state.ReplicaID{"a", "b", "c"}
	for g := range 2 {
		run(func(n int) {
			m, d := prompt(n%3, 3, n%50, 6)
			i := []*Index{x, y}[g]
			p := i.Place(ids[n%3], m, d, time.Now())
			if n%7 == 0 {
				p.Withdraw(time.Now())
				return
			}
			p.First(time.Now())
			p.Answer(m, d)
			p.Evidence(100, 600, n%600)
			p.End(time.Now())
		})
	}
	run(func(n int) {
		m, _ := prompt(n%3, 3, n%50, 6)
		var dst [3]Match
		x.Lookup(dst[:], m, []state.Slot{0, 1, 2}, time.Now())
		y.Lookup(dst[:2], m, []state.Slot{2, 0}, time.Now())
	})
	var cx, cy uint64
	run(func(int) {
		for _, op := range drain(x, &cx) {
			y.Apply(op, time.Now())
		}
		for _, op := range drain(y, &cy) {
			x.Apply(op, time.Now())
		}
	})
	run(func(n int) {
		x.Snapshot(func(Op) bool { return true })
		x.Stats("a")
		x.SetCapacity("b", float64(1000+n%2), CapacityEngine)
		if n%10 == 0 {
			x.DropBoot(2, time.Now())
			y.Clear("c", y.clock.Stamp(time.Now()))
			y.Forget(1, "b")
			_ = fmt.Sprint(y.Totals())
		}
	})
	wg.Wait()
	check(t, x)
	check(t, y)
}
