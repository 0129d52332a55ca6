package gossip

import (
	"math"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/state"
)

// neighbours picks to which of all routers self keeps a stream: to every other up
// to allPairs routers; above, to about log2(N)+2 others. They sit in a ring in id
// order, and each is joined to those at a few distances that grow geometrically,
// so that everybody who knows the same members picks the same streams from both
// ends, and a message is a few hops from everywhere.
func neighbours(self state.RouterID, others []state.RouterID, allPairs int) []state.RouterID {
	n := len(others) + 1
	if n <= allPairs {
		return others
	}
	ring := append(slices.Clone(others), self)
	slices.SortFunc(ring, func(a, b state.RouterID) int { return strings.Compare(string(a), string(b)) })
	me := slices.Index(ring, self)
	half := distances(n)
	var picked []state.RouterID
	last := 0
	for i := range half {
		d := int(math.Round(math.Pow(float64(n)/2, float64(i)/float64(half))))
		d = max(d, last+1)
		if d > n/2 {
			break
		}
		last = d
		for _, j := range []int{me + d, me - d + n} {
			if id := ring[j%n]; !slices.Contains(picked, id) {
				picked = append(picked, id)
			}
		}
	}
	return picked
}

// distances is at how many distances a router has two neighbours.
func distances(n int) int { return int(math.Ceil((math.Log2(float64(n)) + 2) / 2)) }

func sortMembers(list []Member) []Member {
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list
}
