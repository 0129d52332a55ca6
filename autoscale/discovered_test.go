package autoscale

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// orchestrated gives a world whose replicas an orchestrator has and discovery lists: n
// that are ready. Nothing was decided yet.
func orchestrated(t *testing.T, n int) *world {
	t.Helper()
	s := spec()
	s.ScaleMin = 1
	w := newWorld(t, s)
	w.act.discovered, w.act.asked = true, n
	for range n {
		w.act.grow()
	}
	w.discover()
	return w
}

// grow makes one more Pod, ready at once if time has not begun.
func (a *fake) grow() {
	a.made++
	a.instances = append(a.instances, &instance{Instance: state.Instance{Replica: state.Replica{
		ID: state.ReplicaID(fmt.Sprint("uid", a.made)), Pool: "chat", Role: state.RoleBoth, URL: fmt.Sprint("http://h:", a.made),
	}}})
}

// ensureDiscovered is Ensure of an orchestrator: it ends those that may go.
func (a *fake) ensureDiscovered(d state.Desired) (state.Actual, error) {
	a.instances = slices.DeleteFunc(a.instances, func(i *instance) bool { return i.Stopping && !a.clings[i.Replica.ID] })
	for _, i := range a.instances {
		if !i.Stopping && slices.Contains(d.Remove, i.Replica.ID) && a.asked > d.Want {
			if err := a.w.step("stop "+string(i.Replica.ID), func() error { i.Stopping = true; a.asked--; return nil }); err != nil {
				return a.actual(), err
			}
		}
	}
	for a.asked < d.Want {
		if err := a.w.step("start", func() error {
			a.asked++
			a.grow()
			a.instances[len(a.instances)-1].since = a.w.now
			return nil
		}); err != nil {
			return a.actual(), err
		}
	}
	return a.actual(), nil
}

// discover lists what is ready, and for a minute as leaving what is not there any more.
func (w *world) discover() {
	var list []state.Replica
	for _, i := range w.act.actual().Instances {
		x := i.Replica
		if w.found[x.ID] = w.found[x.ID] || i.Ready; !w.found[x.ID] {
			continue
		}
		if i.Stopping {
			x.Leaving = "its Pod terminates"
		}
		list = append(list, x)
	}
	for id := range w.found {
		if !slices.ContainsFunc(list, func(x state.Replica) bool { return x.ID == id }) && w.found[id] {
			list = append(list, state.Replica{ID: id, Pool: "chat", Role: state.RoleBoth, URL: "http://" + string(id), Leaving: state.ListedNoMore})
		}
	}
	w.store.SetReplicas(state.SourceDiscovery, "chat", list)
}

// pass lets time pass with an orchestrator.
func (w *world) pass(bound time.Duration, what string, ok func() bool) {
	w.t.Helper()
	w.until(bound, what, func() bool {
		w.discover()
		return ok()
	})
}

