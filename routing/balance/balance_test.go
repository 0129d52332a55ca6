package balance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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

func TestWhatEjects(t *testing.T) {
	f := func(name, want string, kinds ...balance.Kind) {
		t.Helper()
		w := newWorld(t, 4)
		w.report(0, kinds...)
		w.step(0)
		w.want(name, want, "up", "up", "up")
	}
	f("nothing", "up")
	f("fewer failures than the limit", "up", failed, failed)
	f("as many as the limit", "ejected", failed, failed, failed)
	f("a success in between starts over", "up", failed, failed, ok, failed, failed)
	f("the client's mistakes are no failures", "up", neutral, neutral, neutral, neutral)
	f("nor do they hide failures", "ejected", failed, neutral, failed, neutral, neutral, failed)
	f("back-pressure is no failure", "busy", busy, busy, busy, busy, busy)
	f("nor does it hide failures", "ejected", failed, busy, failed, failed)
	f("every other one fails", "up", failed, ok, failed, ok, failed, ok, failed, ok)
	f("most fail, never the limit in a row", "ejected",
		failed, failed, ok, failed, failed, ok, failed, failed, ok, failed, failed)
}

// C16, phase 3, and C18: back only by a trial that succeeds.
func TestTheWayBack(t *testing.T) {
	w := newWorld(t, 4)
	w.report(0, failed, failed, failed)
	w.step(0)
	if x := w.weight(0); x.Until.Sub(w.now) != 10*time.Second || x.Reason != "failures" || x.Failures != 3 {
		t.Errorf("weight %+v", x)
	}
	w.report(0, ok) // a request from before ends well
	w.step(9 * time.Second)
	w.want("still ejected", "ejected")
	w.step(time.Second)
	w.want("half open", "trial:1")
	trials := w.weight(0).Trials
	trials.Take()
	ticket := w.store.Begin(w.store.View().Replica(id(0)), 1)
	w.step(time.Second)
	w.want("the trial is out", "trial:0")
	ticket.End()
	w.report(0, neutral)
	w.step(time.Second)
	w.want("the client was wrong: that proves nothing", "trial:1")
	w.report(0, busy)
	w.step(time.Second)
	w.want("nor does back-pressure", "trial:1")
	w.report(0, failed)
	w.step(0)
	w.want("the trial failed", "ejected")
	if x := w.weight(0); x.Until.Sub(w.now) != 20*time.Second || x.Reason != "trial_failed" {
		t.Errorf("want a longer time out: %+v", x)
	}
	w.step(20 * time.Second)
	w.want("half open again", "trial:1")
	w.report(0, ok)
	w.step(0)
	w.want("a success brings it back, slowly", "slow")
	if x := w.weight(0); x.Ejected || x.Slow > 0.11 || x.Failures != 0 {
		t.Errorf("weight %+v", x)
	}
	w.step(5 * time.Second)
	if x := w.weight(0).Slow; x < 0.5 || x > 0.6 {
		t.Errorf("half way up its weight is %v", x)
	}
	w.step(5 * time.Second)
	w.want("all the way", "up")
}

func TestAFirstTokenIsProof(t *testing.T) {
	w := newWorld(t, 4)
	w.report(0, failed, failed, failed)
	w.step(0)
	w.step(10 * time.Second)
	w.want("half open", "trial:1")
	ticket := w.store.Begin(w.store.View().Replica(id(0)), 1)
	w.now = w.now.Add(time.Second)
	ticket.FirstToken()
	w.step(0)
	w.want("it answers, though the answer has not ended", "slow")
}

func TestTheBackOffIsBoundedAndStartsOver(t *testing.T) {
	w := newWorld(t, 4)
	w.report(0, failed, failed, failed)
	w.step(0)
	for i, want := range []int{10, 20, 40, 80, 80} {
		if got := w.weight(0).Until.Sub(w.now); got != time.Duration(want)*time.Second {
			t.Errorf("ejection %d lasts %v, want %d s", i, got, want)
		}
		w.step(w.weight(0).Until.Sub(w.now))
		w.report(0, failed)
		w.step(0)
	}
	w.step(80 * time.Second)
	w.report(0, ok)
	w.step(0)
	w.step(2 * time.Minute)
	w.report(0, failed, failed, failed)
	w.step(0)
	if got := w.weight(0).Until.Sub(w.now); got != 10*time.Second {
		t.Errorf("after two calm minutes an ejection lasts %v", got)
	}
}

