package balance_test

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
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

// What ejected a replica by its failure rate is told with the rate.
func TestAnEjectionByRateTellsTheShare(t *testing.T) {
	w := newWorld(t, 4)
	w.report(0, failed, failed, ok, failed, failed, ok, failed, failed, ok, failed, failed)
	w.step(0)
	if x := w.weight(0); x.Reason != state.ReasonFailureRate || x.FailedShare < 0.72 || x.FailedShare > 0.74 { // 8 of 11
		t.Errorf("weight %+v", x)
	}
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

// An engine of another model takes nobody's place: with it alone beside, the only
// replica of the pool's model stays in, and is found to be back by the next request.
func TestEnginesOfAnotherModelDoNotCount(t *testing.T) {
	wrong := func(r *state.Reading) { r.WrongModel = "llama" }
	w := newWorld(t, 2)
	w.read(1, wrong)
	w.report(0, failed, failed, failed)
	w.step(0)
	w.want("one of the model, one of another", "busy")
	if x := w.weight(0); x.Reason != state.ReasonEjectionLimit {
		t.Errorf("weight %+v", x)
	}
	w = newWorld(t, 2)
	w.read(0, wrong)
	w.read(1, wrong)
	w.report(0, failed, failed, failed)
	w.step(0)
	w.want("both of another: they are all there is", "ejected", "up")
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
