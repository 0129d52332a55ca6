package routing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// world is one pool, what its replicas hold as told by tests, and a picker.
type world struct {
	t     testing.TB
	now   time.Time
	store *state.Store
	cal   *routing.Calibration
	pick  *routing.Picker
	holds map[state.Slot]sketch.Match
	seq   uint64
}

// Lookup implements routing.Sketch.
func (w *world) Lookup(dst []sketch.Match, _ []prefix.Mark, slots []state.Slot, _ time.Time) {
	for i, s := range slots {
		dst[i] = w.holds[s]
	}
}

func newWorld(t testing.TB, n int, policy string) *world {
	w := &world{t: t, now: time.Now(), cal: routing.NewCalibration(), holds: map[state.Slot]sketch.Match{}}
	w.store = state.NewStore(state.Config{
		Self: "self", Clock: state.NewClock(1, w.now), Now: func() time.Time { return w.now },
		Pools: []state.PoolSpec{{Name: "chat", Model: "llama", Policy: policy}, {Name: "empty"}},
	})
	list := make([]state.Replica, n)
	for i := range list {
		list[i] = state.Replica{ID: id(i), URL: fmt.Sprintf("http://10.0.0.1:%d", 8000+i), Role: state.RoleBoth}
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
	w.now = w.now.Add(time.Minute)
	w.pick = routing.NewPicker(routing.Config{Rand: rand.New(rand.NewPCG(1, 2)).Uint64}, w, w.cal)
	return w
}

func id(i int) state.ReplicaID { return state.ReplicaID(fmt.Sprintf("r%d", i)) }

func (w *world) replica(i int) *state.ReplicaView { return w.store.View().Replica(id(i)) }

// prompt is a request of the given length with a mark every 256 tokens.
func (w *world) prompt(tokens int) *routing.Request {
	r := &routing.Request{Pool: w.store.View().Pools[0], PromptTokens: tokens}
	for at := 256; at < tokens+256; at += 256 {
		r.Marks = append(r.Marks, prefix.Mark{Hash: uint64(at) * 0x9e3779b97f4a7c15})
		r.Tokens = append(r.Tokens, int32(min(at, tokens)))
	}
	return r
}

// hold says that a replica holds that many tokens of every prompt.
func (w *world) hold(i, tokens int) { w.holds[w.replica(i).Slot] = sketch.Match{Live: tokens / 256} }

// load gives a replica another router's load.
func (w *world) load(i int, l state.Load) {
	w.seq++
	w.store.ApplyRows(state.Rows{Router: "other", Boot: 2, Seq: w.seq, Rows: []state.Row{{Replica: id(i), Load: l}}})
}

func (w *world) read(i int, change func(*state.Reading)) {
	r := state.UnknownReading(id(i))
	r.OK, r.Reader, r.At = true, "self", w.store.Clock().Stamp(w.now)
	change(&r)
	if !w.store.ApplyReading(r) {
		w.t.Fatal("the reading is no news")
	}
}

func (w *world) weigh(ws map[int]state.Weight, panicking bool) {
	x := &state.Weights{At: w.now, Replicas: map[state.ReplicaID]state.Weight{}, Pools: map[string]state.PoolBalance{"chat": {Panic: panicking}}}
	for i, wt := range ws {
		x.Replicas[id(i)] = wt
	}
	w.store.SetWeights(x)
}

// picks makes n picks of a request, not dispatching, and counts them by replica.
func (w *world) picks(n int, req *routing.Request) map[state.ReplicaID]int {
	w.t.Helper()
	got := map[state.ReplicaID]int{}
	var c routing.Choice
	for range n {
		v := w.store.View()
		req.Pool = v.Pools[0]
		if err := w.pick.Pick(&c, req, v, w.now); err != nil {
			w.t.Fatal(err)
		}
		got[c.Replica.ID]++
	}
	return got
}

// one makes a pick and gives the whole choice.
func (w *world) one(req *routing.Request) *routing.Choice {
	w.t.Helper()
	c := &routing.Choice{}
	v := w.store.View()
	req.Pool = v.Pools[0]
	if err := w.pick.Pick(c, req, v, w.now); err != nil {
		w.t.Fatal(err)
	}
	return c
}
