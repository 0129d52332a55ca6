package sketch

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// heap is the memory in use after what is garbage was collected.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fillUp inserts chains of 50 marks, each at so many replicas, until there are
// entries in all.
func fillUp(w *world, x *Index, replicas, holders, entries int) {
	ids := make([]state.ReplicaID, replicas)
	for i := range ids {
		ids[i] = state.ReplicaID(fmt.Sprintf("replica-%d", i))
		x.SetCapacity(ids[i], 1<<30, CapacityEngine)
	}
	seq := uint64(0)
	for n := 0; n < entries; {
		seq++
		links := make([]Link, 50)
		for i := range links {
			links[i] = Link{Hash: mix(seq, uint64(i)), Tokens: 100}
		}
		for h := range holders {
			now := w.at(time.Duration(seq)*time.Millisecond + time.Second)
			stamp := state.Stamp{Boot: 2, At: now.Sub(epoch)}
			x.Apply(Op{Kind: OpInsert, Replica: ids[(int(seq)+h)%replicas], Boot: 2, Stamp: stamp, Mark: links[49].Hash, Links: links}, now)
			n += len(links)
		}
	}
}

func TestBytesAreWhatTheHeapHolds(t *testing.T) {
	f := func(name string, replicas, holders, entries int) {
		t.Helper()
		w := newWorld()
		before := heap()
		x := w.index(1, Bounds{Bytes: 1 << 30, EntriesPerReplica: 1 << 30})
		fillUp(w, x, replicas, holders, entries)
		grown := heap() - before
		tot := x.Totals()
		var parts int64
		for i := range replicas {
			parts += x.Stats(state.ReplicaID(fmt.Sprintf("replica-%d", i))).Bytes
		}
		t.Logf("%s: %d entries, heap %d B each, counted %d, of replicas %d", name, tot.Entries, grown/int64(tot.Entries), tot.Bytes/int64(tot.Entries), parts/int64(tot.Entries))
		if off := float64(tot.Bytes)/float64(grown) - 1; off > 0.2 || off < -0.2 {
			t.Errorf("%s: %d bytes counted, the heap grew by %d: %+.0f %%", name, tot.Bytes, grown, off*100)
		}
		if tot.Entries < entries || parts > tot.Bytes || 10*parts < 8*tot.Bytes {
			t.Errorf("%s: %d entries, %d bytes, of replicas %d", name, tot.Entries, tot.Bytes, parts)
		}
		runtime.KeepAlive(x)
	}
	if underRace {
		f("each mark at one replica", 16, 1, 100_000)
		return
	}
	f("each mark at one replica", 16, 1, 1_000_000)
	f("each mark at three replicas", 16, 3, 150_000)
	f("each mark at forty replicas", 64, 40, 150_000)
	f("many replicas, few marks", 1000, 1, 50_000)
}

func TestUniquePromptsStayWithinTheBudgetAndSpareAHotPrefix(t *testing.T) {
	const replicas = 20
	budget, prompts := 12<<20, 20_000
	if underRace {
		budget, prompts = 6<<20, 8_000
	}
	w := newWorld()
	before := heap()
	x := w.index(1, Bounds{Bytes: budget})
	empty := heap() - before
	ids := make([]state.ReplicaID, replicas)
	for i := range ids {
		ids[i] = state.ReplicaID(fmt.Sprintf("replica-%d", i))
		x.SetCapacity(ids[i], 500_000, CapacityEngine)
	}
	hot, hd := prompt(0, 10, 0, 0)
	var half int64
	for i := range prompts {
		now := w.at(time.Duration(i) * 5 * time.Millisecond)
		m, d := prompt(1, 1, i, 12) // one mark in common, then nothing
		serve(x, ids[i%replicas], m, d, now)
		if i%50 == 0 {
			serve(x, ids[0], hot, hd, now)
		}
		if tot := x.Totals(); tot.Bytes > int64(budget+budget/32) {
			t.Fatalf("%d bytes of %d after %d prompts", tot.Bytes, budget, i)
		}
		if i == prompts/2 {
			half = heap() - before
		}
	}
	check(t, x)
	end := heap() - before
	tot := x.Totals()
	t.Logf("%+v; heap %d empty, %d half way, %d at the end", tot, empty, half, end)
	if end > int64(budget*6/5) || end > half+int64(budget/10) {
		t.Errorf("heap %d half way, %d at the end, of a budget of %d", half, end, budget)
	}
	if tot.Bytes < int64(budget*3/4) || tot.EvictedBytes == 0 || tot.EvictedLive == 0 || tot.EvictedEntries != 0 {
		t.Errorf("%+v", tot)
	}
	if got := w.look(x, ids[0], hot); got.Live != 10 {
		t.Errorf("the hot prefix: %+v", got)
	}
	var dropped uint64
	for _, id := range ids {
		s := x.Stats(id)
		dropped += s.Drops.NoRoom
		if s.Entries < tot.Entries/replicas*3/4 || s.Entries > tot.Entries/replicas*5/4 {
			t.Errorf("%s keeps %d of %d marks", id, s.Entries, tot.Entries)
		}
	}
	if dropped != tot.EvictedBytes {
		t.Errorf("replicas count %d marks evicted, all together %d", dropped, tot.EvictedBytes)
	}
	for i, id := range ids {
		if i == replicas/2 {
			check(t, x)
			if b := x.Totals().Bytes; b > tot.Bytes*3/4 {
				t.Errorf("half of the replicas gone, %d bytes of %d kept", b, tot.Bytes)
			}
		}
		x.Forget(state.Slot(i), id)
	}
	left := x.Totals()
	if left.Entries != 0 || left.Replicas != 0 || left.Tokens != 0 || x.table.bytes.Load() != 0 || x.weight.Load() != 0 {
		t.Errorf("left after removal: %+v", left)
	}
	// What stays is the journal, which is bounded by itself.
	if now := heap() - before; now > x.journal.bytes.Load()+empty+1<<20 {
		t.Errorf("heap %d when all are gone, %d when empty, journal %d", now, empty, x.journal.bytes.Load())
	}
	runtime.KeepAlive(x)
}

