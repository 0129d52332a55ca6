package autoscale

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/state"
)

// TestMain doubles as the engine that the process actuator starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "engine" {
		os.Exit(engine(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

func TestEmptyPoolIsBroughtToItsMinimum(t *testing.T) {
	w := newWorld(t, spec())
	w.until(time.Minute, "one replica", func() bool { return w.settled() && len(w.facts.Replicas) == 1 })
	want := []string{"target 0->1", "start", "add fake:1", "settle done"}
	if !slices.Equal(w.log, want) {
		t.Errorf("%q, want %q", w.log, want)
	}
}

func TestLoadAddsReplicasByACappedStep(t *testing.T) {
	w := grown(t, 1)
	w.spread(45) // at 8 per replica: 6
	w.until(time.Minute, "a decision", func() bool { return w.target() == 3 })
	d := w.facts.LastDecision(chat)
	if d.Reason == "" || d.Evidence["in_flight"] != 45 || d.Evidence["needed"] != 6 || d.By != "r1" || d.Epoch != w.facts.Epoch {
		t.Errorf("%+v", d)
	}
	w.until(time.Minute, "carried out", w.settled)
	if n := testutil.ToFloat64(w.loop.m.decisions.WithLabelValues("chat", "up", "load")); n != 1 {
		t.Errorf("%v decisions counted", n)
	}
	// Still more is needed, and comes after the cooldown, not before.
	at := w.now
	w.until(3*time.Minute, "the next decision, of twice as many", func() bool { return w.target() == 6 })
	if since := w.now.Sub(d.Seen); since < time.Minute {
		t.Errorf("the next after %v (settled at %v)", since, at.Sub(d.Seen))
	}
}

func TestPendingReplicasAreNotStackedOn(t *testing.T) {
	w := grown(t, 1)
	w.act.stuck = true
	w.spread(45)
	w.until(time.Minute, "a decision", func() bool { return w.target() == 3 })
	if err := w.run(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if w.target() != 3 || w.act.made != 3 {
		t.Errorf("target %d, %d started", w.target(), w.act.made)
	}
	if r := w.refusal(); r != refusedOpen && r != refusedPending {
		t.Errorf("refused for %q", r)
	}
	w.until(3*time.Minute, "given up on", func() bool { return w.facts.LastDecision(chat).Outcome == state.OutcomeFailed })
}

// While routers differ in what the pool is, nothing is decided; once they agree, it is.
func TestPoolThatRoutersDisagreeOnIsNotScaled(t *testing.T) {
	w := grown(t, 1)
	w.differ = true
	w.spread(45)
	if err := w.run(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if r := w.refusal(); r != refusedConfig || w.target() != 1 {
		t.Errorf("refused for %q, target %d", r, w.target())
	}
	w.differ = false
	w.until(time.Minute, "a decision", func() bool { return w.target() == 3 })
}

// A command that can't be started fails its decision within seconds, with the
// reason on record; once it can be, the target that stands is reached.
func TestDecisionThatCanNotBeCarriedOutSaysWhy(t *testing.T) {
	w := grown(t, 1)
	w.act.refuses = errors.New("start engine: /no/such: no such file\nstart engine: /no/such: no such file")
	w.spread(45)
	w.until(time.Minute, "a decision", func() bool { return w.target() == 3 })
	began := w.now
	w.until(time.Minute, "given up on", func() bool { return w.settled() })
	d := w.facts.LastDecision(chat)
	if d.Outcome != state.OutcomeFailed || !strings.Contains(d.Detail, "/no/such: no such file (and 1 more)") {
		t.Errorf("%+v", d)
	}
	if took := w.now.Sub(began); took < giveUpAfter-time.Second || took > giveUpAfter+2*time.Second {
		t.Errorf("after %v", took)
	}
	w.act.refuses = nil
	w.until(time.Minute, "three after all", func() bool { return len(w.act.instances) == 3 && w.target() == 3 })
}

func TestLoadGoneWhilePendingGoesDown(t *testing.T) {
	w := grown(t, 1)
	w.spread(45)
	w.act.startTime = time.Hour
	for _, i := range w.act.instances {
		i.since = time.Time{}
	}
	w.until(time.Minute, "up", func() bool { return w.target() == 3 })
	w.spread(0)
	w.until(20*time.Minute, "back", func() bool { return w.target() == 1 && w.settled() && len(w.act.instances) == 1 })
	if w.act.instances[0].Replica.ID != "fake:1" {
		t.Errorf("%s is left, and the one that was ready went", w.act.instances[0].Replica.ID)
	}
}

func TestIdleReplicaGoesAfterTheWindowOneAtATime(t *testing.T) {
	w := grown(t, 3)
	t0 := w.now
	w.until(10*time.Minute, "down", func() bool { return w.target() == 2 })
	if d := w.now.Sub(t0); d < 5*time.Minute-3*time.Second {
		t.Errorf("down after %v", d)
	}
	w.until(10*time.Minute, "to the minimum", func() bool { return w.target() == 1 && w.settled() })
	if len(w.facts.Replicas) != 1 || len(w.facts.Draining) != 0 || len(w.act.instances) != 1 {
		t.Errorf("replicas %v, draining %v, running %d", w.facts.Replicas, w.facts.Draining, len(w.act.instances))
	}
	if err := w.run(20 * time.Minute); err != nil || w.target() != 1 {
		t.Errorf("target %d below the minimum, %v", w.target(), err)
	}
}

func TestLoadThatNeedsAllKeepsAll(t *testing.T) {
	w := grown(t, 3)
	w.spread(17) // two carry 16 at the wanted utilisation
	if err := w.run(20 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if w.target() != 3 {
		t.Errorf("target %d", w.target())
	}
}

func TestReplicaIsStoppedOnlyWhenEveryRouterIsDoneWithIt(t *testing.T) {
	draining := func(t *testing.T) (*world, state.ReplicaID) {
		w := grown(t, 2)
		w.load("fake:1", 1)
		w.load("fake:2", 1)
		w.remote["r2"] = map[state.ReplicaID]int64{"fake:1": 1, "fake:2": 1}
		w.until(10*time.Minute, "a drain", func() bool { return len(w.facts.Draining) == 1 })
		for id := range w.facts.Draining {
			return w, id
		}
		return nil, ""
	}
	stopped := func(w *world) bool { return slices.ContainsFunc(w.log, func(s string) bool { return s[:4] == "stop" }) }

	t.Run("own and others' requests are waited for", func(t *testing.T) {
		w, id := draining(t)
		w.unread[id] = true // rows alone must tell
		w.run(30 * time.Second)
		w.load(id, 0)
		w.run(30 * time.Second)
		if stopped(w) {
			t.Fatal("stopped with another router's request running")
		}
		w.remote["r2"][id] = 0
		w.until(10*time.Second, "stopped and settled", func() bool { return stopped(w) && w.settled() })
	})
	t.Run("a silent router's vanished row is not zero, until the deadline", func(t *testing.T) {
		w, id := draining(t)
		t0 := w.now
		w.load(id, 0)
		w.silent["r2"] = true
		w.until(5*time.Minute, "stopped", func() bool { return stopped(w) })
		if d := w.now.Sub(t0); d < 100*time.Second || d > 130*time.Second {
			t.Errorf("stopped after %v", d)
		}
	})
	t.Run("a dead router is not waited for", func(t *testing.T) {
		w, id := draining(t)
		w.load(id, 0)
		w.store.DropRouter("r2")
		w.live = []state.RouterID{"r1", "r3"}
		w.until(10*time.Second, "stopped", func() bool { return stopped(w) })
	})
	t.Run("a router that has not acknowledged is waited for", func(t *testing.T) {
		w := grown(t, 2)
		w.behind["r3"] = w.facts.Index
		w.until(10*time.Minute, "a drain", func() bool { return len(w.facts.Draining) == 1 })
		w.run(30 * time.Second)
		if stopped(w) {
			t.Fatal("stopped although a router may still send there")
		}
		delete(w.behind, "r3")
		w.until(10*time.Second, "stopped", func() bool { return stopped(w) })
	})
	t.Run("work that only the engine shows is waited for", func(t *testing.T) {
		w, id := draining(t)
		w.load(id, 0)
		w.remote["r2"][id] = 0
		w.now = w.now.Add(time.Second)
		w.hear()
		x := state.UnknownReading(id)
		w.now = w.now.Add(time.Millisecond)
		x.OK, x.At, x.Running = true, w.store.Clock().Stamp(w.now), 1
		w.store.ApplyReading(x)
		if w.loop.drained(w.View(), id, w.facts.Draining[id]) {
			t.Error("drained while the engine runs something")
		}
	})
}

func TestRefusals(t *testing.T) {
	f := func(name, want string, up bool, spoil func(w *world)) {
		t.Run(name, func(t *testing.T) {
			w := grown(t, 2)
			if up {
				w.spread(40)
			}
			spoil(w)
			before := w.target()
			if err := w.run(8 * time.Minute); err != nil {
				t.Fatal(err)
			}
			if w.target() != before {
				t.Errorf("target %d became %d", before, w.target())
			}
			if r := w.refusal(); r != want {
				t.Errorf("refused for %q, want %q", r, want)
			}
			if testutil.ToFloat64(w.loop.m.refusals.WithLabelValues(want)) == 0 {
				t.Error("not counted")
			}
		})
	}
	hold := func(w *world) {
		w.facts = w.facts.Clone()
		w.facts.Holds[chat] = true
		w.facts.Index++
		w.store.SetFacts(w.facts)
	}
	f("an operator holds", refusedHold, true, hold)
	f("an operator holds, idle", refusedHold, false, hold)
	f("two of three routers are silent", refusedCoverage, true, func(w *world) { w.silent["r2"], w.silent["r3"] = true, true })
	f("no engine is read", refusedReadings, false, func(w *world) { w.unread["fake:1"], w.unread["fake:2"] = true, true })
	f("one engine of two is not read", refusedReadings, false, func(w *world) { w.unread["fake:1"] = true })
	f("the pool is skewed", refusedSkewed, true, func(w *world) {
		w.store.SetWeights(&state.Weights{Pools: map[string]state.PoolBalance{"chat": {Skew: 4}}})
	})
	f("the actuator fails", refusedActuator, true, func(w *world) { w.act.broken = fmt.Errorf("no") })
	f("the maximum is reached", refusedMaximum, true, func(w *world) {
		s := spec()
		s.ScaleMax = 2
		w.store.SetPools([]state.PoolSpec{s})
	})
}

// Engines that can't be read say nothing: not that nobody asks, nor that all are full.
func TestC39ReadingsFail(t *testing.T) {
	for _, load := range []int{30, 0} {
		for _, unread := range []int{1, 4} {
			w := grown(t, 4)
			w.spread(load) // four carry 32 at the wanted utilisation
			for i := range unread {
				w.unread[state.ReplicaID(fmt.Sprint("fake:", 1+i))] = true
			}
			before := len(w.facts.Decisions)
			if err := w.run(20 * time.Minute); err != nil {
				t.Fatal(err)
			}
			if w.target() != 4 || len(w.facts.Decisions) != before || w.running() != 4 || len(w.facts.Draining) != 0 {
				t.Errorf("load %d, %d unread: target %d, %+v", load, unread, w.target(), w.facts.Decisions)
			}
			if r := w.loop.Refused(); load == 0 && (len(r) != 1 || r[0].Reason != refusedReadings) {
				t.Errorf("load %d, %d unread: refused %+v", load, unread, r)
			}
			clear(w.unread)
			w.spread(0)
			w.until(10*time.Minute, "down again", func() bool { return w.target() == 3 })
		}
	}
}

func TestReplicasThatAreNotTheActuatorsStay(t *testing.T) {
	w := newWorld(t, spec())
	var list []state.Replica
	for i := range 3 {
		list = append(list, state.Replica{ID: state.ReplicaID(fmt.Sprint("static", i)), Role: state.RoleBoth, URL: fmt.Sprintf("http://x%d:1", i)})
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
	if err := w.run(20 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if len(w.facts.Decisions) != 0 || w.refusal() != refusedNotOurs {
		t.Errorf("%+v, refused for %q", w.facts.Decisions, w.refusal())
	}
	w.spread(30)
	w.until(2*time.Minute, "one more", func() bool { return w.target() == 4 && w.settled() })
	if w.act.made != 1 {
		t.Errorf("%d started", w.act.made)
	}
}

// order is an operator's target, committed as the leader sees it.
func (w *world) order(to int) {
	w.t.Helper()
	w.seq++
	if err := w.edit(state.Command{Kind: state.CommandSetTarget, Epoch: w.facts.Epoch, Decision: &state.Decision{
		ID: fmt.Sprint("op-", w.seq), Pool: chat.Pool, Role: chat.Role, From: w.target(), To: to, By: state.ByOperator,
	}}); err != nil {
		w.t.Fatal(err)
	}
}

// Fewer than those that the actuator does not run can't be had, and it is said
// whose they are.
func TestTargetBelowTheReplicasOfTheFileSaysWhose(t *testing.T) {
	w := newWorld(t, spec())
	list := make([]state.Replica, 3)
	for i := range list {
		list[i] = state.Replica{ID: state.ReplicaID(fmt.Sprint("static", i)), Role: state.RoleBoth, URL: fmt.Sprintf("http://x%d:1", i)}
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
	w.facts = w.facts.Clone()
	w.facts.Targets[chat] = 3
	w.store.SetFacts(w.facts)
	w.order(2)
	w.until(time.Minute, "an end", w.settled)
	if d := w.facts.LastDecision(chat); d.Outcome != state.OutcomeFailed || d.Detail != "target 2 not reached: the file or 'replica add' has 3 replicas" {
		t.Errorf("%s, %q", d.Outcome, d.Detail)
	}
}

func TestEmptyPoolWakesForAHeldRequest(t *testing.T) {
	s := spec()
	s.ScaleMin = 0
	w := newWorld(t, s)
	w.queue = 1
	w.until(time.Minute, "one", func() bool { return w.target() == 1 && w.settled() })
	w.queue = 0
	w.until(20*time.Minute, "none", func() bool { return w.target() == 0 && w.settled() })
	if len(w.act.instances) != 0 || len(w.facts.Replicas) != 0 {
		t.Error("something is left")
	}
	w.queue = 1 // within the cooldown
	w.until(20*time.Second, "awake", func() bool { return w.target() == 1 })
}

func TestLoadThatReturnsDuringADrainKeepsTheReplica(t *testing.T) {
	w := grown(t, 2)
	w.load("fake:1", 3)
	w.load("fake:2", 3)
	w.until(10*time.Minute, "a drain", func() bool { return len(w.facts.Draining) == 1 })
	w.now = w.now.Add(time.Minute) // past the cooldown, not past the deadline
	w.load("fake:1", 9)
	w.load("fake:2", 9)
	w.until(time.Minute, "kept", func() bool { return len(w.facts.Draining) == 0 && w.target() >= 2 })
	if slices.ContainsFunc(w.log, func(s string) bool { return s[:4] == "stop" }) {
		t.Errorf("it was stopped: %q", w.log)
	}
}

// A pool's decisions are counted from zero, not from the first one on.
func TestDecisionsAreCountedFromZero(t *testing.T) {
	w := newWorld(t, spec())
	n, err := testutil.GatherAndCount(w.reg, "hearsay_scale_decisions_total")
	if err != nil || n != 10 {
		t.Errorf("%d series, %v", n, err)
	}
}