func TestHowManyMayBeEjected(t *testing.T) {
	f := func(name string, n int, share float64, fail int, ejected int, panicking bool) {
		t.Helper()
		w := newWorld(t, n, func(s *state.PoolSpec) { s.BreakerMaxEjected = share })
		for i := range fail {
			w.report(i, failed, failed, failed)
		}
		w.step(0)
		got, held := 0, 0
		for i := range n {
			switch w.phase(i) {
			case "ejected":
				got++
			case "busy":
				held++
			}
		}
		if got != ejected || w.pool().Ejected != ejected || held != fail-ejected || w.pool().Panic != panicking {
			t.Errorf("%s: %d ejected, %d held back, panic %v; want %d, %d, %v", name, got, held, w.pool().Panic, ejected, fail-ejected, panicking)
		}
	}
	f("half of four", 4, 0.5, 1, 1, false)
	f("three of four fail", 4, 0.5, 3, 2, false)
	f("all of four fail", 4, 0.5, 4, 2, true)
	f("one of one fails", 1, 0.5, 1, 0, false)
	f("one of two fails", 2, 0.5, 1, 1, false)
	f("all of two fail", 2, 0.5, 2, 1, true)
	f("all may be ejected", 3, 1, 3, 3, false)
	f("the default is half", 4, 0, 3, 2, false)
}

func TestPanicEndsWhenSomethingWorks(t *testing.T) {
	w := newWorld(t, 2)
	w.report(0, failed, failed, failed)
	w.report(1, failed, failed, failed)
	w.step(0)
	if !w.pool().Panic {
		t.Fatal("no panic")
	}
	w.report(0, ok)
	w.report(1, ok)
	w.step(time.Second)
	if w.pool().Panic || w.pool().Ejected != 0 {
		t.Errorf("both work, and the pool is %+v", w.pool())
	}
}

func TestDrainingReplicasDontCount(t *testing.T) {
	w := newWorld(t, 3)
	w.store.SetDrain(id(2), true, "")
	w.report(0, failed, failed, failed)
	w.report(1, failed, failed, failed)
	w.step(0)
	if w.pool().Ejected != 1 {
		t.Errorf("%d of two in traffic are ejected", w.pool().Ejected)
	}
}

// C18: failures of other routers count, until an own success says otherwise.
func TestOtherRoutersFailures(t *testing.T) {
	w := newWorld(t, 4)
	w.others(0, 2)
	w.step(0)
	w.want("below the limit", "up")
	w.report(0, failed)
	w.step(0)
	w.want("with one of our own", "ejected")
	if got := w.weight(0).Reason; got != "others_failures" {
		t.Errorf("reason %s", got)
	}
	w.step(10 * time.Second)
	w.report(0, ok)
	w.step(0)
	w.step(5 * time.Second)
	w.want("what they said before its return is old news", "slow")
	w.others(0, 5)
	w.step(0)
	w.want("three more are not", "ejected")

	w = newWorld(t, 4)
	w.report(0, ok)
	w.others(0, 9)
	w.step(100 * time.Millisecond)
	w.want("it just worked for us: it may be their path", "up")
	w.step(2 * time.Second)
	w.want("it did not lately", "ejected")

	w = newWorld(t, 4)
	w.others(0, 9)
	w.others(0, 0)
	w.others(0, 2)
	w.step(0)
	w.want("they have taken it back", "up")
}

func TestFailuresAreForgotten(t *testing.T) {
	w := newWorld(t, 4)
	w.report(0, failed, failed)
	w.step(time.Second)
	if got := w.weight(0).Failures; got != 2 {
		t.Errorf("told the others of %d failures", got)
	}
	w.step(2 * time.Minute)
	if got := w.weight(0).Failures; got != 0 {
		t.Errorf("still tells of %d after two minutes", got)
	}
	w.report(0, failed)
	w.step(0)
	w.want("one more is one", "up")
}

