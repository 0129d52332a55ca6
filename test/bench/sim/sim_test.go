package sim

import (
	"flag"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	cells  = flag.String("cells", "", "run these groups of cells instead of the laws (comma-separated), or \"all\" for those about routers, or \"every\"; see Groups")
	match  = flag.String("match", "", "of those, cells whose name this regular expression finds")
	first  = flag.Int("first", 1, "the first seed: with -keep, seeds can be run apart")
	seeds  = flag.Int("seeds", 3, "seeds per cell")
	full   = flag.Bool("full", false, "larger workloads and more routers: hours")
	quick  = flag.Bool("quick", false, "small workloads, one seed: minutes")
	out    = flag.String("out", "", "directory for sim.json and sim.csv")
	keep   = flag.Bool("keep", false, "keep what -out holds of other cells, and show it too")
	pick   = flag.String("pick", "", "weights of the pick, as \"stream_weight=0.3 stall_weight=0.1\"; see hearsay replay --what-if")
	trace  = flag.String("trace", "", "directory for every pick of every cell, one CSV file each")
	images = flag.String("images", "", "directory for plots (SVG)")
)

// TestSim runs the matrix that the flags name; without any it is the laws alone.
func TestSim(t *testing.T) {
	if *cells == "" {
		return // the laws below are tests of their own
	}
	o := Options{Scale: Usual, Match: *match, First: *first, Seeds: *seeds, Out: *out, Keep: *keep, Images: *images, Trace: *trace, Pick: strings.Fields(*pick), Log: os.Stderr}
	switch *cells {
	case "all":
		o.Groups = RouterGroups()
	case "every":
	default:
		o.Groups = strings.Split(*cells, ",")
	}
	switch {
	case *full:
		o.Scale = Full
	case *quick:
		o.Scale, o.Seeds = Quick, 1
	}
	Tables(os.Stdout, Run(t, o))
}
