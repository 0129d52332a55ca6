package autoscale

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/state"
)

// A plan that is refused again and again is one entry with a count; another reason, or a
// decision between, begins a new one.
func TestRefusalsAreKeptAndPutTogether(t *testing.T) {
	w := grown(t, 1)
	grownBy := w.facts.LastDecision(chat).ID
	w.differ = true
	w.spread(45)
	if err := w.run(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	list := w.loop.Refused()
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	r := list[0]
	if r.Key != chat || r.Reason != refusedConfig || r.Count != 8 || r.From != 1 || r.To != 3 || r.After != grownBy ||
		r.Last.Sub(r.First) != 105*time.Second || !strings.HasPrefix(r.Text, "45 requests of ") {
		t.Errorf("%+v", r)
	}
	w.act.broken = errors.New("the actuator is away")
	if err := w.run(time.Minute); err != nil {
		t.Fatal(err)
	}
	if list = w.loop.Refused(); len(list) != 2 || list[1].Reason != refusedActuator || list[1].Text != "list replicas: the actuator is away" {
		t.Errorf("%+v", list)
	}
	w.act.broken, w.differ = nil, false
	w.until(time.Minute, "a decision", func() bool { return w.target() == 3 })
	w.until(2*time.Minute, "another refusal", func() bool {
		list = w.loop.Refused()
		return len(list) > 2
	})
	if r := list[len(list)-1]; r.After != w.facts.LastDecision(chat).ID {
		t.Errorf("%+v", r)
	}
	// Its term over, this router has nothing to say.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.loop.Run(ctx, w.facts.Epoch); err != nil || len(w.loop.Refused()) != 0 {
		t.Errorf("%v, %+v", err, w.loop.Refused())
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	var s refusedLog
	at := time.Unix(1_000_000, 0)
	for i := range 3 * maxRefused {
		s.add(Refused{Key: chat, Last: at, Reason: fmt.Sprint(i)})
	}
	if len(s.list) != maxRefused || s.list[0].Reason != fmt.Sprint(2*maxRefused) {
		t.Errorf("%d, from %s on", len(s.list), s.list[0].Reason)
	}
	// Two targets do not part each other's repeats; a long pause does.
	s = refusedLog{}
	other := state.TargetKey{Pool: "other", Role: state.RoleBoth}
	for i := range 6 {
		s.add(Refused{Key: []state.TargetKey{chat, other}[i%2], Last: at.Add(time.Duration(i) * time.Minute), Reason: refusedHold})
	}
	s.add(Refused{Key: chat, Last: at.Add(time.Hour), Reason: refusedHold})
	if len(s.list) != 3 || s.list[0].Count != 3 || s.list[1].Count != 3 || s.list[2].Count != 1 {
		t.Errorf("%+v", s.list)
	}
}

// An actuator that was away for a moment has not failed a decision that is under way
// again.
func TestActuatorThatWasAwayForAMomentFailsNothing(t *testing.T) {
	w := grown(t, 1)
	w.act.startTime = time.Minute
	w.act.refuses = errors.New("come back later")
	w.spread(45)
	w.until(time.Minute, "a decision", func() bool { return w.target() == 3 })
	if err := w.run(3 * time.Second); err != nil {
		t.Fatal(err)
	}
	w.act.refuses = nil
	w.until(2*time.Minute, "an end", w.settled)
	if d := w.facts.LastDecision(chat); d.Outcome != state.OutcomeDone || w.running() != 3 {
		t.Errorf("%s: %s; %d run", d.Outcome, d.Detail, w.running())
	}
}

// One that can't even be asked has, and the target is reached once it can.
func TestActuatorThatDoesNotAnswerFailsTheDecision(t *testing.T) {
	w := grown(t, 1)
	w.act.startTime = 20 * time.Minute
	for _, i := range w.act.instances {
		i.since = time.Time{}
	}
	w.spread(45)
	w.until(time.Minute, "a decision", func() bool { return w.target() == 3 })
	w.act.broken = errors.New("nobody there")
	began := w.now
	w.until(time.Minute, "given up on", w.settled)
	if d := w.facts.LastDecision(chat); d.Outcome != state.OutcomeFailed || d.Detail != "list replicas: nobody there" {
		t.Errorf("%s: %s", d.Outcome, d.Detail)
	}
	if took := w.now.Sub(began); took < giveUpAfter || took > giveUpAfter+2*time.Second {
		t.Errorf("after %v", took)
	}
	w.act.broken, w.act.startTime = nil, 20*time.Second
	w.until(time.Minute, "three after all", func() bool { return w.running() == 3 && w.target() == 3 })
}

// An empty pool is planned for each second while somebody waits, so that it wakes at
// once. What hinders that counts as any refusal does: at once, then with the plans that
// are due.
func TestRefusedWakeCountsOnceAPlan(t *testing.T) {
	s := spec()
	s.ScaleMin = 0
	w := newWorld(t, s)
	w.order(0)
	w.until(time.Minute, "asleep", w.settled)
	began := w.now
	w.differ, w.queue = true, 3
	if err := w.run(time.Minute); err != nil {
		t.Fatal(err)
	}
	list := w.loop.Refused()
	if len(list) != 1 || list[0].Reason != refusedConfig || list[0].First.Sub(began) > time.Second || list[0].Count < 4 || list[0].Count > 5 {
		t.Errorf("%+v", list)
	}
	if n := testutil.ToFloat64(w.loop.m.refusals.WithLabelValues(refusedConfig)); int(n) != list[0].Count {
		t.Errorf("%v counted, %d told of", n, list[0].Count)
	}
	w.differ = false
	w.until(2*time.Second, "awake", func() bool { return w.target() == 1 })
}

// An actuator that fails while nothing is to be done stands in the log, until it answers;
// an open decision says so itself.
func TestActuatorThatFailsAtRestIsInTheLog(t *testing.T) {
	f := func(broken error, reason string) {
		t.Helper()
		w := grown(t, 1)
		w.act.broken = broken
		if err := w.run(time.Minute); err != nil {
			t.Fatal(err)
		}
		list := w.loop.Refused()
		if len(list) != 1 || list[0].Reason != reason || list[0].Count != 4 || list[0].From != 1 || list[0].To != 1 || list[0].Text != "list replicas: "+broken.Error() {
			t.Errorf("%+v", list)
		}
		if r := w.refusal(); r != "" {
			t.Errorf("a plan that asks for nothing is refused for %s", r)
		}
		w.act.broken = nil
		if err := w.run(time.Minute); err != nil || len(w.loop.Refused()) != 1 || w.loop.Refused()[0].Count != 4 {
			t.Errorf("%v, %+v", err, w.loop.Refused())
		}
		w.act.broken = broken
		w.order(2)
		if err := w.run(5 * time.Second); err != nil || w.settled() || len(w.loop.Refused()) != 1 {
			t.Errorf("%v, %+v", err, w.loop.Refused())
		}
	}
	f(errors.New("connection refused"), refusedActuator)
	f(fmt.Errorf("another sizes it: %w", state.ErrNotOurs), refusedNotOurs)
}
