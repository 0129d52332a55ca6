package balance_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
)

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

// What was uneven is not any more once there is nothing to do.
func TestSkewOfAPoolThatIsDone(t *testing.T) {
	w := newWorld(t, 4)
	rows := func(seq uint64, l state.Load) {
		w.store.ApplyRows(state.Rows{Router: "b", Boot: 2, Seq: seq, Rows: []state.Row{{Replica: id(0), Load: l}}})
	}
	rows(1, state.Load{InFlight: 8, Prefill: 8, UncachedTokens: 40000})
	for range 40 {
		w.step(250 * time.Millisecond)
	}
	if got := w.pool().Skew; got < 3.9 {
		t.Fatalf("all on one of four: skew %.2f", got)
	}
	rows(2, state.Load{InFlight: 8})
	w.step(250 * time.Millisecond)
	if got := w.pool().Skew; got < 3.9 {
		t.Errorf("between two prompts: skew %.2f", got)
	}
	rows(3, state.Load{})
	w.step(250 * time.Millisecond)
	if got := w.pool().Skew; got != 1 {
		t.Errorf("idle: skew %.2f, want 1", got)
	}
	rows(4, state.Load{InFlight: 1, Prefill: 1, UncachedTokens: 1})
	w.step(250 * time.Millisecond)
	if got := w.pool().Skew; got != 1 {
		t.Errorf("next to nothing after that: skew %.2f, want 1", got)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t, 2)
	w.report(0, failed, failed, failed)
	w.step(0)
	const want = `
# HELP hearsay_hot_prefix_share Share of this router's requests of the last minute that begin with the pool's hottest prefix; 0 if none has a twentieth.
# TYPE hearsay_hot_prefix_share gauge
hearsay_hot_prefix_share{pool="chat"} 0
# HELP hearsay_replica_state 1 for the state that the replica is in, as this router sees it, else 0: ready, slow_start, busy, warming, failing, half_open, ejected, draining, loading, unread, unreachable, unreadable, wrong_model.
# TYPE hearsay_replica_state gauge
hearsay_replica_state{replica="r0",state="busy"} 0
hearsay_replica_state{replica="r0",state="draining"} 0
hearsay_replica_state{replica="r0",state="ejected"} 1
hearsay_replica_state{replica="r0",state="failing"} 0
hearsay_replica_state{replica="r0",state="half_open"} 0
hearsay_replica_state{replica="r0",state="loading"} 0
hearsay_replica_state{replica="r0",state="ready"} 0
hearsay_replica_state{replica="r0",state="slow_start"} 0
hearsay_replica_state{replica="r0",state="unreachable"} 0
hearsay_replica_state{replica="r0",state="unread"} 0
hearsay_replica_state{replica="r0",state="unreadable"} 0
hearsay_replica_state{replica="r0",state="warming"} 0
hearsay_replica_state{replica="r0",state="wrong_model"} 0
# HELP hearsay_sharing_ratio Share of prompt tokens that some replica already held when this router picked, smoothed with a half-life of 30 s; 0 before the first pick.
# TYPE hearsay_sharing_ratio gauge
hearsay_sharing_ratio{pool="chat"} 0
# HELP hearsay_skew_ratio Longest over mean estimated queue of the pool's replicas, in seconds and smoothed over 5 s; 1 is even, or a mean below 5 ms; 0 unknown.
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
