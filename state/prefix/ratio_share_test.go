package prefix_test

import (
	"math"
	"testing"

	"github.com/hearsay-llm/hearsay/state/prefix"
)

func TestTaughtRatiosCountByTheirSamples(t *testing.T) {
	var r prefix.Ratio
	if r.Seed(math.NaN(), 2, 100) || r.Seed(3, 2, 0) {
		t.Error("took what is no estimate")
	}
	if !r.Seed(3, 2, 100) {
		t.Error("refused what it does not know")
	}
	if a, w, n := r.Estimate(); a != 3 || w != 2 || n != 100 {
		t.Errorf("%v and %v bytes per token from %d samples", a, w, n)
	}
	if r.Seed(5, 2, 99) {
		t.Error("took what rests on less")
	}
	r.Learn(prefix.Mark{ASCII: 4000}, 500) // 8 bytes per token
	if a, _, _ := r.Estimate(); a < 3 || a > 3.2 {
		t.Errorf("one sample moved what rests on 100 to %v", a)
	}
	if !r.Seed(1e9, -1, 1<<20) {
		t.Error("refused bounded values")
	}
	if a, w, _ := r.Estimate(); a > 16 || w < 0.5 {
		t.Errorf("out of bounds: %v, %v", a, w)
	}
}

func TestEachRatioIsGiven(t *testing.T) {
	rs := prefix.NewRatios(2)
	for _, m := range []string{"a", "b", "c"} {
		rs.For(m)
	}
	got := map[string]bool{}
	rs.Each(func(m string, r *prefix.Ratio) bool {
		got[m] = r == rs.For(m)
		return true
	})
	if len(got) != 2 || !got["a"] || !got["b"] {
		t.Errorf("%v", got)
	}
}
