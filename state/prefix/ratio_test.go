package prefix

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestRatioStartsWithCommonText(t *testing.T) {
	var r Ratio
	if got := r.Tokens(Mark{ASCII: 400, Wide: 170, Exact: 7}); got != 207 {
		t.Fatalf("got %d", got)
	}
	if got := r.Tokens(Mark{}); got != 0 {
		t.Fatalf("an empty prompt has %d tokens", got)
	}
	if got := r.Tokens(Mark{ASCII: 1}); got != 1 {
		t.Fatalf("one byte has %d tokens", got)
	}
}

func TestRatioLearnsBothKindsOfText(t *testing.T) {
	var r Ratio
	for i := range 600 {
		m := Mark{ASCII: 30000, Wide: 100, Exact: 20}
		if i%2 == 0 {
			m = Mark{ASCII: 500, Wide: 20000, Exact: 20}
		}
		r.Learn(m, int(float64(m.ASCII)/3.1+float64(m.Wide)/2.6)+20)
	}
	a, w := r.BytesPerToken()
	if math.Abs(a-3.1) > 0.05 || math.Abs(w-2.6) > 0.05 {
		t.Fatalf("learned %.2f and %.2f, want 3.1 and 2.6", a, w)
	}
}

func TestOneOddSampleMovesLittle(t *testing.T) {
	var r Ratio
	m := Mark{ASCII: 40000}
	for range 200 {
		r.Learn(m, 10000)
	}
	for _, odd := range []int{1, 1_000_000} {
		before := r.Tokens(m)
		r.Learn(m, odd)
		if after := r.Tokens(m); math.Abs(float64(after-before)) > 0.02*float64(before) {
			t.Fatalf("a sample of %d moved the estimate from %d to %d", odd, before, after)
		}
	}
}

func TestRatioStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Ratio
		for range rapid.IntRange(1, 50).Draw(t, "samples") {
			m := Mark{ASCII: rapid.Uint32().Draw(t, "ascii"), Wide: rapid.Uint32().Draw(t, "wide"), Exact: rapid.Uint32().Draw(t, "exact")}
			r.Learn(m, rapid.Int().Draw(t, "tokens"))
			a, w := r.BytesPerToken()
			if !(a >= minASCII && a <= maxASCII && w >= minWide && w <= maxWide) {
				t.Fatalf("bytes per token %v and %v", a, w)
			}
			if n := r.Tokens(m); n < int(m.Exact) {
				t.Fatalf("%d tokens of %+v", n, m)
			}
		}
	})
}

func TestRatiosAreOnePerModelUpToABound(t *testing.T) {
	r := NewRatios(2)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				r.For(fmt.Sprint(i%2)).Learn(Mark{ASCII: 4000}, 500)
			}
		})
	}
	wg.Wait()
	zero := r.For("0")
	if again := r.For("0"); zero == r.For("1") || zero != again {
		t.Fatal("models share or lose their ratio")
	}
	if r.For("2") != r.For("3") || r.For("2") == r.For("0") {
		t.Fatal("models beyond the bound must share one ratio")
	}
	if a, _ := r.For("0").BytesPerToken(); a < 7 {
		t.Fatalf("400 samples of 8 bytes per token taught %.1f", a)
	}
}
