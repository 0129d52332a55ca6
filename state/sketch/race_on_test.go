//go:build race

package sketch

import (
	"flag"
	"os"
	"testing"
)

// underRace makes single-threaded models smaller, which the race detector slows
// down ten times and has nothing to say about.
const underRace = true

// For the same reason fewer cases are drawn, unless the command line says how many.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("30"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
