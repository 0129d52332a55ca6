package traces

import (
	"math"
	"testing"
)

func TestServeGenRateIsAsPublished(t *testing.T) {
	rates, err := ServeGenRate()
	if err != nil {
		t.Fatal(err)
	}
	sum, low, high := 0.0, math.Inf(1), 0.0
	for _, r := range rates {
		sum, low, high = sum+r, min(low, r), max(high, r)
	}
	if len(rates) != 14*24*6 || math.Abs(sum/float64(len(rates))-195.844) > 0.001 || low != 48.3517 || high != 582.9917 {
		t.Errorf("%d windows, %f to %f, mean %f", len(rates), low, high, sum/float64(len(rates)))
	}
}
