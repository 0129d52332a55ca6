package autoscale

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

// roomy are limits by which large pools have less room.
var roomy = Limits{
	Utilisation: 0.75, Busiest: 0.9, Headroom: 4, DownMargin: 0.1, DownShare: 0.2, StepUp: 2, Attainment: 0.9,
	MinCoverage: 0.75, MinReadings: 0.5, SkewLimit: 3, PendingDeadline: 10 * time.Minute,
}

func TestRoomShrinksWithTheNumberOfRequests(t *testing.T) {
	f := func(load, requests, want float64) {
		t.Helper()
		if got := roomy.aim(load, &Capacity{Requests: requests}, 0); math.Abs(got-want) > 1e-9 {
			t.Errorf("%g replicas of %g requests: %.4f, want %.4f", load, requests, got, want)
		}
	}
	f(0, 100, 0.75)
	f(1, 100, 0.75) // 4/sqrt(100) is more than a third
	f(4, 100, 1/1.2)
	f(100, 4, 1/1.2)
	f(100, 100, 0.9) // 4/sqrt(10000) is less than a ninth
	if got := testLimits.aim(100, &Capacity{Requests: 100}, 0); got != 0.8 {
		t.Errorf("without such limits: %v", got)
	}
	if n := roomy.need(&Observation{Target: 4, InFlight: 400, Capacity: Capacity{Requests: 100}}); math.Abs(n.replicas-4.8) > 1e-9 {
		t.Errorf("400 requests of 100 a replica: %.3f, want 4.8", n.replicas)
	}
}

// More of the same load never needs fewer, whatever the room.
func TestNeedGrowsWithTheLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyObservation(t)
		o.Capacity.Requests = float64(rapid.IntRange(1, 300).Draw(t, "capacity"))
		more := *o
		more.InFlight *= 1 + rapid.Float64Range(0, 1).Draw(t, "more")
		more.PrefillRate *= 1 + rapid.Float64Range(0, 1).Draw(t, "more prefill")
		if a, b := roomy.need(o).replicas, roomy.need(&more).replicas; b < a-1e-9 {
			t.Fatalf("%v for more, %v for less", b, a)
		}
	})
}

// A pool of any size whose load is constant but for noise that its room is for stays as
// it is once it went down, though it goes down by several.
func TestLargePoolDoesNotFlapOnNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load := rapid.Float64Range(1, 80).Draw(t, "load")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		o := &Observation{Min: 1, Max: 200, Target: rapid.IntRange(1, 200).Draw(t, "target"), Capacity: Capacity{Requests: 50}, DownWindow: 20 * time.Second}
		noise := roomy.margin(roomy.need(&Observation{InFlight: 50 * load, Capacity: o.Capacity})) / 2.2
		var seen sizes
		now, down := time.Unix(1000, 0), false
		for range 600 {
			now = now.Add(time.Second)
			o.InFlight = 50 * load * (1 + noise*(2*rng.Float64()-1))
			seen.note(fitting(o, &roomy), o.DownWindow, now)
			if o.Fits = seen.most(o.DownWindow, now); couldLose(o, &roomy) {
				o.CalmFor += time.Second
			} else {
				o.CalmFor = 0
			}
			p := Propose(o, &roomy)
			if p.To > p.From && down {
				t.Fatalf("up to %d after a step down", p.To)
			}
			if p.From-p.To > max(1, p.From/5) {
				t.Fatalf("%d to %d at once", p.From, p.To)
			}
			down = down || p.To < p.From
			o.Target = p.To
		}
		o.InFlight = 50 * load * (1 + noise)
		if n := fitting(o, &roomy); o.Target > n {
			t.Fatalf("%d replicas are left, where %d would do", o.Target, n)
		}
	})
}

func TestStepDown(t *testing.T) {
	f := func(name string, target, fits int, inFlight float64, want int) {
		t.Helper()
		o := &Observation{Min: 1, Max: 40, Target: target, Fits: fits, InFlight: inFlight, Capacity: Capacity{Requests: 10}, CalmFor: time.Hour, DownWindow: time.Minute}
		p := Propose(o, &roomy)
		if p.To != want || p.Reason != reasonIdle {
			t.Errorf("%s: to %d (%s), want %d", name, p.To, p.Reason, want)
		}
	}
	f("the window is not known", 20, 0, 30, 19)
	f("a fifth at most", 20, 5, 30, 16)
	f("to what the window could have done with", 20, 18, 30, 18)
	f("to what fits now", 20, 5, 120, 18)
	f("a small pool by one", 4, 1, 3, 3)
}

