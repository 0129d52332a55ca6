package sketch

import (
	"fmt"
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

func BenchmarkLookup(b *testing.B) {
	for _, replicas := range []int{5, 25, 64, 100, 400} {
		b.Run(fmt.Sprintf("marks=100/replicas=%d", replicas), func(b *testing.B) {
			x, m, slots := filled(b, replicas, 100, 20)
			dst := make([]Match, len(slots))
			now := at(3 * time.Second)
			b.ReportAllocs()
			start := cpuTime()
			for b.Loop() {
				x.Lookup(dst, m, slots, now)
			}
			b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
		})
	}
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
