package sketch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// filled is an index of so many replicas: each holds a part of one long prompt, as
// deep as its number, and other prompts.
func filled(tb testing.TB, replicas, marks, others int) (*Index, []prefix.Mark, []state.Slot) {
	tb.Helper()
	w := newWorld()
	x := w.index(1, Bounds{})
	slots := make([]state.Slot, replicas)
	long, depth := prompt(1, marks, 0, 0)
	for i := range replicas {
		id := state.ReplicaID(fmt.Sprintf("replica-%d", i))
		slots[i] = w.slot(id)
		x.SetCapacity(id, 1e6, CapacityEngine)
		for o := range others {
			m, d := prompt(100+i*others+o, marks, 0, 0)
			serve(x, id, m, d, w.at(time.Second))
		}
		n := max(1, marks*(i+1)/replicas)
		serve(x, id, long[:n], depth[:n], w.at(2*time.Second))
	}
	return x, long, slots
}

// cpuTime is what the process used so far: on a busy machine the fair measure.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// quantiles reports the middle and the slow end of single calls, by wall clock: a
// busy machine shows in p99.
func quantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	if n := len(took); n > 0 {
		b.ReportMetric(float64(took[n/2]), "p50-ns")
		b.ReportMetric(float64(took[n*99/100]), "p99-ns")
	}
}

// cpuPerOp reports the CPU used until the returned function is called.
func cpuPerOp(b *testing.B) func() {
	start := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op") }
}

func BenchmarkLookup(b *testing.B) {
	for _, replicas := range []int{5, 25, 64, 100, 400, 1000} {
		b.Run(fmt.Sprintf("marks=100/replicas=%d", replicas), func(b *testing.B) {
			x, m, slots := filled(b, replicas, 100, 20)
			dst := make([]Match, len(slots))
			now := at(3 * time.Second)
			took := make([]time.Duration, 0, 1<<20)
			b.ReportAllocs()
			start := cpuTime()
			for b.Loop() {
				t := time.Now()
				x.Lookup(dst, m, slots, now)
				if len(took) < cap(took) {
					took = append(took, time.Since(t))
				}
			}
			b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
			quantiles(b, took)
		})
	}
}

// Each long write goes on in a loop beside the lookups that are timed.
func BenchmarkLookupBesideLongWrites(b *testing.B) {
	const entries, replicas = 1_000_000, 64
	w := newWorld()
	w.now = at(time.Hour)
	clock := func() time.Time { return at(time.Hour) }
	x := New(Config{Clock: state.NewClock(1, epoch), Slots: w.slot, Bounds: Bounds{Bytes: 1 << 30, EntriesPerReplica: 1 << 30}, Now: clock})
	x.clock.Observe(2, 0, epoch)
	fillUp(w, x, replicas, 1, entries)
	long, d := prompt(1, 100, 0, 0)
	slots := make([]state.Slot, replicas)
	for i := range slots {
		slots[i] = w.slot(state.ReplicaID(fmt.Sprintf("replica-%d", i)))
		n := 100 * (i + 1) / replicas
		serve(x, state.ReplicaID(fmt.Sprintf("replica-%d", i)), long[:max(1, n)], d[:max(1, n)], at(time.Hour))
	}
	var file bytes.Buffer
	if err := x.Save(&file); err != nil {
		b.Fatal(err)
	}
	dead := time.Duration(0)
	writes := []struct {
		name string
		do   func()
	}{
		{"nothing", nil},
		{"spinning", func() { // what a second busy thread costs on this machine
			for i := range 1 << 20 {
				_ = mix(uint64(i), 1)
			}
		}},
		{"snapshot", func() { x.Snapshot(func(Op) bool { return true }) }},
		{"save", func() { _ = x.Save(io.Discard) }},
		{"load", func() { _ = x.Load(bytes.NewReader(file.Bytes())) }},
		{"sweep", func() { x.Sweep(at(time.Hour)) }},
		{"clear", func() {
			dead += time.Second
			for i := range replicas {
				x.Clear(state.ReplicaID(fmt.Sprintf("replica-%d", i)), state.Stamp{Boot: 1, At: dead})
			}
		}},
		{"forget", func() {
			for i := range replicas - 1 {
				x.Forget(0, state.ReplicaID(fmt.Sprintf("replica-%d", i)))
			}
			_ = x.Load(bytes.NewReader(file.Bytes()))
		}},
	}
	for _, write := range writes {
		b.Run(write.name, func(b *testing.B) {
			ctx, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			rounds := 0
			if write.do != nil {
				wg.Go(func() {
					for ; ctx.Err() == nil; rounds++ {
						write.do()
					}
				})
			}
			dst := make([]Match, len(slots))
			took := make([]time.Duration, 0, 1<<20)
			now := at(time.Hour)
			for b.Loop() {
				t := time.Now()
				x.Lookup(dst, long, slots, now)
				if len(took) < cap(took) {
					took = append(took, time.Since(t))
				}
			}
			b.StopTimer()
			stop()
			wg.Wait()
			b.ReportMetric(float64(rounds), "writes")
			quantiles(b, took)
		})
	}
}

