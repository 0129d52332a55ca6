package autoscale

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// ticks lets time pass as Run does, and returns the error that ends it.
func (w *world) ticks(d time.Duration) error {
	for range int(d / time.Second) {
		w.now = w.now.Add(time.Second)
		w.hear()
		if err := w.loop.tick(context.Background(), w.now); stale(err) {
			return err
		}
	}
	return nil
}

// An actuator that keeps the numbers of another cluster: what was decided fails with
// that reason, and once the numbers are reset the target is reached in the same term.
func TestFenceOfAnotherClusterIsSaidAndTriedAgain(t *testing.T) {
	w := newWorld(t, spec())
	w.act.startTime = 0
	w.act.epoch = 1 << 40
	if err := w.ticks(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	d := w.facts.LastDecision(chat)
	if d == nil || d.Outcome != state.OutcomeFailed || !strings.Contains(d.Detail, "reach the target: fenced: a later term") {
		t.Errorf("%+v", d)
	}
	r := w.loop.Reports()
	if len(r) != 1 || !r[0].Fenced || !strings.Contains(r[0].Trouble, "fenced") || r[0].TroubleSince.IsZero() || r[0].Actuator != "fake" {
		t.Errorf("%+v", r)
	}
	if n := len(w.facts.Decisions); n != 1 {
		t.Errorf("%d decisions", n)
	}
	w.act.epoch = 0
	if err := w.ticks(FencedRest + 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if n := len(w.act.instances); n != 1 {
		t.Errorf("%d replicas", n)
	}
	if r := w.loop.Reports(); len(r) != 1 || r[0].Fenced || r[0].Trouble != "" || !r[0].TroubleSince.IsZero() {
		t.Errorf("%+v", r)
	}
}

// A fence that a later leader has set ends the loop: its own commit is refused.
func TestFenceOfALaterLeaderEndsTheLoop(t *testing.T) {
	w := newWorld(t, spec())
	for i := 0; w.facts.LastDecision(chat) == nil && i < 20; i++ {
		if err := w.ticks(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if d := w.facts.LastDecision(chat); d == nil || !d.Open() {
		t.Fatalf("%+v", d)
	}
	old := w.loop
	w.elect() // another leader's term
	w.loop, w.act.epoch = old, w.facts.Epoch
	if err := w.ticks(2 * time.Second); !stale(err) {
		t.Errorf("it goes on: %v", err)
	}
	if d := w.facts.LastDecision(chat); !d.Open() {
		t.Errorf("settled: %+v", d)
	}
}

// An actuator that fails while nothing is to be done is told of, until it answers.
func TestActuatorThatFailsAtRestIsReported(t *testing.T) {
	w := grown(t, 1)
	w.act.broken = errors.New("connection refused")
	began := w.now.Add(time.Second)
	if err := w.run(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if r := w.loop.Reports()[0]; r.Trouble != "list replicas: connection refused" || !r.TroubleSince.Equal(began) || r.Fenced {
		t.Errorf("%+v", r)
	}
	w.act.broken = nil
	if err := w.run(time.Second); err != nil {
		t.Fatal(err)
	}
	if r := w.loop.Reports()[0]; r.Trouble != "" || !r.TroubleSince.IsZero() {
		t.Errorf("%+v", r)
	}
}

// An id that comes back with another address keeps the old one, and that is said.
func TestReplicaThatMovedIsReported(t *testing.T) {
	w := grown(t, 1)
	if r := w.loop.Reports()[0]; r.Moved != "" || r.Problem != "" {
		t.Errorf("%+v", r)
	}
	x := &w.act.instances[0].Replica
	was := x.URL
	x.URL = "http://moved:1"
	if err := w.run(time.Second); err != nil {
		t.Fatal(err)
	}
	want := "fake:1: its url changed from " + was + " to http://moved:1, which is not used: give it a new id"
	if r := w.loop.Reports()[0]; r.Moved != want || r.Problem != want {
		t.Errorf("%q, %q", r.Moved, r.Problem)
	}
}
