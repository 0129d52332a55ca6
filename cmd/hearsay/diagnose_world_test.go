package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// ward is a pool, its readings and its balance loop in time that tests move: what
// diagnose goes by in a running router.
type ward struct {
	t        testing.TB
	now      time.Time
	store    *state.Store
	loop     *balance.Loop
	rates    map[state.Slot]float64 // prefill tokens/s; 10,000 if not there
	speed    console.Speed
	partings []prefix.Parting
	readings map[int]func(*state.Reading)
	silent   map[int]bool // readings that fail
	seq      uint64
	n        int
	running  []*state.Ticket
}

func newWard(t testing.TB, n int, change ...func(*state.PoolSpec)) *ward {
	w := &ward{
		t: t, n: n, now: time.Now(), rates: map[state.Slot]float64{}, speed: console.Speed{ITLMS: 29, ITLPerStream: 0.36},
		readings: map[int]func(*state.Reading){}, silent: map[int]bool{},
	}
	spec := state.PoolSpec{
		Name: "chat", Model: "llama", Policy: "ttft", SLOTTFT: 2 * time.Second, SLOITL: 100 * time.Millisecond,
		BreakerFailures: 5, BreakerOpen: 10 * time.Second, BreakerMaxEjected: 0.5, ScaleMin: 1, ScaleMax: 8, ScaleActuator: "process",
	}
	for _, f := range change {
		f(&spec)
	}
	w.store = state.NewStore(state.Config{
		Self: "r1", Clock: state.NewClock(1, w.now), Now: func() time.Time { return w.now }, Pools: []state.PoolSpec{spec},
	})
	var list []state.Replica
	for i := range n {
		list = append(list, state.Replica{ID: w.id(i), URL: "http://" + string(w.id(i)) + ":8000", Role: state.RoleBoth})
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
	w.loop = balance.New(balance.Config{}, w.store, w, zerolog.Nop(), nil)
	return w
}

func (w *ward) id(i int) state.ReplicaID { return state.ReplicaID(fmt.Sprintf("e%d", i+1)) }

// PrefillRate implements balance.Rates.
func (w *ward) PrefillRate(s state.Slot, _ string) float64 {
	if r, ok := w.rates[s]; ok {
		return r
	}
	return 10_000
}

// queue says what waits for prefill at each replica, by another router's rows, in
// seconds at 10,000 tokens/s.
func (w *ward) queue(seconds ...float64) {
	w.seq++
	m := state.Rows{Router: "r2", Boot: 2, Seq: w.seq}
	for i, s := range seconds {
		l := state.Load{UncachedTokens: int64(10_000 * s)}
		if s > 0 {
			l.InFlight, l.Prefill = 1+int64(s), 1+int64(s)
		}
		m.Rows = append(m.Rows, state.Row{Replica: w.id(i), Load: l})
	}
	w.store.ApplyRows(m)
}

// stream starts n streams at a replica, which have had their first token.
func (w *ward) stream(i, n int) {
	for range n {
		t := w.store.Begin(w.store.View().Replica(w.id(i)), 100)
		t.FirstToken()
		w.running = append(w.running, t)
	}
}

// run lets time pass in seconds; each, if it is not nil, is called before every one.
func (w *ward) run(d time.Duration, each func(second int)) {
	for s := range int(d / time.Second) {
		w.now = w.now.Add(time.Second)
		if each != nil {
			each(s)
		}
		w.read()
		w.loop.Step(w.now)
	}
}

// read reads every engine that answers.
func (w *ward) read() {
	for i := range w.n {
		r := state.UnknownReading(w.id(i))
		r.OK, r.Reader, r.At, r.Running, r.Waiting, r.KVUsage = true, "r1", w.store.Clock().Stamp(w.now), 0, 0, 0.3
		r.Running = float64(w.store.View().Replica(w.id(i)).Load().InFlight)
		if w.silent[i] {
			continue
		}
		if f := w.readings[i]; f != nil {
			f(&r)
		}
		w.store.ApplyReading(r)
	}
}

// prompts tells of n picks whose prompts were held to that share.
func (w *ward) prompts(n int, held float64) {
	for range n {
		w.loop.Picked(&balance.Pick{Pool: "chat", Prompt: 2000, Held: int(2000 * held)})
	}
}

func (w *ward) diagnose() console.Diagnosis {
	v := w.store.View()
	return console.Diagnose(v, v.Pools[0], func(state.ReplicaID) console.Speed { return w.speed }, w.partings, w.now)
}

// classes are the findings' classes, in order.
func (w *ward) classes() (list []string) {
	for _, f := range w.diagnose().Findings {
		list = append(list, f.Class)
	}
	return list
}
