package sketch

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestPredictionErrorIsTheMedianOfLateAndForgets(t *testing.T) {
	var tr truth
	if s := tr.stats(); s != (PredictionStats{}) {
		t.Errorf("nothing reported: %+v", s)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		tr.add(1000, 400) // long ago it was bad
	}
	if s := tr.stats(); s.Tokens != 600 || s.Share < 0.59 || s.Share > 0.61 || s.Bias < 0.59 || s.Reports != 1000 {
		t.Errorf("%+v", s)
	}
	for range 200 {
		reported := 1000 + 20*rng.Float64()
		if rng.IntN(10) == 0 {
			reported = 0 // a tenth is lost: the median does not care
		}
		tr.add(1000, reported)
	}
	if s := tr.stats(); s.Tokens > 20 || s.Share > 0.02 || len(tr.last) != truthWindow {
		t.Errorf("%+v", s)
	}
	tr = truth{}
	tr.add(0, 0)
	tr.add(0, 500)
	if s := tr.stats(); s.Reports != 1 || s.Tokens != 500 || s.Share != 1 || s.Bias != -1 {
		t.Errorf("%+v", s)
	}
}

func TestStatsTellWhatBecameOfPredictions(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	x.SetCapacity("a", 100_000, CapacityEngine)
	m, d := prompt(1, 10, 0, 0) // 640 tokens by estimate, 800 in truth
	serveTold := func(s int, matched, cached int) {
		p := x.Place("a", m, d, w.at(time.Duration(s)*time.Second))
		p.First(w.now)
		p.End(w.now)
		p.Evidence(matched, 800, cached)
	}
	serveTold(1, 0, 0) // cold, and said so
	if p := x.Stats("a").Prediction; p.Reports != 0 {
		t.Errorf("cold: %+v", p)
	}
	for i := range 3 {
		serveTold(2+i, 640, 784)
	}
	if p := x.Stats("a").Prediction; p.Reports != 3 || p.Tokens != 16 || p.Share < 0.019 || p.Share > 0.021 || p.Bias < 0.019 || p.Bias > 0.021 {
		t.Errorf("warm: %+v", p)
	}
	// What another placement is about to prefill was not promised.
	o, od := prompt(2, 10, 0, 0)
	first := x.Place("a", o, od, w.at(10*time.Second))
	p := x.Place("a", o, od, w.now)
	first.First(w.now)
	p.First(w.now)
	p.End(w.now)
	p.Evidence(0, 640, 624)
	if p := x.Stats("a").Prediction; p.Reports != 3 {
		t.Errorf("pending: %+v", p)
	}
}
