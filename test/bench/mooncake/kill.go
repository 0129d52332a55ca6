package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

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
	a, err := samples(plain)
	if err != nil {
		return err
	}
	b, err := samples(run)
	if err != nil {
		return err
	}
	back := killedAt + downFor + ready
	fmt.Fprintf(w, "router r%d killed after %.0f s, started again %.0f s later, ready after %.1f s (wall clock)\n\n", victim+1, killedAt.Seconds(), downFor.Seconds(), ready.Seconds())
	fmt.Fprintln(w, "| requests | hit rate, undisturbed run | hit rate, with the kill | errors, undisturbed | errors, with the kill |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|")
	row := func(name string, in func(sample) bool) {
		ha, ea, _ := sum(a, in)
		hb, eb, n := sum(b, in)
		fmt.Fprintf(w, "| %s (%d) | %.3f | %.3f | %d | %d |\n", name, n, ha, hb, ea, eb)
	}
	survivor := func(s sample) bool { return s.target != victim }
	row("survivors, before the kill", func(s sample) bool { return survivor(s) && s.sent < killedAt })
	row("survivors, while it is away", func(s sample) bool { return survivor(s) && s.sent >= killedAt && s.sent < back })
	row("survivors, from the kill to the end", func(s sample) bool { return survivor(s) && s.sent >= killedAt })
	row("the killed router, before", func(s sample) bool { return !survivor(s) && s.sent < killedAt })
	row("the killed router, while away", func(s sample) bool { return !survivor(s) && s.sent >= killedAt && s.sent < back })
	row("the killed router, back", func(s sample) bool { return !survivor(s) && s.sent >= back })
	return nil
}

// sample is one request of a run.
type sample struct {
	sent           time.Duration
	target         int
	ok             bool
	prompt, cached int
}

// samples reads a report's rows back.
func samples(r *replay.Report) ([]sample, error) {
	var b bytes.Buffer
	if err := r.WriteSamples(&b); err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		return nil, err
	}
	targets := map[string]int{}
	for i, t := range r.TargetRows {
		targets[t.Name] = i
	}
	var out []sample
	for _, row := range rows[1:] {
		sent, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			return nil, err
		}
		s := sample{sent: time.Duration(sent * float64(time.Second)), target: targets[row[4]], ok: row[6] == "ok"}
		s.prompt, _ = strconv.Atoi(row[9])
		s.cached, _ = strconv.Atoi(row[10])
		out = append(out, s)
	}
	return out, nil
}

// sum is the hit rate and the errors of the requests that in accepts.
func sum(list []sample, in func(sample) bool) (hit float64, errs, n int) {
	prompt, cached := 0, 0
	for _, s := range list {
		if !in(s) {
			continue
		}
		n++
		if !s.ok {
			errs++
			continue
		}
		prompt += s.prompt
		cached += s.cached
	}
	return float64(cached) / float64(max(1, prompt)), errs, n
}