func TestStepUpIsCalledOffWhenEnoughServe(t *testing.T) {
	f := func(name string, want int, set func(o *Observation)) {
		t.Helper()
		o := &Observation{
			Min: 1, Max: 40, Target: 12, Serving: 6, Open: true, OpenUp: true, OpenFrom: 4, FitsLately: 6, InFlight: 40, Capacity: Capacity{Requests: 10},
			DownWindow: time.Hour,
		}
		set(o)
		if p := Propose(o, &roomy); p.To != want || (p.Reason == reasonEnough) != (want < 12) {
			t.Errorf("%s: to %d (%s), want %d", name, p.To, p.Reason, want)
		}
	}
	f("those that serve are enough", 6, func(*Observation) {})
	f("one fewer than fits", 12, func(o *Observation) { o.Serving = 5 })
	f("not seen for a cooldown", 12, func(o *Observation) { o.FitsLately = 0 })
	f("what was there before stays", 9, func(o *Observation) { o.OpenFrom = 9 })
	f("it was carried out", 12, func(o *Observation) { o.Open = false })
	f("it was a step down", 12, func(o *Observation) { o.OpenUp = false })
	f("an operator's", 12, func(o *Observation) {
		o.past(&state.Decision{From: 4, To: 12, By: state.ByOperator}, time.Unix(1, 0))
	})
}

func TestSizesOfAWindow(t *testing.T) {
	var s sizes
	at := func(second int) time.Time { return time.Unix(1000+int64(second), 0) }
	for i := range 30 {
		s.note(map[bool]int{true: 9, false: 3}[i == 5], 20*time.Second, at(i))
		want := 0
		if i >= 10 {
			want = 3
			if i <= 15 {
				want = 9
			}
		}
		if n := s.most(10*time.Second, at(i)); n != want {
			t.Errorf("second %d: %d, want %d", i, n, want)
		}
	}
	if len(s.list) > 21 {
		t.Errorf("%d are kept", len(s.list))
	}
}

// A steady rate is counted over two minutes, one that has changed by more than chance
// over half a minute.
func TestRateOfAChange(t *testing.T) {
	w := newWatched(t)
	over := func() float64 {
		t, d, _ := w.r.over(w.r.window())
		return float64(t.Requests) / d.Seconds()
	}
	n := w.pass(150, 7, 1000, 20)
	n = w.pass(20, 7, n, 23) // 60 more than 600: less than six roots
	if got := over(); math.Abs(got-20.5) > 0.01 {
		t.Errorf("by chance: %.2f/s, want 20.5 of two minutes", got)
	}
	n = w.pass(10, 7, n, 60)
	if got, want := over(), (20*23+10*60)/30.0; math.Abs(got-want) > 0.01 {
		t.Errorf("a change: %.2f/s, want %.2f of half a minute", got, want)
	}
	w.pass(130, 7, n, 60)
	if got := over(); got != 60 {
		t.Errorf("steady again: %.2f/s", got)
	}
}

// What comes may grow while replicas are coming: then more are added, as its growth alone
// asks for.
func TestWhatOutgrowsAStepUp(t *testing.T) {
	f := func(name string, want int, set func(o *Observation)) {
		t.Helper()
		o := &Observation{
			Min: 1, Max: 40, Target: 8, Serving: 4, Pending: 4, Open: true, OpenUp: true, OpenFrom: 4, Coverage: 1, Readings: 1, HotFor: time.Hour,
			PrefillRate: 75000, Capacity: Capacity{Requests: 10, PrefillRate: 10000},
			Last: Past{Up: true, Needed: 7.5, Came: Demand{PrefillRate: 50000}},
		}
		set(o)
		p := Propose(o, &outgrows)
		if Guard(o, &p, &outgrows) != "" {
			p.To = o.Target
		}
		if p.To != want {
			t.Errorf("%s: to %d (%s), want %d", name, p.To, p.Text, want)
		}
	}
	f("half as much again: 1.5 x 7.5, of which 10 are needed", 10, func(*Observation) {})
	f("engines seem half as fast: no more than it has grown", 12, func(o *Observation) { o.Capacity.PrefillRate = 5000 })
	f("what waits does not count", 8, func(o *Observation) { o.PrefillRate, o.InFlight = 50000, 300 })
	f("too little growth", 8, func(o *Observation) { o.PrefillRate, o.Capacity.PrefillRate = 54000, 5000 })
	f("within what was decided", 8, func(o *Observation) { o.Last.Needed = 5 })
	f("nothing is known of then", 8, func(o *Observation) { o.Last.Came = Demand{} })
	f("the last step was down", 8, func(o *Observation) { o.Last.Up = false })
	f("what is foreseen counts", 10, func(o *Observation) { o.PrefillRate, o.Ahead.PrefillRate = 50000, 75000 })
}

var outgrows = func() Limits {
	l := roomy
	l.Regrow = 0.1
	return l
}()