// Ten routers' news of a thousand replicas, and a hundred routers' of 64: each op
// is a placement of a prompt of 30 marks, half of them shared by many, with first
// token and end.
func BenchmarkApply(b *testing.B) {
	for _, size := range []struct{ routers, replicas int }{{100, 64}, {10, 1000}} {
		b.Run(fmt.Sprintf("routers=%d/replicas=%d", size.routers, size.replicas), func(b *testing.B) {
			w := newWorld()
			x := w.index(1, Bounds{})
			ids := make([]state.ReplicaID, size.replicas)
			for i := range ids {
				ids[i] = state.ReplicaID(fmt.Sprintf("replica-%d", i))
				x.SetCapacity(ids[i], 500_000, CapacityEngine)
			}
			seqs := make([]uint64, size.routers)
			for i := range seqs {
				x.clock.Observe(state.BootID(i+2), 0, epoch)
			}
			// The ops are made before, so that only Apply is timed.
			const kept = 1 << 12
			ops := make([]Op, 0, 3*kept)
			for n := range kept {
				links := make([]Link, 30)
				for i := range links {
					of := uint64(n)
					if i < 15 {
						of = uint64(n % 50)
					}
					links[i] = Link{Hash: mix(of+1, uint64(i)), Tokens: 100}
				}
				boot := state.BootID(n%size.routers + 2)
				op := Op{Kind: OpPlace, Replica: ids[n*7%size.replicas], Boot: boot, Mark: links[29].Hash, Links: links, Placement: uint64(n)}
				first, end := op, op
				first.Kind, end.Kind = OpFirst, OpEnd
				first.Links, end.Links, first.Mark = nil, nil, 0
				ops = append(ops, op, first, end)
			}
			before := heap()
			n, round := 0, uint64(0)
			b.ReportAllocs()
			start := cpuTime()
			for b.Loop() {
				op := ops[n%len(ops)]
				if n%len(ops) == 0 {
					round++
				}
				op.Placement += round * kept
				k := int(op.Boot) - 2
				seqs[k]++
				t := time.Duration(n)*10*time.Microsecond + time.Second
				op.Seq, op.Stamp = seqs[k], state.Stamp{Boot: op.Boot, At: t}
				x.Apply(op, at(t))
				n++
			}
			b.ReportMetric(float64(n)/(cpuTime()-start).Seconds(), "ops/cpu-s")
			b.ReportMetric(float64(heap()-before)/float64(x.Totals().Entries), "heap-B/entry")
			b.ReportMetric(float64(x.Totals().Entries), "entries")
			runtime.KeepAlive(x)
		})
	}
}

// A million entries at 64 replicas: everything of them at once.
func BenchmarkWhole(b *testing.B) {
	w := newWorld()
	x := w.index(1, Bounds{Bytes: 1 << 30, EntriesPerReplica: 1 << 30})
	fillUp(w, x, 64, 1, 1_000_000)
	w.at(time.Hour)
	var file bytes.Buffer
	if err := x.Save(&file); err != nil {
		b.Fatal(err)
	}
	b.Run("snapshot", func(b *testing.B) {
		ops, links := 0, 0
		defer cpuPerOp(b)()
		for b.Loop() {
			ops, links = 0, 0
			x.Snapshot(func(op Op) bool { ops++; links += len(op.Links); return true })
		}
		b.ReportMetric(float64(ops), "ops")
		b.ReportMetric(float64(links), "links")
	})
	b.Run("save", func(b *testing.B) {
		defer cpuPerOp(b)()
		for b.Loop() {
			_ = x.Save(io.Discard)
		}
		b.ReportMetric(float64(file.Len()), "file-B")
	})
	b.Run("load", func(b *testing.B) {
		defer cpuPerOp(b)()
		for b.Loop() {
			y := w.index(2, Bounds{Bytes: 1 << 30, EntriesPerReplica: 1 << 30})
			if err := y.Load(bytes.NewReader(file.Bytes())); err != nil || y.Totals().Entries < 1_000_000 {
				b.Fatal(err, y.Totals().Entries)
			}
		}
	})
}

func BenchmarkPlacement(b *testing.B) {
	x, m, _ := filled(b, 8, 100, 20)
	_, d := prompt(1, 100, 0, 0)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		now := at(time.Duration(n) * time.Millisecond)
		p := x.Place("replica-3", m, d, now)
		p.First(now)
		p.End(now)
	}
}

// Prompts that nobody has seen, at a replica that remembers as much as it may: each of
// their marks is new, and as many old ones go.
func BenchmarkPlacementOfNewPrompts(b *testing.B) {
	for _, marks := range []int{3, 60, 100} {
		b.Run(fmt.Sprintf("marks=%d", marks), func(b *testing.B) {
			w := newWorld()
			x := w.index(1, Bounds{})
			x.SetCapacity("replica", 400_000, CapacityEngine)
			m, d := prompt(1, marks, 0, 0)
			n := 0
			one := func() {
				n++
				now := at(time.Duration(n) * time.Millisecond)
				for i := range m {
					m[i].Hash = mix(uint64(n), uint64(i))
				}
				p := x.Place("replica", m, d, now)
				p.First(now)
				p.End(now)
			}
			for x.Totals().EvictedOld == 0 {
				one()
			}
			b.ReportAllocs()
			defer cpuPerOp(b)()
			for b.Loop() {
				one()
			}
		})
	}
}

func BenchmarkApplyTouch(b *testing.B) {
	x, m, _ := filled(b, 8, 100, 20)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		t := time.Duration(n) * time.Millisecond
		x.Apply(Op{Kind: OpTouch, Replica: "replica-7", Boot: 2, Seq: uint64(n), Stamp: state.Stamp{Boot: 2, At: t}, Mark: m[99].Hash}, at(t))
	}
}
