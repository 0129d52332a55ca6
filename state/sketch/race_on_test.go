//go:build race

package sketch

// underRace makes single-threaded models smaller, which the race detector slows
// down ten times and has nothing to say about.
const underRace = true
