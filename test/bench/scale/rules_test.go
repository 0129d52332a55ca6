package main

import "testing"

// loaded is a pool whose replicas have so many requests in flight each; one that is
// negative has not started.
func loaded(t *testing.T, inFlight ...float64) *pool {
	t.Helper()
	w := short("rules", hour, level(1))
	p := newPool(fresh(t), w, 1, w.arrivals(fresh(t), 1), 0)
	for _, n := range inFlight {
		r := p.launch()
		if n >= 0 {
			r.ready, r.streams = 0, n
		}
	}
	p.wanted = len(inFlight)
	return p
}

// The expected sizes are computed by hand from Kubernetes' documentation.
func TestHPARecommends(t *testing.T) {
	f := func(name string, want int, inFlight ...float64) {
		t.Helper()
		if n, ok := newHPA("in_flight", 30, 300).recommend(loaded(t, inFlight...)); !ok || n != want {
			t.Errorf("%s: %d, want %d", name, n, want)
		}
	}
	f("within a tenth", 2, 32, 33)
	f("twice the target", 4, 60, 60)
	f("half of it", 1, 15, 15)
	f("one starts, which counts as idle", 4, 60, 60, -1)
	f("one starts, and would turn it", 3, 40, 40, -1)
	f("one starts, which counts as at the target", 2, 10, 10, -1)
	if _, ok := newHPA("in_flight", 30, 300).recommend(loaded(t, -1)); ok {
		t.Error("it recommends without a metric")
	}
}

func TestHPAKeepsTheHighestOfItsWindow(t *testing.T) {
	p := loaded(t, 60, 60)
	h := newHPA("in_flight", 30, 60)
	h.act(p)
	if p.wanted != 4 {
		t.Fatalf("%d wanted", p.wanted)
	}
	for _, r := range p.list {
		r.ready, r.streams = 0, 5
	}
	for p.now = hpaSync; p.wanted == 4 && p.now < 10*minute; p.now += hpaSync {
		h.act(p)
	}
	if p.now != 75+hpaSync || p.wanted != 1 {
		t.Errorf("%d wanted at %d s", p.wanted, p.now-hpaSync)
	}
}

func TestKPAPanics(t *testing.T) {
	p := loaded(t, 30, 30)
	k := newKPA(30, 60, 0)
	run := func(seconds int) {
		for range seconds {
			k.act(p)
			p.now++
		}
	}
	run(61)
	if p.wanted != 2 || k.panics {
		t.Fatalf("%d wanted, panics %v", p.wanted, k.panics)
	}
	p.list[0].streams = 130 // 160 in all are 5.3 replicas
	run(8)
	if p.wanted != 6 || !k.panics {
		t.Fatalf("%d wanted, panics %v", p.wanted, k.panics)
	}
	p.list[0].streams = 0
	run(40)
	if p.wanted != 6 {
		t.Errorf("%d wanted in a panic that was 6", p.wanted)
	}
	run(60)
	if p.wanted != 1 || k.panics {
		t.Errorf("%d wanted, panics %v", p.wanted, k.panics)
	}
}

func TestBestSettingStaysWithinTheHours(t *testing.T) {
	list := []outcome{{Violated: 0, Hours: 30}, {Violated: 4, Hours: 20}, {Violated: 4, Hours: 19}, {Violated: 9, Hours: 5}}
	if i := best(list, 20); i != 2 {
		t.Errorf("%d within 20 hours", i)
	}
	if i := best(list, 40); i != 0 {
		t.Errorf("%d within 40 hours", i)
	}
	if i := best(list, 1); i != 3 {
		t.Errorf("%d where none is cheap enough", i)
	}
	if n := dominating(list, outcome{Violated: 5, Hours: 20}); n != 2 {
		t.Errorf("%d are better in both", n)
	}
}

// BenchmarkSecond is what a second of the model costs.
func BenchmarkSecond(b *testing.B) {
	e, err := model()
	if err != nil {
		b.Fatal(err)
	}
	x := newTrial(e, steady("second", "", 6*hour, level(50)), 1)
	p := x.pool()
	for b.Loop() {
		p.sweep()
		if p.tick(); p.now == p.w.length {
			p.now = 0
		}
	}
}
