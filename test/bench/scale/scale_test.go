package main

import (
	"fmt"
	"math"
	"sync"
	"testing"
)

// model is made once: reading the lengths takes a while.
var model = sync.OnceValues(newEngine)

func fresh(t *testing.T) *engine {
	t.Helper()
	e, err := model()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// short is a workload for tests, in which replicas start within 2 to 3 min.
func short(name string, length int, rate func(int) float64) *workload {
	w := steady(name, "", length, rate)
	w.startMax = 3 * minute
	return w
}

func level(rate float64) func(int) float64 { return func(int) float64 { return rate } }

// jump is 10 requests/s, and 30 from 20 to 60 min.
func jump(t int) float64 {
	if t >= 20*minute && t < 60*minute {
		return 30
	}
	return 10
}

func rivals() []rule {
	return []rule{newHPA("in_flight", 30, 300), newHPA("queue", 1, 300), newKPA(30, 60, 0), newKPA(30, 60, 300)}
}

// everyRule plays a trial under all rules, hearsay among them.
func everyRule(t *testing.T, x *trial, f func(r string, p *pool, out outcome)) {
	t.Helper()
	for _, r := range rivals() {
		p := x.pool()
		out := play(p, r)
		f(fmt.Sprint(r.name(), " ", r.setting()), p, out)
	}
	p := x.pool()
	h, err := newHearsay(p, variant{})
	if err != nil {
		t.Fatal(err)
	}
	out := play(p, h)
	if h.err != nil {
		t.Fatal(h.err)
	}
	f("hearsay", p, out)
}

func TestEngineHoldsTheObjectiveUpToWhatItSustains(t *testing.T) {
	e := fresh(t)
	rate := e.sustains()
	if rate < 2 || rate > 10 || !e.holds(rate*0.99) || e.holds(rate*1.01) {
		t.Errorf("sustains %f requests/s", rate)
	}
	// The fluid in time agrees with what was found for its rest.
	for _, x := range []struct {
		use float64
		bad bool
	}{{0.97, false}, {1.1, true}} {
		w := short("rest", hour, level(4*rate*x.use))
		come := make([]second, w.length)
		for i := range come {
			come[i] = second{float32(4 * rate * x.use), float32(4 * rate * x.use * e.prompt)}
		}
		out := play(newPool(e, w, 1, come, 4), fixed{})
		if (out.Violated > 50) != x.bad || !x.bad && out.Violated > 0 {
			t.Errorf("at %.2f of it %.0f minutes are violated", x.use, out.Violated)
		}
	}
}

// fixed never resizes.
type fixed struct{}

func (fixed) name() string    { return "fixed" }
func (fixed) setting() string { return "" }
func (fixed) act(*pool)       {}

func TestEveryRequestIsServedOrAccountedFor(t *testing.T) {
	e := fresh(t)
	x := newTrial(e, short("jump", 80*minute, jump), 1)
	everyRule(t, x, func(r string, p *pool, out outcome) {
		m, left := &p.measure, p.heldN
		for _, c := range p.list {
			left += c.inFlight()
		}
		if sum := m.done + m.refused + m.lost + left; math.Abs(sum-m.come) > 1e-6*m.come {
			t.Errorf("%s: %f came, %f ended, %f refused, %f cut off, %f left", r, m.come, m.done, m.refused, m.lost, left)
		}
		if m.late > m.come || m.done < 0.7*m.come {
			t.Errorf("%s: %f came, %f late, %f ended", r, m.come, m.late, m.done)
		}
		hours := 0.0
		for _, s := range out.Series {
			hours += s.Replicas / 60
		}
		if math.Abs(hours-out.Hours) > 0.1*out.Hours {
			t.Errorf("%s: %f replica-hours, by the minutes %f", r, out.Hours, hours)
		}
	})
}

func TestEveryRuleFollowsAStep(t *testing.T) {
	e := fresh(t)
	x := newTrial(e, short("jump", 100*minute, jump), 1)
	need := func(rate float64) float64 { return rate / e.sustains() }
	everyRule(t, x, func(r string, _ *pool, out outcome) {
		if high := out.Series[58].Serving; high < need(30) {
			t.Errorf("%s: %g replicas serve at the height, %.1f are needed", r, high, need(30))
		}
		if low := out.Series[98].Serving; low >= out.Series[58].Serving || low < need(8) {
			t.Errorf("%s: %g replicas serve afterwards", r, low)
		}
	})
}

func TestNothingSwingsUnderAConstantLoad(t *testing.T) {
	e := fresh(t)
	for _, rate := range []float64{8, 20, 41} {
		x := newTrial(e, short("constant", 3*hour, level(rate)), 1)
		out, err := x.hearsay(variant{})
		if err != nil {
			t.Fatal(err)
		}
		if out.FlipsHour > 1 || out.Violated > 0 {
			t.Errorf("%g/s: %.2f turns an hour, %g minutes violated", rate, out.FlipsHour, out.Violated)
		}
	}
}

func TestFlappingReadinessMakesNoSwings(t *testing.T) {
	w := short("flapping", 3*hour, level(20))
	w.flaps = func(t int) bool { return t > 30*minute && t < 150*minute }
	out, err := newTrial(fresh(t), w, 1).hearsay(variant{})
	if err != nil {
		t.Fatal(err)
	}
	if out.FlipsHour > 2 {
		t.Errorf("%.2f turns an hour", out.FlipsHour)
	}
}

func TestBlindRuleChangesNothing(t *testing.T) {
	w := short("outage", hour, jump)
	w.blind = func(t int) bool { return t >= 19*minute && t < 50*minute }
	everyRule(t, newTrial(fresh(t), w, 1), func(r string, _ *pool, out outcome) {
		if a, b := out.Series[24].Replicas, out.Series[49].Replicas; a != b {
			t.Errorf("%s: %g replicas, and %g later, with nothing seen between", r, a, b)
		}
	})
}

func TestOracleIsNotBeaten(t *testing.T) {
	e := fresh(t)
	x := newTrial(e, short("jump", 80*minute, jump), 1)
	o := x.oracle()
	if o.Violated != 0 {
		t.Errorf("it violates %g minutes", o.Violated)
	}
	everyRule(t, x, func(r string, _ *pool, out outcome) {
		if out.Violated <= o.Violated && out.Hours < o.Hours {
			t.Errorf("%s: %g minutes violated in %.2f replica-hours, the oracle %g in %.2f", r, out.Violated, out.Hours, o.Violated, o.Hours)
		}
	})
}

func TestRunsFollowTheirSeed(t *testing.T) {
	e := fresh(t)
	w := short("jump", 40*minute, jump)
	get := func(seed uint64) outcome {
		out, err := newTrial(e, w, seed).hearsay(variant{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b, c := get(1), get(1), get(2)
	if a.Hours != b.Hours || a.Late != b.Late || a.Late == c.Late {
		t.Errorf("seed 1 gives %v and %v, seed 2 %v", a.Late, b.Late, c.Late)
	}
}
