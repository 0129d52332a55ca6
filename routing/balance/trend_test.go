package balance_test

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// queue gives replicas uncached tokens from another router's rows; a thousand are a
// second.
func (w *world) queue(tokens ...int64) {
	w.seq++
	m := state.Rows{Router: "b", Boot: 2, Seq: w.seq}
	for i, q := range tokens {
		m.Rows = append(m.Rows, state.Row{Replica: id(i), Load: state.Load{InFlight: 1, Prefill: 1, UncachedTokens: q}})
	}
	w.store.ApplyRows(m)
}

func TestQueueTrend(t *testing.T) {
	w := newWorld(t, 2, func(s *state.PoolSpec) { s.SLOTTFT = 4 * time.Second })
	w.queue(1000, 1000)
	for range 8 {
		w.step(time.Second)
	}
	if b := w.pool(); b.TrendShort != 0 || b.TrendLong != 0 {
		t.Errorf("after 8 s: %+v", b)
	}
	for range 300 {
		w.step(time.Second)
	}
	b := w.pool()
	near(t, "mean queue", b.Queue, 1, 0.01)
	near(t, "a steady queue's trend", b.TrendLong, 0, 0.001)
	if b.LongFor != 0 {
		t.Errorf("a queue of 1 s is long for %v, with an objective of 4 s", b.LongFor)
	}
	for i := range int64(60) { // 0.2 s more each second at one of two: 0.1 in the mean
		w.queue(1000+200*i, 1000)
		w.step(time.Second)
	}
	b = w.pool()
	near(t, "short trend of a growing queue", b.TrendShort, 0.1, 0.01)
	if b.TrendLong <= 0.01 || b.TrendLong >= 0.09 {
		t.Errorf("long trend %.3f, want some of it", b.TrendLong)
	}
	near(t, "longest", b.QueueMost, 11.5, 0.5)
	if b.LongFor < 30*time.Second || b.LongFor > 50*time.Second {
		t.Errorf("long for %v", b.LongFor)
	}
	near(t, "a replica's own queue", w.weight(0).Queue, b.QueueMost, 1e-9)
	w.queue(0, 0)
	for range 60 {
		w.step(time.Second)
	}
	if b = w.pool(); b.LongFor != 0 || b.TrendShort >= 0 {
		t.Errorf("it is over: %+v", b)
	}
	w.queue(9000, 9000)
	for range 10 {
		w.step(time.Second)
	}
	if b = w.pool(); b.LongFor <= 0 || b.LongFor > 10*time.Second {
		t.Errorf("it is long again, for %v", b.LongFor)
	}
}

func TestEffectiveConcurrency(t *testing.T) {
	w := newWorld(t, 1)
	read := func(change func(*state.Reading)) {
		w.now = w.now.Add(time.Second)
		w.read(0, change)
		w.step(0)
		w.step(100 * time.Millisecond) // a reading counts once
		w.now = w.now.Add(-100 * time.Millisecond)
	}
	figures := func(running, waiting float64) func(*state.Reading) {
		return func(r *state.Reading) { r.Running, r.Waiting, r.WaitingUncached = running, waiting, 100 }
	}
	want := func(what string, n, by float64) {
		t.Helper()
		near(t, what, w.weight(0).Concurrency, n, by)
	}
	read(figures(50, 0))
	want("nothing waits: not known", 0, 0)
	read(figures(64, 3))
	want("for a moment", 0, 0)
	read(figures(64, 3))
	want("the first that wait", 64, 0)
	w.list(2)
	w.step(0)
	near(t, "one that is not known yet is like it", w.weight(1).Concurrency, 64, 0)
	read(figures(80, 0))
	want("more run, and nothing waits", 80, 0)
	read(figures(10, 0))
	want("fewer run, and nothing waits", 80, 0)
	read(figures(30, 5))
	want("waiting at fewer, for a moment", 80, 0)
	read(figures(30, 5))
	want("waiting at fewer, once", 70, 0.01)
	for range 40 {
		read(figures(30, 5))
	}
	want("waiting at fewer, often", 30, 0.1)
	for what, f := range map[string]func(*state.Reading){
		"prefill":        func(r *state.Reading) { r.WaitingUncached = 9000 },
		"KV space":       func(r *state.Reading) { r.WaitingUncached, r.KVUsage = 100, 0.95 },
		"an adapter":     func(r *state.Reading) { r.WaitingUncached, r.AdaptersWaiting = 100, []string{"a"} },
		"who knows what": func(*state.Reading) {}, // it came past the routers
	} {
		for range 10 {
			read(func(r *state.Reading) { r.Running, r.Waiting = 3, 5; f(r) })
		}
		want("what waits waits for "+what, 30, 0.1)
		read(figures(20, 0))
	}
	for range 3 { // and within less than a second it may wait for the next step
		w.now = w.now.Add(300 * time.Millisecond)
		w.read(0, figures(3, 5))
		w.step(0)
	}
	want("what has come just now", 30, 0.1)
	read(figures(20, 0))
	read(func(r *state.Reading) { r.Slots, r.Running, r.Waiting = 4, 1, 0 })
	want("an engine with slots", 4, 0)
}

// speeds are rates by slot.
type speeds map[state.Slot]float64

func (s speeds) PrefillRate(slot state.Slot, _ string) float64 { return s[slot] }

func TestPaceBesideTheMedian(t *testing.T) {
	w := newWorld(t, 4)
	s := speeds{}
	for i, rate := range []float64{8000, 8000, 2000, 9000} {
		s[w.store.SlotOf(id(i))] = rate
	}
	w.rate(s)
	w.step(time.Second)
	for i, want := range []float64{1, 1, 0.25, 1.125} {
		near(t, string(id(i)), w.weight(i).Pace, want, 1e-9)
	}
	w.list(1)
	w.step(time.Second)
	near(t, "one alone has no pace", w.weight(0).Pace, 0, 0)
}
