package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/replay"
)

// downFor is how long a killed router stays away.
const downFor = 10 * time.Second

// killed compares a run in which one router is killed and comes back with the same
// run without: requests go to the same routers in both, so the survivors' hit
// rates over the same requests can be set side by side.
func killed(ctx context.Context, o *options, w io.Writer) error {
	if o.knee == 0 {
		return errors.New("-kill needs -knee")
	}
	f := figure{Share: 0.7, Rate: 0.7 * o.knee, Policy: "ttft", Routers: o.routers, Sharing: true, Seed: 1}
	plain, err := measure(ctx, o, f)
	if err != nil {
		return err
	}
	victim := o.routers - 1
	var killedAt, ready time.Duration
	var failed error
	phase := 0
	run, err := measureWith(ctx, o, f, func(p *harness.Procs, s replay.Snapshot) {
		switch {
		case phase == 0 && s.Sent >= o.requests/2:
			p.Routers[victim].Kill()
			killedAt, phase = s.Elapsed, 1
		case phase == 1 && s.Elapsed > killedAt+downFor:
			phase = 2
			if failed = p.Start(p.Routers[victim]); failed == nil {
				begin := time.Now()
				failed = p.Routers[victim].WaitReady(ctx, 30*time.Second)
				ready = time.Since(begin)
			}
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	a, err := procs.Samples(plain)
	if err != nil {
		return err
	}
	b, err := procs.Samples(run)
	if err != nil {
		return err
	}
	gone := run.TargetRows[victim].Name
	back := killedAt + downFor + ready
	fmt.Fprintf(w, "router r%d killed after %.0f s, started again %.0f s later, ready after %.1f s (wall clock)\n\n", victim+1, killedAt.Seconds(), downFor.Seconds(), ready.Seconds())
	fmt.Fprintln(w, "| requests | hit rate, undisturbed run | hit rate, with the kill | errors, undisturbed | errors, with the kill |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|")
	row := func(name string, in func(procs.Sample) bool) {
		x, y := procs.Sum(a, in), procs.Sum(b, in)
		fmt.Fprintf(w, "| %s (%d) | %.3f | %.3f | %d | %d |\n", name, y.Requests, x.Hit, y.Hit, x.Failed, y.Failed)
	}
	survivor := func(s procs.Sample) bool { return s.Target != gone }
	row("survivors, before the kill", func(s procs.Sample) bool { return survivor(s) && s.Sent < killedAt })
	row("survivors, while it is away", func(s procs.Sample) bool { return survivor(s) && s.Sent >= killedAt && s.Sent < back })
	row("survivors, from the kill to the end", func(s procs.Sample) bool { return survivor(s) && s.Sent >= killedAt })
	row("the killed router, before", func(s procs.Sample) bool { return !survivor(s) && s.Sent < killedAt })
	row("the killed router, while away", func(s procs.Sample) bool { return !survivor(s) && s.Sent >= killedAt && s.Sent < back })
	row("the killed router, back", func(s procs.Sample) bool { return !survivor(s) && s.Sent >= back })
	return nil
}
