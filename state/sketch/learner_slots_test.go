package sketch

import "testing"

// A replica that has slots no longer, and whose cache nobody knows, is taken for one of
// which nothing is known.
func TestWithoutSlotsTheUsualGuess(t *testing.T) {
	var l learner
	l.init(1 << 20)
	l.setSlots(true)
	if l.now.tokens != minCapacity {
		t.Errorf("with slots %v tokens", l.now.tokens)
	}
	l.setSlots(false)
	if l.now.tokens != 1<<20 {
		t.Errorf("without slots %v tokens", l.now.tokens)
	}
	l.setSlots(true)
	l.give(5000, CapacityEngine)
	l.setSlots(false)
	if l.now.tokens != 5000 {
		t.Errorf("with a figure %v tokens", l.now.tokens)
	}
}
