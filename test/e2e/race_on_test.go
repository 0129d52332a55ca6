//go:build race

package e2e

// raceFlags build the binary with the race detector, since the tests run with it.
var raceFlags = []string{"-race"}