// What there is when nothing was decided is the target, ready or not: a leader that comes
// to a Deployment whose Pods are starting does not make it smaller.
func TestDiscoveredReplicasAreTakenOver(t *testing.T) {
	w := orchestrated(t, 3)
	w.act.stuck = true
	w.found = map[state.ReplicaID]bool{}
	w.discover()
	for range 60 {
		w.discover()
		if err := w.run(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.facts.Decisions) != 0 || len(w.log) != 0 {
		t.Errorf("%+v, %q", w.facts.Decisions, w.log)
	}
	if r := w.loop.Reports(); r[0].Seen.Target != 3 {
		t.Errorf("target %d", r[0].Seen.Target)
	}
}

// They come and go without a word in the facts, but for the drains.
func TestDiscoveredReplicasComeAndGo(t *testing.T) {
	w := orchestrated(t, 2)
	w.spread(30)
	w.pass(time.Minute, "more", func() bool { return w.target() == 4 && w.settled() })
	if want := []string{"target 2->4", "start", "start", "settle done"}; !slices.Equal(w.log, want) {
		t.Errorf("%q", w.log)
	}
	w.log = nil
	w.spread(0)
	w.pass(20*time.Minute, "fewer", func() bool { return w.target() == 3 && w.settled() })
	if len(w.log) != 5 || w.log[0] != "target 4->3" || !strings.HasPrefix(w.log[1], "drain uid") || !strings.HasPrefix(w.log[2], "stop uid") ||
		!strings.HasPrefix(w.log[3], "remove_replica uid") || w.log[4] != "settle done" {
		t.Errorf("%q", w.log)
	}
	if len(w.facts.Replicas) != 0 || len(w.facts.Draining) != 0 {
		t.Errorf("%v, %v", w.facts.Replicas, w.facts.Draining)
	}
	// The one that is gone is still listed, as leaving, and is no reason for anything.
	w.log = nil
	for range 30 {
		w.discover()
		if err := w.run(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.log) != 0 || len(w.act.instances) != 3 {
		t.Errorf("%q, %d instances", w.log, len(w.act.instances))
	}
}

// More than were asked for, as during a roll-out, are not for us to remove.
func TestSurgeIsNotDrained(t *testing.T) {
	w := orchestrated(t, 2)
	w.spread(20)
	w.pass(time.Minute, "three", func() bool { return w.target() == 3 && w.settled() })
	w.log = nil
	w.act.grow()
	for range 10 {
		w.discover()
		if err := w.run(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.log) != 0 {
		t.Errorf("%q", w.log)
	}
}

// Where the orchestrator says who goes, that one is drained; when the order changes,
// another one is, and the first takes requests again.
func TestTurnDecidesWhoIsDrained(t *testing.T) {
	w := orchestrated(t, 3)
	turn := map[state.ReplicaID]int{"uid1": 3, "uid2": 1, "uid3": 2}
	w.act.turn = turn
	w.facts = w.facts.Clone()
	w.facts.Targets[chat] = 3
	w.store.SetFacts(w.facts)
	w.load("uid2", 3) // the busiest
	w.order(2)
	w.pass(10*time.Second, "a drain", func() bool { return len(w.facts.Draining) == 1 })
	if _, ok := w.facts.Draining["uid2"]; !ok {
		t.Errorf("%v", w.facts.Draining)
	}
	turn["uid3"], turn["uid2"] = 1, 2
	w.pass(10*time.Second, "another drain", func() bool { _, ok := w.facts.Draining["uid3"]; return ok })
	if len(w.facts.Draining) != 1 {
		t.Errorf("%v", w.facts.Draining)
	}
}

// A target that turns out to be somebody else's ends its decision, with the reason, and
// no other one is taken.
func TestTargetOfSomebodyElse(t *testing.T) {
	w := orchestrated(t, 2)
	w.spread(30)
	w.act.startTime = time.Hour
	w.pass(time.Minute, "a decision", func() bool { return w.target() == 4 })
	w.act.broken = fmt.Errorf("the HorizontalPodAutoscaler x sizes it: %w", state.ErrNotOurs)
	w.pass(time.Minute, "an end", w.settled)
	if d := w.facts.LastDecision(chat); d.Outcome != state.OutcomeFailed || !strings.Contains(d.Detail, "HorizontalPodAutoscaler x sizes it") {
		t.Errorf("%s, %q", d.Outcome, d.Detail)
	}
	w.spread(90)
	n := len(w.facts.Decisions)
	for range 300 {
		w.discover()
		if err := w.run(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.facts.Decisions) != n || w.refusal() != refusedNotOurs {
		t.Errorf("%+v, %q", w.facts.Decisions, w.refusal())
	}
}

// What befell replicas otherwise than decided is told with the outcome.
func TestNoteIsToldWithTheOutcome(t *testing.T) {
	w := orchestrated(t, 2)
	w.spread(30)
	w.act.note = "somebody else set vllm from 4 to 1 replicas"
	w.pass(time.Minute, "an end", w.settled)
	if d := w.facts.LastDecision(chat); d.Outcome != state.OutcomeDone || d.Detail != "4 replicas; "+w.act.note {
		t.Errorf("%s, %q", d.Outcome, d.Detail)
	}
}

// A pool of which an instance is several replicas is not scaled by instances.
func TestSeveralReplicasOfAnInstance(t *testing.T) {
	w := orchestrated(t, 2)
	w.spread(30)
	w.pass(time.Minute, "a decision", w.settled)
	w.log = nil
	w.store.SetReplicas(state.SourceDiscovery, "chat", []state.Replica{{ID: "uid1:1", Pool: "chat", URL: "http://h:1", Role: state.RoleBoth}, {ID: "uid1:2", Pool: "chat", URL: "http://h:2", Role: state.RoleBoth}})
	if err := w.run(5 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if r := w.loop.Reports(); len(w.log) != 0 || !strings.Contains(r[0].Problem, "several replicas") {
		t.Errorf("%q, %+v", w.log, r)
	}
}

// A Pod that takes long to end, as of a roll-out or on a node that is away, keeps no
// decision open: the next one would wait for it. One that was drained to go is waited for.
func TestReplicaThatIsEndedByOthersIsNotWaitedFor(t *testing.T) {
	w := orchestrated(t, 3)
	w.act.clings = map[state.ReplicaID]bool{"uid1": true}
	w.act.instances[0].Stopping = true
	w.act.grow() // in its place
	w.discover()
	w.spread(30)
	w.pass(time.Minute, "more", func() bool { return w.target() == 4 && w.settled() })
	if d := w.facts.LastDecision(chat); d.Outcome != state.OutcomeDone || d.Detail != "4 replicas" {
		t.Errorf("%+v", d)
	}
	w.spread(0)
	w.order(3)
	w.pass(time.Minute, "fewer", w.settled)
	if d := w.facts.LastDecision(chat); d.Outcome != state.OutcomeDone || d.Detail != "3 replicas" {
		t.Errorf("%+v", d)
	}
	for _, i := range w.act.instances {
		if !i.Stopping {
			w.act.clings[i.Replica.ID] = true
		}
	}
	w.order(2)
	w.pass(time.Minute, "one ends", func() bool { return len(w.facts.Draining) == 1 && w.act.asked == 2 })
	for range 30 {
		w.discover()
		if err := w.run(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if w.settled() {
		t.Errorf("done before it is gone: %+v", w.facts.LastDecision(chat))
	}
	clear(w.act.clings)
	w.pass(10*time.Second, "gone", w.settled)
}
