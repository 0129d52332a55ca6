package state

import (
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	load := func(n int) Load { return Load{InFlight: int64(n)} }
	var h history
	if h.at(ms(5)) != (Load{}) || h.most(0, ms(5)) != (Load{}) {
		t.Error("an empty history has load")
	}
	h.note(ms(100), load(1))
	h.note(ms(110), load(4))
	h.note(ms(112), load(5)) // within a step: one point
	h.note(ms(120), load(2))
	h.note(ms(130), load(2)) // no change
	f := func(at, until, then, most int) {
		t.Helper()
		if got := h.at(ms(at)); got != load(then) {
			t.Errorf("at %d ms: %d, want %d", at, got.InFlight, then)
		}
		if got := h.most(ms(at), ms(until)); got != load(most) {
			t.Errorf("most of %d to %d ms: %d, want %d", at, until, got.InFlight, most)
		}
	}
	f(99, 99, 0, 0)
	f(99, 115, 0, 5)
	f(100, 105, 1, 1)
	f(115, 300, 5, 5)
	f(120, 300, 2, 2)
	f(500, 600, 2, 2)
	for i := range 2 * historyPoints {
		h.note(ms(1000+10*i), load(i+10))
	}
	if got := h.at(ms(1000)); got != load(historyPoints+10) {
		t.Errorf("what was forgotten is %d, want the oldest remembered", got.InFlight)
	}
	if got := h.most(ms(0), ms(10)); got != load(historyPoints+10) {
		t.Errorf("most of what was forgotten is %d", got.InFlight)
	}
}

func TestTrials(t *testing.T) {
	var none *Trials
	if none.Take() || none.Left() != 0 {
		t.Error("no trials, and one was given")
	}
	var x Trials
	x.Grant(2)
	taken := 0
	for range 5 {
		if x.Take() {
			taken++
		}
	}
	if taken != 2 || x.Left() != 0 {
		t.Errorf("took %d of two", taken)
	}
}
