package autoscale

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/state"
)

// came lets another router count so many requests a second, each of so many uncached
// prompt tokens and answered with 100.
func (w *world) came(id state.RouterID, seconds int, requests, tokens int64) error {
	for range seconds {
		t := w.traffic[id]
		t.Pool = "chat"
		t.Requests, t.Uncached = t.Requests+requests, t.Uncached+requests*tokens
		t.Answers, t.Output = t.Answers+requests, t.Output+requests*100
		w.traffic[id] = t
		if err := w.run(time.Second); err != nil {
			return err
		}
	}
	return nil
}

// What comes asks for replicas before anything has piled up: the demand at arrival.
func TestArrivalsOfAllRoutersAddReplicas(t *testing.T) {
	w := grown(t, 1)
	w.learned = Capacity{PrefillRate: 10000}
	w.traffic["r2"], w.traffic["r3"] = state.Traffic{Pool: "chat", Requests: 5000, Uncached: 9e6}, state.Traffic{Pool: "chat"}
	for range 60 {
		t3 := w.traffic["r3"]
		t3.Requests, t3.Uncached = t3.Requests+4, t3.Uncached+4*2000
		w.traffic["r3"] = t3
		if err := w.came("r2", 1, 4, 2000); err != nil {
			t.Fatal(err)
		}
	}
	// 16,000 tokens/s at 8,000 of each.
	d := w.facts.LastDecision(chat)
	if w.target() != 2 || d.Evidence["demand_prefill"] <= 8000 || d.Evidence["demand_prefill"] > 16000 {
		t.Errorf("target %d: %s, %v", w.target(), d.Reason, d.Evidence)
	}
	if n := testutil.ToFloat64(w.loop.m.needed.WithLabelValues("chat", "both")); n != 2 {
		t.Errorf("needed %v", n)
	}
	// A router that starts anew takes nothing back.
	w.boots["r2"], w.traffic["r2"] = 40, state.Traffic{Pool: "chat", Requests: 3, Uncached: 6000}
	for range 20 {
		if err := w.came("r2", 1, 4, 2000); err != nil {
			t.Fatal(err)
		}
		if o := w.loop.Reports()[0].Seen; o.PrefillRate < 0 {
			t.Fatalf("%v tokens/s", o.PrefillRate)
		}
	}
}

// A leader that has watched knows the rates and trends from its first moment.
func TestNewLeaderHasSeenWhatTheLastOneSaw(t *testing.T) {
	w := grown(t, 1)
	w.came("r2", 60, 10, 100)
	next := w.loop
	w.facts = w.facts.Clone()
	w.facts.Index++
	w.facts.Epoch = w.facts.Index
	w.store.SetFacts(w.facts)
	next.Begin(w.facts.Epoch)
	w.came("r2", 1, 10, 100)
	if o := w.loop.Reports()[0].Seen; o.PrefillRate < 900 || o.PrefillRate > 1100 {
		t.Errorf("%v tokens/s after the change", o.PrefillRate)
	}
}

// A load that rises for long is met before it is there.
func TestRampIsForeseen(t *testing.T) {
	w := grown(t, 1)
	w.learned = Capacity{PrefillRate: 10000}
	early := false
	for i := range int64(600) { // 16 tokens/s more in each second
		if err := w.came("r2", 1, 1, 16*i); err != nil {
			t.Fatal(err)
		}
		if d := w.facts.LastDecision(chat); d.Reason != "" && w.target() == 2 {
			early = d.Evidence["demand_prefill"] <= 8000 && d.Evidence["forecast_prefill"] > 8000
			break
		}
	}
	if !early {
		t.Errorf("target %d, %+v", w.target(), w.facts.LastDecision(chat))
	}
}

