package autoscale

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// What a round finds is measured against the target it set out with: a decision
// that is committed while it runs is not done because the former one was.
func TestDecisionCommittedDuringARoundIsNotDoneByTheFormer(t *testing.T) {
	w := grown(t, 4)
	w.load("fake:1", 3)
	w.load("fake:2", 3)
	w.load("fake:3", 3)
	w.load("fake:4", 3)
	w.act.meanwhile = func() { w.order(2) }
	for w.act.meanwhile != nil {
		if err := w.run(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if d := w.facts.LastDecision(chat); d.To != 2 || !d.Open() {
		t.Fatalf("settled with %d running: %s, %s", w.running(), d.Outcome, d.Detail)
	}
	w.until(10*time.Minute, "the end", w.settled)
	if d := w.facts.LastDecision(chat); d.Outcome != state.OutcomeDone || d.Detail != "2 replicas" || w.running() != 2 {
		t.Errorf("%s, %q, %d running", d.Outcome, d.Detail, w.running())
	}
}

// A replica that somebody adds counts towards the target, but none of the actuator's
// goes for it before it answers.
func TestReplicaThatDoesNotAnswerReplacesNone(t *testing.T) {
	w := grown(t, 4)
	for i := 1; i <= 4; i++ {
		w.load(state.ReplicaID(fmt.Sprint("fake:", i)), 8)
	}
	w.unread["added"] = true
	w.store.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "added", Role: state.RoleBoth, URL: "http://x"}})
	w.order(4)
	w.until(time.Minute, "the end", w.settled)
	if err := w.run(time.Minute); err != nil {
		t.Fatal(err)
	}
	if d := w.facts.LastDecision(chat); w.running() != 4 || len(w.facts.Draining) != 0 || d.Detail != "5 replicas, 1 of them not answering" {
		t.Fatalf("%d running, %v draining, %q", w.running(), w.facts.Draining, d.Detail)
	}
	delete(w.unread, "added")
	w.load("fake:4", 0)
	w.until(5*time.Minute, "one goes once it answers", func() bool { return w.running() == 3 })
}

func TestReplicaOfAnotherHostIsLeftAlone(t *testing.T) {
	w := grown(t, 2)
	w.facts = w.facts.Clone()
	w.facts.Index++
	w.facts.Replicas["elsewhere:1"] = state.Replica{ID: "elsewhere:1", Pool: "chat", Role: state.RoleBoth, URL: "http://x"}
	w.store.SetFacts(w.facts)
	if err := w.run(time.Minute); err != nil {
		t.Fatal(err)
	}
	// Three exist and two are wanted: one of the actuator's own goes.
	if want := []string{"drain fake:1", "stop fake:1", "remove_replica fake:1"}; !slices.Equal(w.log, want) {
		t.Errorf("%q, want %q", w.log, want)
	}
	if _, ok := w.facts.Replicas["elsewhere:1"]; !ok {
		t.Error("the other host's replica was taken from the facts")
	}
}

func TestVanishedReplicaIsTakenFromTheFacts(t *testing.T) {
	w := grown(t, 2)
	w.act.instances = w.act.instances[1:]
	w.until(2*time.Minute, "replaced", func() bool {
		_, gone := w.facts.Replicas["fake:1"]
		return !gone && len(w.facts.Replicas) == 2
	})
}

// A leader dies at any point of growing and of shrinking; the next one, which
// remembers nothing, finishes it, and nothing is done twice.
func TestNextLeaderFinishesWhatWasBegun(t *testing.T) {
	up := func(w *world) (done func() bool) {
		w.spread(24)
		return func() bool { return w.target() == 3 && w.settled() }
	}
	down := func(w *world) (done func() bool) {
		return func() bool { return w.target() == 1 && w.settled() }
	}
	f := func(name string, from int, begin func(*world) func() bool, check func(t *testing.T, w *world)) {
		for _, after := range []bool{false, true} {
			points := 0
			for at := 1; ; at++ {
				w := grown(t, from)
				w.steps, w.dieAt, w.dieAfter = 0, at, after
				done := begin(w)
				died := false
				for t0 := w.now; !done(); {
					if w.now.Sub(t0) > 30*time.Minute {
						t.Fatalf("%s, died at step %d (after its effect: %v): not finished: %q %+v", name, at, after, w.log, w.facts.Decisions)
					}
					if err := w.run(time.Second); err != nil {
						died = true
						w.now = w.now.Add(2 * time.Second)
						w.elect()
					}
				}
				if !died {
					break
				}
				points++
				check(t, w)
				if t.Failed() {
					t.Fatalf("%s, died at step %d (after its effect: %v): %q", name, at, after, w.log)
				}
			}
			if points < 4 {
				t.Errorf("%s: only %d points tried", name, points)
			}
		}
	}
	f("up", 1, up, func(t *testing.T, w *world) {
		if w.act.made != 3 || w.running() != 3 || len(w.facts.Replicas) != 3 || len(w.facts.Decisions) != 2 {
			t.Errorf("%d started, %d run, %d in the facts, %d decisions", w.act.made, w.running(), len(w.facts.Replicas), len(w.facts.Decisions))
		}
	})
	f("down", 2, down, func(t *testing.T, w *world) {
		stops := 0
		for _, s := range w.log {
			if s[:4] == "stop" {
				stops++
			}
		}
		if w.act.made != 2 || stops != 1 || len(w.act.instances) != 1 || len(w.facts.Replicas) != 1 || len(w.facts.Draining) != 0 {
			t.Errorf("%d started, %d stopped, %d left, facts %v %v", w.act.made, stops, len(w.act.instances), w.facts.Replicas, w.facts.Draining)
		}
	})
}

func TestLeaderOfThePastStopsActing(t *testing.T) {
	w := grown(t, 1)
	old := w.loop
	w.elect()
	w.loop = old
	w.spread(40)
	if err := w.run(time.Minute); !over(err) {
		t.Errorf("%v", err)
	}
	if w.target() != 1 || len(w.log) != 0 {
		t.Errorf("it acted: %q", w.log)
	}
}

// A cooldown counts from the decision that was committed, whoever leads then.
func TestCooldownOutlivesTheLeader(t *testing.T) {
	w := grown(t, 1)
	w.spread(45)
	w.until(time.Minute, "a decision", func() bool { return w.target() == 3 })
	at := w.facts.LastDecision(chat).Seen
	w.until(50*time.Second, "carried out", w.settled)
	w.elect()
	w.spread(90)
	w.until(3*time.Minute, "the next", func() bool { return w.target() == 6 })
	if d := w.now.Sub(at); d < spec().ScaleCooldown || d > spec().ScaleCooldown+time.Minute {
		t.Errorf("after %v", d)
	}
}
