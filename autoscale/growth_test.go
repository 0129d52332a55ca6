package autoscale

import (
	"math"
	"testing"
	"time"
)

var growing = (Config{Interval: 15 * time.Second}).withDefaults()

// passes notes minutes of a rate, of which foreseen is said to come.
func (g *growth) passes(minutes int, now time.Time, comes, foreseen func(minute float64) float64) time.Time {
	for i := range 4 * minutes {
		m := float64(i) / 4
		now = now.Add(15 * time.Second)
		g.note(Demand{PrefillRate: foreseen(m)}, Demand{PrefillRate: comes(m)}, 5*time.Minute, &growing, now)
	}
	return now
}

func level(x float64) func(float64) float64 { return func(float64) float64 { return x } }

func TestRoomForGrowthFadesWhereNothingGrows(t *testing.T) {
	var g growth
	now := g.passes(1, time.Unix(1000, 0), level(100), level(100))
	if prior := 1/growing.Utilisation - 1; g.share > prior || g.share < 0.98*prior {
		t.Errorf("%.4f at first, want %.4f", g.share, prior)
	}
	before := g.share
	now = g.passes(120, now, level(100), level(100))
	if want := before / 2; math.Abs(g.share-want) > 1e-3 {
		t.Errorf("%.4f after two hours, want %.4f", g.share, want)
	}
	g.passes(24*60, now, level(100), level(100))
	if g.share > 0.001 {
		t.Errorf("%.4f after a day", g.share)
	}
}

func TestRoomForGrowthIsWhatWasNotForeseen(t *testing.T) {
	ramp := func(m float64) float64 { return 100 + 4*m }
	calm := func() (*growth, time.Time) {
		g := &growth{}
		return g, g.passes(24*60, time.Unix(1000, 0), level(100), level(100))
	}
	g, now := calm()
	now = g.passes(5, now, level(100), ramp)
	g.passes(10, now, ramp, func(m float64) float64 { return ramp(m + 5) })
	if g.share > 0.03 {
		t.Errorf("%.3f where all was foreseen", g.share)
	}
	// In five minutes 20 more come than the 100 that were foreseen when it began.
	g, now = calm()
	g.passes(6, now, ramp, ramp)
	if math.Abs(g.share-0.2) > 0.01 {
		t.Errorf("%.3f where it was not, want 0.2", g.share)
	}
	g, now = calm()
	g.passes(1, now, level(900), level(900))
	if want := 1/growing.Utilisation - 1; g.share != want {
		t.Errorf("%.3f after a step, want no more than %.3f", g.share, want)
	}
}

// What was foreseen before a router was away says nothing of what came meanwhile.
func TestRoomForGrowthBeginsAnewAfterAGap(t *testing.T) {
	g := &growth{}
	now := g.passes(24*60, time.Unix(1000, 0), level(100), level(100))
	g.passes(4, now.Add(time.Hour), level(400), level(400))
	if g.share > 0.01 {
		t.Errorf("%.3f after an hour that was not seen", g.share)
	}
	if len(g.foreseen) > growthSteps {
		t.Errorf("%d steps are kept", len(g.foreseen))
	}
}

func TestRoomIsTheGreaterOfChanceAndGrowth(t *testing.T) {
	c := &Capacity{Requests: 100}
	for _, x := range []struct{ growth, want float64 }{{0, 1 / 1.2}, {0.1, 1 / 1.2}, {0.25, 0.8}, {2, 0.75}} {
		if got := roomy.aim(4, c, x.growth); math.Abs(got-x.want) > 1e-9 {
			t.Errorf("growth of %g: %.4f, want %.4f", x.growth, got, x.want)
		}
	}
}

func TestRealShortageAsksForMore(t *testing.T) {
	lim := roomy
	lim.Rush = 2
	f := func(name string, want int, set func(o *Observation)) {
		t.Helper()
		o := &Observation{
			Min: 1, Max: 100, Target: 10, Serving: 10, StartUp: 5 * time.Minute, Cooldown: time.Minute,
			PrefillRate: 110000, Capacity: Capacity{Requests: 100, PrefillRate: 10000},
		}
		set(o)
		if p := Propose(o, &lim); p.To != want {
			t.Errorf("%s: to %d (%s), want %d", name, p.To, p.Text, want)
		}
	}
	// 11 replicas' work in 100 requests each: 4/sqrt(1100) of room, 12.33 replicas.
	f("two more for each of the three that are short", 13+6, func(*Observation) {})
	f("those that serve work it off", 12, func(o *Observation) { o.PrefillRate = 99000 })
	f("requests under way alone", 13, func(o *Observation) { o.PrefillRate, o.InFlight = 0, 1100 })
	f("all would have come before any is called off", 13, func(o *Observation) { o.StartUp = 59 * time.Second })
	f("no more than the pool may have", 15, func(o *Observation) { o.Max = 15 })
}

// What engines teach of their rates while objectives are missed does not count.
func TestDistressTeachesNoRates(t *testing.T) {
	var w watch
	fast, slow := Capacity{PrefillRate: 10000, OutputRate: 2000}, Capacity{PrefillRate: 9000, OutputRate: 700}
	for _, x := range []struct {
		c    Capacity
		note bool
		want float64
	}{{fast, false, 2000}, {fast, true, 2000}, {slow, false, 2000}, {slow, true, 2000}, {slow, true, 1350}} {
		if got := w.steady(x.c, x.note, 4); got.OutputRate != x.want {
			t.Errorf("%+v (%v): %g, want %g", x.c, x.note, got.OutputRate, x.want)
		}
	}
	lim := Limits{Attainment: 0.9}
	for _, x := range []struct {
		judged   int64
		attained float64
		want     bool
	}{{19, 0, false}, {20, 0.89, true}, {20, 0.9, false}} {
		if o := (&Observation{Judged: x.judged, Attained: x.attained}); o.distressed(&lim) != x.want {
			t.Errorf("%+v", x)
		}
	}
}
