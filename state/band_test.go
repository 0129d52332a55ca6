package state_test

import (
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

func TestBands(t *testing.T) {
	f := func(claimed, highest, want string) {
		t.Helper()
		c, err := state.ParseBand(claimed)
		if err != nil {
			t.Fatal(err)
		}
		h, err := state.ParseBand(highest)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Capped(h).String(); got != want {
			t.Errorf("%s claimed where %s is the highest: %s, want %s", claimed, highest, got, want)
		}
	}
	f("high", "high", "high")
	f("high", "normal", "normal")
	f("high", "low", "low")
	f("normal", "high", "normal")
	f("normal", "low", "low")
	f("low", "high", "low")
	if _, err := state.ParseBand("999"); err == nil {
		t.Error("999 is taken for a band")
	}
	var zero state.Band
	if zero.String() != "normal" || zero.Rank() != 1 || !state.BandHigh.Before(zero) || !zero.Before(state.BandLow) {
		t.Errorf("the zero band is %v of rank %d", zero, zero.Rank())
	}
}
