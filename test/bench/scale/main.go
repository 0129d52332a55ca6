package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

type options struct {
	only, out, images, front, minutes string
	seeds                             int
	alone, coarse                     bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "workloads", "", "play these alone (comma-separated)")
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for scale.json")
	flag.StringVar(&o.images, "images", "", "directory for plots (SVG)")
	flag.StringVar(&o.front, "variants", "", "play hearsay with these constants too, such as 'utilisation=0.8;headroom=3,regrow=9' (utilisation, busiest, headroom, margin, share, rush, regrow, attainment; fade in hours, rated in points)")
	flag.StringVar(&o.minutes, "minutes", "", "directory for what hearsay's loop saw and planned, a line a minute (CSV)")
	flag.IntVar(&o.seeds, "seeds", 3, "seeds")
	flag.BoolVar(&o.alone, "alone", false, "play hearsay and the oracle alone")
	flag.BoolVar(&o.coarse, "coarse", false, "sweep the rivals over few settings")
	flag.Parse()
	debug.SetGCPercent(400) // much garbage and little to keep
	if err := run(&o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(o *options, w, progress io.Writer) error {
	e, err := newEngine()
	if err != nil {
		return err
	}
	list, err := chosen(o.only)
	if err != nil {
		return err
	}
	s := &study{e: e, seeds: o.seeds, families: families(o.coarse), looks: o.minutes, progress: progress}
	if o.alone {
		s.families = nil
	}
	if s.variants, err = variants(o.front); err != nil {
		return err
	}
	fmt.Fprintf(w, "A replica sustains %.2f requests/s of %.0f + %.0f tokens.\n", e.sustains(), e.prompt, e.output)
	if err := s.run(list); err != nil {
		return err
	}
	s.show(w)
	s.showPhases(w)
	if o.images != "" {
		if err := os.MkdirAll(o.images, 0o755); err != nil {
			return err
		}
		if err := s.plot(o.images); err != nil {
			return err
		}
	}
	return table.Save(o.out, "scale.json", s.saved())
}

// chosen are the workloads with those names; all, without a name.
func chosen(names string) ([]*workload, error) {
	all, err := workloads()
	if err != nil || names == "" {
		return all, err
	}
	var list []*workload
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(all, func(w *workload) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no workload %q", name)
		}
		list = append(list, all[i])
	}
	return list, nil
}

// saved is every run, for the file.
func (s *study) saved() (list []outcome) {
	for _, c := range s.cells {
		list = append(append(list, c.oracle...), c.hearsay...)
		for _, runs := range c.front {
			list = append(list, runs...)
		}
		for _, f := range s.families {
			list = append(append(list, c.sweep[f.name]...), c.best[f.name][1:]...)
		}
	}
	return list
}
