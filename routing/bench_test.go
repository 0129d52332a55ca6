package routing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// deep is a prompt of that many tokens with marks as dense as real ones: every 256
// bytes at first, then every sixteenth of the depth, and one per message.
func deep(tokens int, seed uint64) (marks []prefix.Mark, depths []int32) {
	for at := 256; at < tokens*4; at += max(256, at/16) {
		marks = append(marks, prefix.Mark{Hash: (uint64(at) + seed<<32) * 0x9e3779b97f4a7c15, ASCII: uint32(at)})
		depths = append(depths, int32(at/4))
		if at%5 == 0 {
			marks = append(marks, prefix.Mark{Hash: (uint64(at) + 7 + seed<<32) * 0x9e3779b97f4a7c15, ASCII: uint32(at + 8)})
			depths = append(depths, int32(at/4+2))
		}
	}
	return marks, depths
}

// bench is n replicas with load, readings and, in a real sketch, a few holders of
// the prompt and many other prompts.
func bench(b testing.TB, n, tokens int, policy string) (*routing.Picker, *routing.Request, *state.Store, time.Time) {
	w := newWorld(b, n, policy)
	for i := range n {
		w.load(i, state.Load{InFlight: int64(i % 7), Prefill: int64(i % 3), UncachedTokens: int64(i%3) * 800})
		w.read(i, func(r *state.Reading) { r.Running, r.Waiting, r.KVUsage, r.Capacity = float64(i%7), 0, 0.5, 500_000 })
	}
	x := sketch.New(sketch.Config{Clock: w.store.Clock(), Slots: w.store.SlotOf})
	for k := range 4 * n {
		marks, depths := deep(2000, uint64(k+100))
		x.Place(id(k%n), marks, depths, w.now).First(w.now)
	}
	marks, depths := deep(tokens, 1)
	for i := range n {
		if i%4 == 0 {
			m := len(marks) * (i%16 + 1) / 17
			x.Place(id(i), marks[:m], depths[:m], w.now).First(w.now)
		}
		w.cal.Seed(w.replica(i).Slot, id(i), "chat", routing.DefaultParams())
	}
	weights := map[int]state.Weight{}
	for i := range n {
		weights[i] = state.Weight{Slow: 1}
	}
	w.weigh(weights, false)
	p := routing.NewPicker(routing.Config{}, x, w.cal)
	v := w.store.View()
	return p, &routing.Request{Pool: v.Pools[0], Marks: marks, Tokens: depths, PromptTokens: tokens + 20, MaxTokens: 500, Session: "s"}, w.store, w.now
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{5, 25, 64, 100, 400} {
		for _, tokens := range []int{1000, 8000, 32000, 128000} {
			b.Run(fmt.Sprintf("replicas=%d/tokens=%d", n, tokens), func(b *testing.B) {
				p, req, store, now := bench(b, n, tokens, "")
				b.ReportMetric(float64(len(req.Marks)), "marks")
				var c routing.Choice
				b.ReportAllocs()
				for b.Loop() {
					if err := p.Pick(&c, req, store.View(), now); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkPolicies(b *testing.B) {
	for _, name := range routing.Policies() {
		b.Run(name, func(b *testing.B) {
			p, req, store, now := bench(b, 64, 32000, name)
			var c routing.Choice
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Pick(&c, req, store.View(), now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	c := routing.NewCalibration()
	s := routing.Sample{Replica: "r", Pool: "chat", UncachedTokens: 1000, PromptTokens: 2000, TTFT: 200 * time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		c.Observe(s)
	}
}

// The sketch's own allocations are its tests' matter: under the race detector its
// pool of buffers drops some on purpose.
func TestPickAllocatesNothing(t *testing.T) {
	for _, name := range routing.Policies() {
		w := newWorld(t, 16, name)
		w.hold(3, 4096)
		w.load(3, state.Load{InFlight: 2, Prefill: 1, UncachedTokens: 900})
		req := w.prompt(8000)
		for i := range 16 {
			w.read(i, func(r *state.Reading) {
				adapters(r, "a")
				r.AdapterSlots, r.AdaptersRunning = 1, []string{"b"}
			})
		}
		req.Session, req.Exclude, req.Adapter = "s", []state.ReplicaID{id(7)}, "a"
		v := w.store.View()
		req.Pool = v.Pools[0]
		var c routing.Choice
		got := testing.AllocsPerRun(100, func() {
			if err := w.pick.Pick(&c, req, v, w.now); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations a pick", name, got)
		}
	}
}
