package balance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rates says that every replica prefills a thousand tokens a second.
type rates struct{}

func (rates) PrefillRate(state.Slot, string) float64 { return 1000 }

// world is a pool and its balance loop, in time that tests move.
type world struct {
	t     *testing.T
	now   time.Time
	store *state.Store
	loop  *balance.Loop
	reg   *prometheus.Registry
	seq   uint64
}

func newWorld(t *testing.T, n int, change ...func(*state.PoolSpec)) *world {
	t.Helper()
	w := &world{t: t, now: time.Now(), reg: prometheus.NewPedanticRegistry()}
	spec := state.PoolSpec{Name: "chat", Model: "llama", BreakerFailures: 3, BreakerOpen: 10 * time.Second, BreakerMaxEjected: 0.5}
	for _, f := range change {
		f(&spec)
	}
	w.store = state.NewStore(state.Config{
		Self: "self", Clock: state.NewClock(1, w.now), Now: func() time.Time { return w.now },
		Pools: []state.PoolSpec{spec},
	})
	w.list(n)
	w.loop = balance.New(balance.Config{}, w.store, rates{}, zerolog.Nop(), w.reg)
	w.step(time.Second)
	return w
}

func id(i int) state.ReplicaID { return state.ReplicaID(fmt.Sprintf("r%d", i)) }

func (w *world) list(n int) {
	list := make([]state.Replica, n)
	for i := range list {
		list[i] = state.Replica{ID: id(i)}
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
}

// step lets time pass and steps.
func (w *world) step(d time.Duration) {
	w.now = w.now.Add(d)
	w.loop.Step(w.now)
}

func (w *world) report(i int, kinds ...balance.Kind) {
	for _, k := range kinds {
		w.now = w.now.Add(time.Millisecond)
		w.loop.Report(balance.Outcome{Replica: id(i), Kind: k, At: w.now})
	}
}

func (w *world) weight(i int) state.Weight { return w.store.View().Weights.Of(id(i)) }
func (w *world) pool() state.PoolBalance   { return w.store.View().Weights.Pools["chat"] }

// phase is a replica's state in one word.
func (w *world) phase(i int) string {
	x := w.weight(i)
	switch {
	case x.Trial:
		return fmt.Sprintf("trial:%d", x.Trials.Left())
	case x.Ejected:
		return "ejected"
	case x.BusyUntil.After(w.now):
		return "busy"
	case x.Slow < 1:
		return "slow"
	}
	return "up"
}

func (w *world) want(what string, phases ...string) {
	w.t.Helper()
	for i, p := range phases {
		if got := w.phase(i); got != p {
			w.t.Errorf("%s: r%d is %s, want %s", what, i, got, p)
		}
	}
}

func (w *world) others(i int, failures uint32) {
	w.seq++
	w.store.ApplyRows(state.Rows{Router: "b", Boot: 2, Seq: w.seq, Rows: []state.Row{{Replica: id(i), Failures: failures}}})
}

func (w *world) read(i int, change func(*state.Reading)) {
	r := state.UnknownReading(id(i))
	r.OK, r.Running, r.Waiting, r.At = true, 0, 0, w.store.Clock().Stamp(w.now)
	change(&r)
	if !w.store.ApplyReading(r) {
		w.t.Fatal("no news")
	}
}

const (
	ok      = balance.OK
	failed  = balance.Failed
	busy    = balance.Busy
	neutral = balance.Neutral
)

// sketch and rate make the loop anew with other sources.
func (w *world) sketch(s balance.Sketch) {
	w.loop = balance.New(balance.Config{Sketch: s}, w.store, rates{}, zerolog.Nop(), nil)
	w.step(0)
}

func (w *world) rate(r balance.Rates) {
	w.loop = balance.New(balance.Config{}, w.store, r, zerolog.Nop(), nil)
	w.step(0)
}

// gauge collects the one series of a metric.
type gauge struct {
	w    *world
	name string
}

func (g gauge) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

func (g gauge) Collect(ch chan<- prometheus.Metric) {
	families, _ := g.w.reg.Gather()
	for _, f := range families {
		if f.GetName() == g.name {
			ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(g.name, "x", nil, nil), prometheus.GaugeValue, f.GetMetric()[0].GetGauge().GetValue())
		}
	}
}
