package table

import (
	"os"
	"testing"
)

func ExamplePrint() {
	Print(os.Stdout, "Speed", 1, []string{"index", "µs"}, [][]string{{"tree", Num(12.345)}, {"a map", Num(0.5)}})
	// Output:
	// Speed
	//
	// | index |    µs |
	// |-------|------:|
	// | tree  |  12.3 |
	// | a map | 0.500 |
}

func TestQuantilesOfFewValues(t *testing.T) {
	f := func(v []float64, q, want float64) {
		t.Helper()
		if got := Quantile(v, q); got != want {
			t.Errorf("quantile %v of %v is %v, want %v", q, v, got, want)
		}
	}
	f(nil, 0.5, 0)
	f([]float64{1}, 0.99, 1)
	f([]float64{1, 2, 3}, 0.5, 2)
	f([]float64{1, 2, 3}, 1, 3)
	if m := Median([]float64{9, 1, 4}); m != 4 {
		t.Errorf("median %v, want 4", m)
	}
	if m := Mean(nil); m != 0 {
		t.Errorf("the mean of nothing is %v", m)
	}
}
