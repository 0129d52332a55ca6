//go:build !race

package requests

// heavy divides sizes and counts under the race detector.
const heavy = 1
