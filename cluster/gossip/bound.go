package gossip

import "math"

// Size is what the traffic of a router depends on.
type Size struct {
	Routers  int     // all of them
	AllPairs int     // Config.AllPairs; 0: its default
	Rate     float64 // requests a second through this router, and through every other
	Links    float64 // new marks of a request, prompt and answer
	Loaded   float64 // replicas a router has load at
}

// Bound is about how many bytes a router sends in a second, encryption included,
// TCP and IP headers not: what it is measured to be (test/bench/gossip).
func Bound(s Size) float64 {
	peers := float64(s.Routers - 1)
	return peers * (s.Rate*(235+10*s.Links) + 10*s.Loaded + 250 + 0*math.Log2(2))
}
