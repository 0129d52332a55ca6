//go:build !race

package sketch

import (
	"testing"
	"time"
)

// Under the race detector pools forget at random what they were given, so this is
// asserted without it.
func TestLookupAllocatesNothing(t *testing.T) {
	x, m, slots := filled(t, 64, 100, 2)
	dst := make([]Match, len(slots))
	now := at(3 * time.Second)
	if n := testing.AllocsPerRun(100, func() { x.Lookup(dst, m, slots, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range dst {
		if want := max(1, 100*(i+1)/64); dst[i].Live != want {
			t.Errorf("replica %d: %d marks, want %d", i, dst[i].Live, want)
		}
	}
}