// A burst that is over before a replica would have started starts none; one that lasts
// does.
func TestShortBurstStartsNothing(t *testing.T) {
	w := grown(t, 1)
	w.until(time.Minute, "a plan is just over", func() bool { return w.now.Sub(w.loop.planned) == 0 })
	w.run(13 * time.Second)
	w.spread(40) // seen by the next plan, 2 s old
	w.run(3 * time.Second)
	if r := w.refusal(); r != refusedSpike || w.target() != 1 {
		t.Errorf("refused for %q, target %d", r, w.target())
	}
	w.spread(2)
	w.run(2 * time.Minute)
	if w.target() != 1 {
		t.Errorf("target %d", w.target())
	}
	w.spread(40)
	w.until(time.Minute, "one that lasts", func() bool { return w.target() == 3 })
}

// C39: the metrics of all engines fail for ten windows, or of one of four: the target
// stays. Once they are back a step down takes a whole window of what is seen.
func TestC39MetricsThatFail(t *testing.T) {
	f := func(name string, spoil, mend func(w *world)) {
		t.Run(name, func(t *testing.T) {
			w := grown(t, 4)
			w.spread(30)
			w.run(time.Minute)
			spoil(w)
			decisions := len(w.facts.Decisions)
			w.spread(0)
			w.run(50 * time.Minute)
			if len(w.facts.Decisions) != decisions || w.target() != 4 {
				t.Fatalf("target %d, %+v", w.target(), w.facts.LastDecision(chat))
			}
			if r := w.refusal(); r != refusedReadings && r != refusedCoverage {
				t.Errorf("refused for %q", r)
			}
			mend(w)
			back := w.now
			w.until(10*time.Minute, "down again", func() bool { return w.target() == 3 })
			if d := w.now.Sub(back); d < spec().ScaleDownWindow {
				t.Errorf("down %v after they are back", d)
			}
		})
	}
	unread := func(n int) func(w *world) {
		return func(w *world) {
			for _, r := range poolOf(w.View(), "chat").Replicas[:n] {
				w.unread[r.ID] = true
			}
		}
	}
	mend := func(w *world) { clear(w.unread); clear(w.silent) }
	f("all", unread(4), mend)
	f("one of four", unread(1), mend)
	f("routers are silent", func(w *world) { w.silent["r2"], w.silent["r3"] = true, true }, mend)
}

// C43: five requests are held at several routers before an empty pool: it wakes at once,
// by one, and sleeps again; the second time is like the first.
func TestC43FromZeroTwice(t *testing.T) {
	s := spec()
	s.ScaleMin, s.ScaleMax = 0, 4
	w := newWorld(t, s)
	w.act.startTime = 8 * time.Second
	w.run(7 * time.Second)
	for cycle := range 2 {
		made, asked := w.act.made, w.now
		w.held["r2"], w.held["r3"] = 3, 1
		w.store.Wait("chat", 1, 3000)
		w.until(3*time.Second, "a decision", func() bool { return w.target() == 1 })
		if d := w.facts.LastDecision(chat); d.From != 0 || d.Reason == "" {
			t.Errorf("%+v", d)
		}
		serves := func() bool {
			p := poolOf(w.View(), "chat")
			return len(p.Replicas) == 1 && p.Replicas[0].Fresh(w.now)
		}
		w.until(20*time.Second, "a replica that serves", serves)
		if took := w.now.Sub(asked); took > 13*time.Second {
			t.Errorf("cycle %d: %v from the request to a replica", cycle, took)
		}
		clear(w.held) // they are sent there
		w.store.Wait("chat", -1, -3000)
		w.spread(5)
		w.run(2 * time.Second)
		w.spread(0)
		w.until(10*time.Minute, "asleep", func() bool { return w.target() == 0 && w.settled() && len(w.act.instances) == 0 })
		if n := w.act.made - made; n != 1 {
			t.Errorf("cycle %d: %d were started", cycle, n)
		}
		if n := len(w.facts.Decisions); n != 2*(cycle+1) {
			t.Errorf("%d decisions", n)
		}
	}
	if n := testutil.ToFloat64(w.loop.m.decisions.WithLabelValues("chat", "up", reasonWake)); n != 2 {
		t.Errorf("%v counted", n)
	}
}
