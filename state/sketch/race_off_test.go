//go:build !race

package sketch

const underRace = false
