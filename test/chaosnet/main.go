// Command chaosnet runs a cluster of real routers and simulated engines, each in a network namespace of its own, and
// breaks the network between them, the routers and an engine, under traffic. For each fault it counts the requests
// that failed and why, takes the time until the routers agree again, and checks that no scale decision was carried
// out twice and that no committed fact was lost. It ends with exit code 1 when a promise was not kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/netns"
)

type options struct {
	bin, out, only   string
	routers, engines int
	voters, clients  int
	lasts            time.Duration
	keep, list       bool

	// Of the hidden mode that is an engine, on loopback of all routers at once.
	enginePort int
	spaces     string
	parent     int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/hearsay", "the hearsay binary")
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for results")
	flag.StringVar(&o.only, "only", "", "faults to cause, comma-separated; empty: all")
	flag.IntVar(&o.routers, "routers", 5, "routers")
	flag.IntVar(&o.engines, "engines", 4, "simulated engines")
	flag.IntVar(&o.voters, "voters", 5, "routers that vote: 1, 3 or 5")
	flag.IntVar(&o.clients, "clients", 10, "clients that each have a request under way")
	flag.DurationVar(&o.lasts, "lasts", 12*time.Second, "how long a fault lasts")
	flag.BoolVar(&o.keep, "keep", false, "keep the routers' logs, and say where")
	flag.BoolVar(&o.list, "list", false, "list the faults and end")
	flag.IntVar(&o.enginePort, "engine", 0, "internal: be an engine on this port")
	flag.StringVar(&o.spaces, "spaces", "", "internal: file of namespaces it listens in")
	flag.IntVar(&o.parent, "parent", 0, "internal: end with the process of this id")
	flag.Parse()
	if o.enginePort != 0 {
		procs.Main("engine", func(ctx context.Context) error { return engine(ctx, &o) })
		return
	}
	procs.Main("chaosnet", func(ctx context.Context) error { return run(ctx, &o) })
}

func run(ctx context.Context, o *options) (err error) {
	if o.list {
		for _, f := range faults {
			fmt.Printf("%-16s %s\n", f.name, f.what)
		}
		return nil
	}
	todo, err := chosen(o.only)
	if err != nil {
		return err
	}
	if o.routers < 3 || o.engines < 2 {
		return errors.New("it takes three routers and two engines at least")
	}
	if err := netns.Missing(); err != nil {
		return fmt.Errorf("can't run here: %w", err)
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	w, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer w.close()
	var rows []*row
	for _, f := range todo {
		r, err := w.cause(ctx, f)
		if err != nil { // the rest would say nothing; what there is is shown
			return errors.Join(fmt.Errorf("%s: %w", f.name, err), show(os.Stdout, o, rows))
		}
		fmt.Fprintln(os.Stderr, r.line())
		rows = append(rows, r)
	}
	return show(os.Stdout, o, rows)
}

// chosen are the faults of these names, in their order here.
func chosen(only string) ([]fault, error) {
	if only == "" {
		return faults, nil
	}
	names := strings.Split(only, ",")
	var out []fault
	for _, f := range faults {
		if i := slices.Index(names, f.name); i >= 0 {
			out, names = append(out, f), slices.Delete(names, i, i+1)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("there is no fault %q; -list lists them", names)
	}
	return out, nil
}
