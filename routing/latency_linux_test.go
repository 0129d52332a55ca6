package routing_test

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// spread counts durations in buckets that are at most 1/32 of their value wide.
type spread struct {
	buckets [64 << 5]uint64
	count   uint64
	sum     time.Duration
	most    time.Duration
}

func (s *spread) add(d time.Duration) {
	d = max(d, 0)
	s.buckets[bucketOf(uint64(d))]++
	s.count++
	s.sum += d
	s.most = max(s.most, d)
}

func bucketOf(ns uint64) int {
	if ns < 32 {
		return int(ns)
	}
	e := bits.Len64(ns) - 6
	return e<<5 + int(ns>>e)
}

// at is the largest duration of the bucket that holds the quantile.
func (s *spread) at(q float64) time.Duration {
	rank := uint64(q * float64(s.count))
	var seen uint64
	for i, n := range s.buckets {
		if seen += n; n > 0 && seen > rank {
			if i < 32 {
				return time.Duration(i)
			}
			e := i>>5 - 1
			return time.Duration(min(uint64(i-e<<5+1)<<e-1, uint64(s.most)))
		}
	}
	return s.most
}

func TestSpreadFindsQuantilesWithinAThirtySecond(t *testing.T) {
	var s spread
	for i := range 100_000 {
		s.add(time.Duration(i))
	}
	for _, q := range []float64{0, 0.001, 0.5, 0.99, 0.999} {
		want := 100_000 * q
		if got := float64(s.at(q)); got < want || got > want*33/32+1 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if s.at(1) != 99_999 {
		t.Errorf("the largest is %v", s.at(1))
	}
}

// threadTime is the CPU time of this thread: unlike the wall clock it does not
// count what the machine did meanwhile.
func threadTime() time.Duration {
	const clockThreadCPU = 3
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPU, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// cost is what reading a clock twice adds to what is measured between.
func cost(clock func() time.Duration) time.Duration {
	var s spread
	for range 10_000 {
		begin := clock()
		s.add(clock() - begin)
	}
	return s.at(0.5)
}

// busy is a picker over n replicas with load, readings, a real sketch with many
// prompts, and requests for prompts of which some replicas hold some part.
type busy struct {
	w     *world
	index *sketch.Index
	pick  *routing.Picker
	reqs  []*routing.Request
}

// prompts is how many a measurement rotates over, so that none stays in the
// processor's nearest cache.
const prompts = 32

func newBusy(b testing.TB, n, tokens int) *busy {
	w := newWorld(b, n, "")
	x := &busy{w: w}
	for i := range n {
		w.load(i, state.Load{InFlight: int64(i % 7), Prefill: int64(i % 3), UncachedTokens: int64(i%3) * 800})
		w.read(i, func(r *state.Reading) { r.Running, r.Waiting, r.KVUsage, r.Capacity = float64(i%7), 0, 0.5, 500_000 })
		w.cal.Seed(w.replica(i).Slot, id(i), "chat", routing.DefaultParams())
	}
	// The other router's clock is known, so that its ops can be placed.
	w.store.Clock().Observe(2, 0, w.now)
	x.index = sketch.New(sketch.Config{Clock: w.store.Clock(), Slots: w.store.SlotOf})
	serve := func(i int, marks []prefix.Mark, depths []int32) {
		p := x.index.Place(id(i), marks, depths, w.now)
		p.First(w.now)
		p.End(w.now)
	}
	for k := range 8 * n {
		marks, depths := deep(2000, uint64(k+1000))
		serve(k%n, marks, depths)
	}
	v := w.store.View()
	for k := range prompts {
		marks, depths := deep(tokens, uint64(k+1))
		for i := range n {
			if (i+k)%4 == 0 {
				m := max(1, len(marks)*((i+k)%16+1)/17)
				serve(i, marks[:m], depths[:m])
			}
		}
		x.reqs = append(x.reqs, &routing.Request{Pool: v.Pools[0], Marks: marks, Tokens: depths, PromptTokens: tokens + 20, MaxTokens: 500})
	}
	w.weigh(nil, false)
	x.pick = routing.NewPicker(routing.Config{}, x.index, w.cal)
	return x
}

// gossip applies what other routers tell, until ctx ends: five requests a second at
// each replica, in batches of 10 ms. Each is a placement of a 4k-token prompt whose
// last eight marks are new, its first token, its end, two changes of a load row, and
// 32 KB of garbage, as serving requests makes it.
func (x *busy) gossip(ctx context.Context, n int) {
	rng := rand.New(rand.NewPCG(1, 2))
	const every = 10 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	start, owed, seq := time.Now(), 0.0, uint64(0)
	var garbage []byte
	for placement := uint64(1); ; {
		select {
		case <-ctx.Done():
			runtime.KeepAlive(garbage)
			return
		case <-tick.C:
		}
		since := time.Since(start)
		now := x.w.now.Add(since)
		var rows []state.Row
		for owed += 5 * float64(n) * every.Seconds(); owed >= 1; owed-- {
			to := rng.IntN(n)
			marks, depths := deep(4000, 7+rng.Uint64N(64))
			k := len(marks) - 8
			op := sketch.Op{Kind: sketch.OpPlace, Replica: id(to), Boot: 2, Stamp: state.Stamp{Boot: 2, At: since}, Placement: placement, Parent: marks[k-1].Hash}
			for i := k; i < len(marks); i++ {
				op.Links = append(op.Links, sketch.Link{Hash: rng.Uint64() | 1, Tokens: uint32(depths[i] - depths[i-1])})
			}
			op.Mark = op.Links[len(op.Links)-1].Hash
			for _, kind := range []sketch.OpKind{sketch.OpPlace, sketch.OpFirst, sketch.OpEnd} {
				seq++
				op.Kind, op.Seq = kind, seq
				if kind != sketch.OpPlace {
					op.Links, op.Parent = nil, 0
				}
				x.index.Apply(op, now)
			}
			placement++
			rows = append(rows, state.Row{Replica: id(to), Load: state.Load{InFlight: int64(rng.IntN(7)), Prefill: 1, UncachedTokens: int64(rng.IntN(3000))}})
			garbage = make([]byte, 32<<10)
		}
		x.w.seq++
		x.w.store.ApplyRows(state.Rows{Router: "other", Boot: 2, Seq: x.w.seq, Rows: rows})
	}
}

// spin is as much arithmetic as takes some 20 us and needs no memory.
func spin(from uint64) uint64 {
	for range 30_000 {
		from = from*3 + 1
	}
	return from
}

// BenchmarkPickLatency reports the distribution of a whole pick, look-up and scores
// of all replicas: by the wall clock and by the thread's CPU time, less what
// reading the clocks costs; quiet, and while another router's gossip is applied.
// What the machine adds by itself (interrupts, other guests, caches emptied by other
// processes) shows in spin-x: how much longer than its median pure arithmetic took
// in the slowest of a hundred times.
func BenchmarkPickLatency(b *testing.B) {
	for _, n := range []int{5, 25, 64, 100, 400} {
		for _, tokens := range []int{1000, 8000, 32000, 128000} {
			b.Run(fmt.Sprintf("replicas=%d/tokens=%d", n, tokens), func(b *testing.B) {
				x := newBusy(b, n, tokens)
				b.Run("beside=nothing", x.measure)
				b.Run("beside=gossip", func(b *testing.B) {
					ctx, stop := context.WithCancel(context.Background())
					var writer sync.WaitGroup
					defer writer.Wait()
					defer stop()
					writer.Go(func() { x.gossip(ctx, n) })
					x.measure(b)
				})
			})
		}
	}
}

func (x *busy) measure(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := time.Now()
	wallClock := func() time.Duration { return time.Since(start) }
	wallCost, cpuCost := cost(wallClock), cost(threadTime)
	var wall, cpu spread
	var c routing.Choice
	turn := 0
	// Every other pick is timed by the one clock and every other by the other, so
	// that neither measures reading the other.
	timed := func(clock func() time.Duration, less time.Duration, s *spread) {
		req, v := x.reqs[turn%prompts], x.w.store.View()
		req.Pool = v.Pools[0]
		turn++
		begin := clock()
		err := x.pick.Pick(&c, req, v, x.w.now)
		s.add(clock() - begin - less)
		if err != nil {
			b.Fatal(err)
		}
	}
	timed(wallClock, 0, &spread{}) // the buffers are made once
	b.ReportAllocs()
	for b.Loop() {
		timed(wallClock, wallCost, &wall)
		timed(threadTime, cpuCost, &cpu)
	}
	var alone spread
	for n := range uint64(2000) {
		begin := threadTime()
		runtime.KeepAlive(spin(n))
		alone.add(threadTime() - begin)
	}
	b.ReportMetric(float64(alone.at(0.99))/float64(alone.at(0.5)), "spin-x")
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	b.ReportMetric(us(wall.at(0.5)), "p50-us")
	b.ReportMetric(us(wall.at(0.99)), "p99-us")
	b.ReportMetric(us(wall.most), "max-us")
	b.ReportMetric(us(cpu.at(0.5)), "cpu-p50-us")
	b.ReportMetric(us(cpu.at(0.99)), "cpu-p99-us")
	b.ReportMetric(us(cpu.at(0.999)), "cpu-p99.9-us")
	b.ReportMetric(0, "ns/op") // two picks and four clocks
}
