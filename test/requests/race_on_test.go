//go:build race

package requests

// heavy divides sizes and counts: the race detector makes every byte some 50 times as
// dear, and finds nothing more in the thirtieth megabyte.
const heavy = 16
