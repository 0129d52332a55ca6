package state

import "fmt"

// Band is the priority of a request: those of a lower rank are served first where a
// pool is saturated, but for a minimum share of the bands behind them.
type Band uint8

// The bands. The zero value is what a request is that says nothing.
const (
	BandNormal Band = iota // the default
	BandHigh               // interactive work that must not wait behind the rest
	BandLow                // batches: sheddable, served when there is room
)

// Bands is how many there are.
const Bands = 3

// bandNames are the names of the bands, by number.
var bandNames = [Bands]string{"normal", "high", "low"}

// bandRanks is the place of each band in the order in which they are served.
var bandRanks = [Bands]int{1, 0, 2}

// String is the band's name in configurations, headers and labels.
func (b Band) String() string {
	if int(b) < Bands {
		return bandNames[b]
	}
	return fmt.Sprintf("Band(%d)", uint8(b))
}

// Rank is the band's place in the order in which they are served: 0 is first.
func (b Band) Rank() int { return bandRanks[b%Bands] }

// BandsInOrder are the bands, the one served first first.
func BandsInOrder() []Band { return []Band{BandHigh, BandNormal, BandLow} }

// Before reports whether requests of b are served before those of o.
func (b Band) Before(o Band) bool { return b.Rank() < o.Rank() }

// Capped is the band that a request gets which claims b and may claim highest at most.
func (b Band) Capped(highest Band) Band {
	if b.Before(highest) {
		return highest
	}
	return b
}

// ParseBand reads a band's name: high, normal or low.
func ParseBand(s string) (Band, error) {
	for i, n := range bandNames {
		if n == s {
			return Band(i), nil
		}
	}
	return BandNormal, fmt.Errorf("%q is no priority: want high, normal or low", s)
}