// C20, K11.
func TestBackPressure(t *testing.T) {
	w := newWorld(t, 2)
	w.report(0, busy)
	w.step(0)
	w.want("one", "busy", "up")
	w.step(300 * time.Millisecond)
	w.want("forgotten by itself", "up")

	w.report(0, ok, busy, busy)
	w.step(0)
	w.want("two in a row", "busy")
	w.read(0, func(r *state.Reading) { r.Waiting = 4 })
	w.step(10 * time.Millisecond)
	w.want("a sample that agrees", "busy")
	w.now = w.now.Add(10 * time.Millisecond)
	w.read(0, func(*state.Reading) {})
	w.step(0)
	w.want("a healthy sample ends it", "up")

	w.report(0, busy, busy, busy, busy)
	w.now = w.now.Add(time.Millisecond)
	w.read(0, func(*state.Reading) {})
	w.step(0)
	w.want("many in a row, whatever the engine says of itself", "busy")
	if got := w.weight(0).BusyUntil.Sub(w.now); got < 3*time.Second || got > 5*time.Second {
		t.Errorf("for %v, want a few seconds", got)
	}
	w.step(6 * time.Second)
	w.want("never for good", "up")
	w.report(0, busy)
	w.step(0)
	w.report(0, ok)
	w.step(0)
	w.want("a success ends it", "up")

	f := func(name string, asked, want time.Duration) {
		t.Helper()
		w.report(0, ok)
		w.loop.Report(balance.Outcome{Replica: id(0), Kind: busy, RetryAfter: asked, At: w.now})
		w.now = w.now.Add(time.Millisecond)
		w.read(0, func(*state.Reading) {})
		w.step(0)
		if got := w.weight(0).BusyUntil.Sub(w.now).Round(10 * time.Millisecond); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	f("it asks for two seconds", 2*time.Second, 2*time.Second)
	f("it asks for a week", 561635*time.Second, time.Minute)
}

func TestSlowStart(t *testing.T) {
	w := newWorld(t, 2)
	w.want("those there from the start", "up", "up")
	w.now = w.now.Add(time.Minute)
	w.list(3)
	w.step(0)
	w.want("one that joined later", "up", "up", "slow")
	w.step(5 * time.Second)
	w.read(2, func(r *state.Reading) { r.OK, r.Loading = false, true })
	w.step(6 * time.Second)
	w.want("it was still loading then", "up", "up", "slow")
	w.step(11 * time.Second)
	w.want("in the end", "up", "up", "up")
}

func TestSkew(t *testing.T) {
	f := func(name string, want float64, queued ...int64) {
		t.Helper()
		w := newWorld(t, len(queued))
		m := state.Rows{Router: "b", Boot: 2, Seq: 1}
		for i, q := range queued {
			m.Rows = append(m.Rows, state.Row{Replica: id(i), Load: state.Load{InFlight: 1, Prefill: 1, UncachedTokens: q}})
		}
		w.store.ApplyRows(m)
		for range 200 {
			w.step(250 * time.Millisecond)
		}
		if got := w.pool().Skew; got < want-0.01 || got > want+0.01 {
			t.Errorf("%s: skew %.2f, want %.2f", name, got, want)
		}
	}
	f("idle", 1, 0, 0)
	f("next to nothing", 1, 3, 0)
	f("even", 1, 5000, 5000)
	f("all on one of four", 4, 8000, 0, 0, 0)
	f("a little more on one", 1.2, 6000, 4000, 5000)
	f("nobody", 0)
}

func TestMetrics(t *testing.T) {
	w := newWorld(t, 2)
	w.report(0, failed, failed, failed)
	w.step(0)
	const want = `
# HELP hearsay_replica_state 1 for the state that the replica is in, as this router sees it.
# TYPE hearsay_replica_state gauge
hearsay_replica_state{replica="r0",state="busy"} 0
hearsay_replica_state{replica="r0",state="draining"} 0
hearsay_replica_state{replica="r0",state="ejected"} 1
hearsay_replica_state{replica="r0",state="half_open"} 0
hearsay_replica_state{replica="r0",state="loading"} 0
hearsay_replica_state{replica="r0",state="slow_start"} 0
hearsay_replica_state{replica="r0",state="unreachable"} 0
hearsay_replica_state{replica="r0",state="up"} 0
# HELP hearsay_skew_ratio Longest over mean estimated queue of the pool's replicas; 1 is even, 0 unknown.
# TYPE hearsay_skew_ratio gauge
hearsay_skew_ratio{pool="chat"} 0
`
	w.list(1)
	w.step(0)
	if err := testutil.GatherAndCompare(w.reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	w.store.SetPools(nil)
	w.step(0)
	if n, err := testutil.GatherAndCount(w.reg); n != 0 || err != nil {
		t.Errorf("%d series of what is gone, %v", n, err)
	}
}

func TestRunStepsAtOnceOnAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := state.NewStore(state.Config{
			Self: "self", Clock: state.NewClock(1, time.Now()),
			Pools: []state.PoolSpec{{Name: "chat", BreakerFailures: 1}},
		})
		s.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "a"}, {ID: "b"}})
		l := balance.New(balance.Config{}, s, rates{}, zerolog.Nop(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(100 * time.Millisecond)
		l.Report(balance.Outcome{Replica: "a", Kind: failed})
		time.Sleep(15 * time.Millisecond)
		if !s.View().Weights.Of("a").Ejected {
			t.Error("15 ms after the failure the replica is not ejected")
		}
		was := s.View().Weights.At
		time.Sleep(300 * time.Millisecond)
		if !s.View().Weights.At.After(was) {
			t.Error("no step in 300 ms")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestConfigValidate(t *testing.T) {
	if err := (&balance.Config{}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (&balance.Config{Period: -1, SlowStart: -1}).Validate(); err == nil || strings.Count(err.Error(), "balance:") != 2 {
		t.Errorf("want two faults: %v", err)
	}
}
