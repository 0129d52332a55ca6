package sketch

import (
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state/prefix"
	"pgregory.net/rapid"
)

func TestHorizonPassesTheTailBeforeTheHead(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	x.SetCapacity("a", 1000, CapacityEngine)
	old, od := prompt(1, 8, 0, 0) // 512 tokens
	serve(x, "a", old, od, w.at(time.Second))
	last := 8
	for i := range 10 {
		m, d := prompt(10+i, 2, 0, 0) // 128 tokens
		serve(x, "a", m, d, w.at(time.Duration(i+2)*time.Second))
		found := w.look(x, "a", old)
		got := found.Live
		if found.Live == 8 && found.Faded != 0 || found.Live < 8 && found.Faded != 8 {
			t.Errorf("%d marks alive, %d known and taken for evicted", found.Live, found.Faded)
		}
		if used := (i + 1) * 128; used <= 1000-512 && got != 8 || used > 1000 && got != 0 {
			t.Errorf("%d tokens later: %d marks", used, got)
		}
		if got > last {
			t.Errorf("%d marks came back", got-last)
		}
		last = got
	}
	check(t, x)
	if s := x.Stats("a"); s.HorizonAge <= 0 || s.HorizonAge > 11*time.Second {
		t.Errorf("horizon age %v", s.HorizonAge)
	}
}

func TestAPinnedPathOutlivesTheHorizonAndIsYoungAtRelease(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
	pass := w.pass(x, y)
	for _, i := range []*Index{x, y} {
		i.SetCapacity("a", 1000, CapacityEngine)
	}
	m, d := prompt(1, 4, 0, 0)
	serve(x, "a", m, d, w.at(time.Second))
	p := x.Place("a", m, d, w.at(2*time.Second))
	p.First(w.now)
	for i := range 20 {
		o, od := prompt(10+i, 2, 0, 0)
		serve(x, "a", o, od, w.at(time.Duration(i+3)*time.Second))
	}
	pass()
	for _, i := range []*Index{x, y} {
		if got := w.look(i, "a", m); got.Live != 4 {
			t.Errorf("pinned: %+v", got)
		}
	}
	p.End(w.at(30 * time.Second))
	o, od := prompt(99, 4, 0, 0)
	serve(x, "a", o, od, w.at(31*time.Second))
	pass()
	for _, i := range []*Index{x, y} {
		if got := w.look(i, "a", m); got.Live != 4 {
			t.Errorf("released: %+v", got)
		}
		check(t, i)
	}
}

func TestAMarkBetweenTwoTakesItsShareOfTheTokens(t *testing.T) {
	w := newWorld()
	x := w.index(1, Bounds{})
	m, _ := prompt(1, 3, 0, 0)
	wide := []prefix.Mark{m[0], m[2]}
	serve(x, "a", wide, []int32{100, 400}, w.at(time.Second))
	serve(x, "a", m, []int32{100, 250, 400}, w.at(2*time.Second))
	serve(x, "a", wide, []int32{100, 400}, w.at(3*time.Second))
	if s := x.Stats("a"); s.Tokens != 400 || s.Entries != 3 {
		t.Errorf("%d tokens in %d marks", s.Tokens, s.Entries)
	}
	check(t, x)
}

func TestUsageCorrectsTheEstimateOfTheMarksNotMeasuredBefore(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
	m, d := prompt(1, 10, 0, 0) // 640 by estimate
	p := x.Place("a", m[:5], d[:5], w.at(time.Second))
	p.First(w.now)
	p.Evidence(0, 400, 0) // not 320
	p.End(w.now)
	p = x.Place("a", m, d, w.at(2*time.Second))
	p.First(w.now)
	p.End(w.now)
	p.Evidence(320, 700, 320)
	w.pass(x, y)()
	for _, i := range []*Index{x, y} {
		if got := i.Stats("a").Tokens; got < 695 || got > 705 {
			t.Errorf("%d tokens", got)
		}
	}
}

// The horizon kept by buckets is compared with one computed from all entries.
func TestHorizonIsWhereTheNewestTokensFillTheCache(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		x := w.index(1, Bounds{})
		capacity := rapid.IntRange(500, 20_000).Draw(t, "capacity")
		x.SetCapacity("a", float64(capacity), CapacityEngine)
		for n := range rapid.IntRange(1, 200).Draw(t, "requests") {
			stem := rapid.IntRange(0, 5).Draw(t, "stem")
			m, d := prompt(stem, 3, rapid.IntRange(0, 40).Draw(t, "own"), rapid.IntRange(0, 8).Draw(t, "marks"))
			serve(x, "a", m, d, w.at(time.Duration(n+1)*time.Second))
		}
		check(t, x)
		r := x.find("a")
		var all []*entry
		for i := range r.ages.b {
			for e := r.ages.b[i].head; e != nil; e = e.next {
				all = append(all, e)
			}
		}
		slices.SortFunc(all, func(a, b *entry) int { return int(b.use.Load() - a.use.Load()) })
		var newer int64
		slack := int64(capacity/bucketsPerCache + 64 + 64*11) // a bucket, and what one step may add to it
		for _, e := range all {
			newer += e.tokens()
			if live := r.live(e); live && newer > int64(capacity)+slack || !live && newer < int64(capacity)-slack {
				t.Fatalf("live %v with %d tokens newer, capacity %d", live, newer, capacity)
			}
			if got, dist := r.ages.meter(), newer-e.tokens(); max(got.distance(e.use.Load())-dist, dist-got.distance(e.use.Load())) > slack {
				m := r.ages.meter()
				t.Fatalf("distance %d, want %d", m.distance(e.use.Load()), dist)
			}
		}
		if kept := r.ages.sum; kept > int64(capacity)*deadKept {
			t.Fatalf("%d tokens kept of a cache of %d", kept, capacity)
		}
	})
}