func TestTheBudgetIsSharedByNeed(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{Bytes: 4 << 20})
	x.SetCapacity("small", 200_000, CapacityEngine)
	x.SetCapacity("large", 800_000, CapacityEngine)
	prompts := 20_000
	if underRace {
		prompts = 6_000 // three times what fits
	}
	for i := range prompts {
		m, d := prompt(1, 1, i, 12)
		serve(x, []state.ReplicaID{"small", "large"}[i%2], m, d, w.at(time.Duration(i)*time.Millisecond))
	}
	s, l := x.Stats("small"), x.Stats("large")
	if ratio := float64(l.Tokens) / float64(s.Tokens); ratio < 3.4 || ratio > 4.6 {
		t.Errorf("small keeps %d tokens, large %d", s.Tokens, l.Tokens)
	}
	check(t, x)
}

func TestWhatIsFarthestBeyondItsHorizonGoesFirst(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{Bytes: 6 << 20})
	x.SetCapacity("wide", 100_000, CapacityEngine)
	x.SetCapacity("calm", 400_000, CapacityEngine)
	var kept [][2]int
	for i := range 400 { // 320k tokens: all alive
		m, d := prompt(2, 1, i, 12)
		serve(x, "calm", m, d, w.at(time.Duration(i)*time.Millisecond))
		kept = append(kept, [2]int{2, i})
	}
	prompts := 30_000
	if underRace {
		prompts = 8_000
	}
	for i := range prompts {
		m, d := prompt(3, 1, i, 12)
		id := state.ReplicaID("wide")
		if i%2 == 0 {
			id = state.ReplicaID(fmt.Sprintf("wide-%d", i%8))
			x.SetCapacity(id, 100_000, CapacityEngine)
		}
		serve(x, id, m, d, w.at(time.Duration(1000+i)*time.Millisecond))
	}
	for _, k := range kept {
		m, _ := prompt(k[0], 1, k[1], 12)
		if got := w.look(x, "calm", m); got.Live != 13 {
			t.Fatalf("prompt %d: %+v", k[1], got)
		}
	}
	if d := x.Stats("calm").Drops; d != (ReplicaDrops{Phases: d.Phases}) {
		t.Errorf("dropped of the calm one: %+v", d)
	}
	if tot := x.Totals(); tot.EvictedBytes == 0 || tot.EvictedLive != 0 {
		t.Errorf("%+v", tot)
	}
	check(t, x)
}

func TestTheJournalKeepsToItsShare(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{Bytes: 4 << 20, Journal: 1 << 12}) // whose chains may take 512 KiB
	for i := range 3000 {
		m, d := prompt(1, 1, i, 120)
		serve(x, "a", m, d, w.at(time.Duration(i)*time.Millisecond))
	}
	j := x.Journal()
	if b := j.bytes.Load(); b > opBytes<<12+4<<20/journalShare || x.Totals().JournalDropped == 0 {
		t.Errorf("%d bytes, %d ops given up", b, x.Totals().JournalDropped)
	}
	if _, _, gap := j.Read(j.Head()-4000, 1); !gap {
		t.Error("what was given up is a gap")
	}
	ops, next, gap := j.Read(j.Head()-2, 10)
	if len(ops) != 2 || next != j.Head() || gap {
		t.Errorf("the last ops: %d, gap %v", len(ops), gap)
	}
}
