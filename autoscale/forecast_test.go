package autoscale

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// feed notes n steps of a figure.
func feed(t *trend, n int, f func(i int) float64) {
	for i := range n {
		t.note(f(i))
	}
}

func TestTrendByHand(t *testing.T) {
	var x trend
	feed(&x, 40, func(int) float64 { return 100 })
	if a := x.ahead(8); a != 0 {
		t.Errorf("constant: %v ahead", a)
	}
	// A ramp of 10 a step: in 8 steps it will be 80 more. Damped, 10 * 6.99 of it is
	// foreseen.
	x = trend{}
	feed(&x, 60, func(i int) float64 { return 100 + 10*float64(i) })
	if a := x.ahead(8); math.Abs(a-690-69.9) > 0.1 {
		t.Errorf("ramp: %.1f ahead of 690", a)
	}
	// It is seen within four minutes of its beginning.
	x = trend{}
	feed(&x, 46, func(i int) float64 { return 100 + 10*float64(max(0, i-30)) })
	if a := x.ahead(8); a < 280 {
		t.Errorf("a ramp that began 15 steps ago: %.1f ahead of 250", a)
	}
	// Neither a step nor a burst foretells more, whenever it is looked at.
	x, burst := trend{}, trend{}
	for i := range 80 {
		x.note(map[bool]float64{false: 100, true: 200}[i >= 30])
		burst.note(map[bool]float64{false: 100, true: 300}[i >= 30 && i < 36])
		for _, steps := range []float64{8, 44} {
			if a, b := x.ahead(steps), burst.ahead(steps); a != 0 || b != 0 {
				t.Errorf("at %d: %v ahead of a step, %v of a burst", i, a, b)
			}
		}
	}
	// Falling: it never foretells less.
	x = trend{}
	feed(&x, 40, func(i int) float64 { return 1000 - 10*float64(i) })
	if a := x.ahead(8); a != 0 {
		t.Errorf("falling: %v ahead", a)
	}
	x = trend{}
	feed(&x, trendLeast-1, func(i int) float64 { return 100 * float64(i) })
	if a := x.ahead(8); a != 0 {
		t.Errorf("too little seen: %v ahead", a)
	}
}

// Noise of 5 % either way is no trend, in two days of steps.
func TestTrendDoesNotFollowNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var x trend
	for i := range 2 * 24 * 240 {
		x.note(100 * (1 + 0.05*(2*rng.Float64()-1)))
		for _, steps := range []float64{8, 20, 44} {
			if a := x.ahead(steps); a != 0 {
				t.Fatalf("step %d: %v in %v steps", i, a, steps)
			}
		}
	}
}

// A day that doubles at nine is foreseen the day after, and not before it was seen.
func TestDaysAreForeseen(t *testing.T) {
	var p profile
	day := time.Unix(20_000*86400, 0)
	load := func(t time.Time) float64 {
		if h := t.Sub(t.Truncate(24 * time.Hour)).Hours(); h >= 9 && h < 17 {
			return 200
		}
		return 100
	}
	before := day.Add(9*time.Hour - 5*time.Minute)
	for at := day; at.Before(before); at = at.Add(15 * time.Second) {
		p.note(load(at), at)
	}
	if a := p.ahead(100, 10*time.Minute, before); a != 0 {
		t.Errorf("the first day: %v", a)
	}
	for at := before; at.Before(before.Add(24 * time.Hour)); at = at.Add(15 * time.Second) {
		p.note(load(at), at)
	}
	next := before.Add(24 * time.Hour)
	if a := p.ahead(100, 15*time.Minute, next); a < 140 || a > 200 {
		t.Errorf("the second day, a quarter of an hour ahead: %v", a)
	}
	if a := p.ahead(150, 15*time.Minute, next); a < 210 || a > 300 {
		t.Errorf("a day with half as much again: %v", a)
	}
	if a := p.ahead(100, 10*time.Minute, next.Add(-4*time.Hour)); a != 0 {
		t.Errorf("where nothing changes: %v", a)
	}
	if a := p.ahead(200, 10*time.Minute, next.Add(8*time.Hour)); a != 0 {
		t.Errorf("where it falls: %v", a)
	}
	if a := p.ahead(100, 15*time.Minute, next); math.IsNaN(a) {
		t.Error("no number")
	}
}

func TestCorrectionForObjectives(t *testing.T) {
	base := Observation{
		Target: 4, Max: 8, Judged: 100, Attained: 0.5, InFlight: 32, Capacity: Capacity{Requests: 10, PrefillTokens: 1e4},
		StartUp: time.Minute, Cooldown: time.Minute,
	}
	run := func(c float64, n int, set func(o *Observation)) float64 {
		o := base
		set(&o)
		for range n {
			o.Correction = c
			c = correct(c, &o, &testLimits)
		}
		return c
	}
	f := func(name string, from float64, n int, want float64, set func(o *Observation)) {
		t.Helper()
		if got := run(from, n, set); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %.4f, want %.4f", name, got, want)
		}
	}
	f("half of them miss: 10 x 0.1 x 0.4", 0, 10, 0.4, func(*Observation) {})
	f("bounded", 0, 1000, sloMost, func(*Observation) {})
	f("all meet them: it goes back slowly", 0.4, 10, 0.4-10*0.25*0.1*0.1, func(o *Observation) { o.Attained = 1 })
	f("never below nothing", 0.01, 1000, 0, func(o *Observation) { o.Attained = 1 })
	for name, set := range map[string]func(o *Observation){
		"a decision is carried out": func(o *Observation) { o.Open = true },
		"replicas are coming":       func(o *Observation) { o.Pending = 1 },
		"its effect is to come":     func(o *Observation) { o.Decided, o.LastAge = true, 90*time.Second },
		"the maximum is reached":    func(o *Observation) { o.Max = 4 },
		"the load is uneven":        func(o *Observation) { o.Skew = 9 },
		"the replicas are idle":     func(o *Observation) { o.InFlight = 4 },
	} {
		f("no windup: "+name, 0.1, 50, 0.1, set)
	}
	if got := run(0.4, 200, func(o *Observation) { o.Judged = 3 }); got > 0.01 {
		t.Errorf("unknown for long: %v", got)
	}
}
