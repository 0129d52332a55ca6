package routing

import (
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

// Places are kept for as many requests of the first band as are left to it. All others, and
// a first band that asks for more than a third of all places, are held to their router's
// share of each replica: else every router would fill all of them, and the high band would
// wait inside engines.
func TestKeptFor(t *testing.T) {
	f := func(name string, rank int, running int64, own, all float64, want bool) {
		t.Helper()
		h := state.Holds{}
		asked := [state.Upper]float64{}
		if rank < state.Upper {
			h.Running[rank], h.Asked[rank], asked[rank] = running, own, all
		}
		if got := keptFor(&h, &asked, rank, 24); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	f("fewer run than it lately had", 0, 1, 2, 4, true)
	f("its mean runs, two roots of all more are kept", 0, 2, 2, 4, true)
	f("those run, too", 0, 6, 2, 4, false)
	f("next to nothing came", 0, 0, 0.01, 0.01, false)
	f("all that can be left", 0, 0, 8, 8, true)
	f("it asks for more than can be left", 0, 0, 9, 9, false)
	f("another band", 1, 0, 8, 8, false)
	f("the last band", state.Upper, 0, 0, 0, false)
}
