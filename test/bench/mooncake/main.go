// Command mooncake replays the Mooncake conversation trace against clusters of
// real processes (routers and simulated engines) and compares routing policies, at
// shares of the rate where one router that knows everything saturates. It writes
// its figures as JSON and as a table in Markdown.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/replay"
	"github.com/hearsay-llm/hearsay/test/traces"
)

type options struct {
	bin, out, policies, shares, seeds string
	routers, engines, requests        int
	kvTokens                          int
	speed, knee                       float64
	sloTTFT, sloTPOT                  time.Duration
	kill                              bool
	warmup, batch                     int
}

// figure is one run's outcome.
type figure struct {
	Share   float64        `json:"share_of_knee"`
	Rate    float64        `json:"rate_factor"` // times the trace's own rate
	Policy  string         `json:"policy"`
	Routers int            `json:"routers"`
	Sharing bool           `json:"sharing"`
	Seed    uint64         `json:"seed"`
	Report  *replay.Report `json:"report"`
}

// result is everything one invocation measured.
type result struct {
	Command  string   `json:"command"`
	Knee     float64  `json:"knee_rate_factor"`
	KneeRule string   `json:"knee_rule"`
	Sweep    []figure `json:"knee_sweep"`
	Runs     []figure `json:"runs"`
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/hearsay", "the hearsay binary")
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for results")
	flag.StringVar(&o.policies, "policies", "ttft,prefix_hash,least_outstanding,round_robin", "policies to compare")
	flag.StringVar(&o.shares, "shares", "0.5,0.7,0.9", "shares of the knee rate")
	flag.StringVar(&o.seeds, "seeds", "1", "seeds, each a run of its own")
	flag.IntVar(&o.routers, "routers", 3, "routers")
	flag.IntVar(&o.engines, "engines", 8, "simulated engines")
	flag.IntVar(&o.requests, "requests", 1000, "requests of the trace per run")
	flag.IntVar(&o.warmup, "warmup", 250, "of those, requests before measuring starts")
	flag.IntVar(&o.kvTokens, "kv-tokens", 400_000, "KV cache of each engine, tokens")
	flag.IntVar(&o.batch, "max-batched-tokens", 2048, "token budget of an engine's step")
	flag.Float64Var(&o.speed, "speed", 3, "engine speed: 3 = three times faster than the profile; what routers tell each other is then three times as old to the engines")
	flag.Float64Var(&o.knee, "knee", 0, "knee as a factor on the trace's rate; 0 = measure it")
	flag.DurationVar(&o.sloTTFT, "slo-ttft", 10*time.Second, "time to first token of a good request")
	flag.DurationVar(&o.sloTPOT, "slo-tpot", 250*time.Millisecond, "time per output token of a good request")
	flag.BoolVar(&o.kill, "kill", false, "instead of comparing policies: kill -9 one router in mid-run at 0.7 of the knee, against a run without; needs -knee")
	flag.Parse()
	procs.Main("mooncake", func(ctx context.Context) error { return run(ctx, &o) })
}

func run(ctx context.Context, o *options) error {
	var err error
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	res := result{
		Command:  "go run ./test/bench/mooncake " + strings.Join(os.Args[1:], " "),
		KneeRule: fmt.Sprintf("largest rate at which 90 %% of requests meet TTFT %v and TPOT %v with one router", o.sloTTFT, o.sloTPOT),
		Knee:     o.knee,
	}
	if o.kill {
		return killed(ctx, o, os.Stdout)
	}
	if res.Knee == 0 {
		if res.Knee, res.Sweep, err = findKnee(ctx, o); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "knee: %.2f times the trace's rate\n", res.Knee)
	for _, seed := range strings.Split(o.seeds, ",") {
		n, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			return err
		}
		for _, share := range strings.Split(o.shares, ",") {
			s, err := strconv.ParseFloat(share, 64)
			if err != nil {
				return err
			}
			todo := []figure{{Policy: "ttft", Routers: 1, Sharing: true}, {Policy: "ttft", Routers: o.routers}}
			for _, p := range strings.Split(o.policies, ",") {
				todo = append(todo, figure{Policy: p, Routers: o.routers, Sharing: true})
			}
			for _, f := range todo {
				f.Share, f.Rate, f.Seed = s, s*res.Knee, n
				if f.Report, err = measure(ctx, o, f); err != nil {
					return err
				}
				res.Runs = append(res.Runs, f)
				if err := table.Save(o.out, "mooncake.json", &res); err != nil {
					return err
				}
			}
		}
	}
	return writeTable(os.Stdout, o, &res)
}

// findKnee doubles the rate until the SLO breaks, then halves the bracket.
func findKnee(ctx context.Context, o *options) (float64, []figure, error) {
	var sweep []figure
	good := func(rate float64) (bool, error) {
		f := figure{Rate: rate, Policy: "ttft", Routers: 1, Sharing: true, Seed: 1}
		var err error
		if f.Report, err = measure(ctx, o, f); err != nil {
			return false, err
		}
		sweep = append(sweep, f)
		return f.Report.Goodput.Share >= 0.9, nil
	}
	lo, hi := 0.0, 1.0
	for {
		ok, err := good(hi)
		if err != nil {
			return 0, sweep, err
		}
		if !ok {
			break
		}
		lo, hi = hi, 2*hi
		if hi > 64 {
			return 0, sweep, fmt.Errorf("no knee up to %v times the trace's rate", lo)
		}
	}
	for hi-lo > 0.1*hi {
		mid := (lo + hi) / 2
		ok, err := good(mid)
		if err != nil {
			return 0, sweep, err
		}
		if ok {
			lo = mid
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0, sweep, fmt.Errorf("the SLO breaks at any rate: loosen it")
	}
	return lo, sweep, nil
}

// measure starts a fresh cluster, replays, and stops it.
func measure(ctx context.Context, o *options, f figure) (*replay.Report, error) {
	return measureWith(ctx, o, f, nil)
}

// measureWith calls during, if it is not nil, with the progress of the run.
func measureWith(ctx context.Context, o *options, f figure, during func(*harness.Procs, replay.Snapshot)) (*replay.Report, error) {
	p, err := procs.Start(ctx, harness.ProcsConfig{
		Bin: o.bin, Routers: f.Routers, Engines: o.engines, Model: "sim-70b",
		Policy: f.Policy, NoSharing: !f.Sharing,
		EngineArgs: []string{
			"--speed", fmt.Sprint(o.speed), "--kv-tokens", fmt.Sprint(o.kvTokens),
			"--stream-interval", "16", "--max-batched-tokens", fmt.Sprint(o.batch),
		},
	})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	open := func() (traces.Source, io.Closer, error) {
		t, err := traces.Open(traces.MooncakeConversation, traces.OpenConfig{Seed: f.Seed})
		if err != nil {
			return nil, nil, err
		}
		return traces.Head(traces.Scale(t, f.Rate), o.requests), t, nil
	}
	// The instant of the last warm-up request.
	src, c, err := open()
	if err != nil {
		return nil, err
	}
	warm, err := traces.Summarize(traces.Head(src, o.warmup))
	_ = c.Close()
	if err != nil {
		return nil, err
	}
	if src, c, err = open(); err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	var observe func(replay.Snapshot)
	if during != nil {
		observe = func(s replay.Snapshot) { during(p.Procs, s) }
	}
	r, err := procs.Replay(ctx, replay.Config{
		Observe: observe,
		Targets: p.APIs(), Model: "sim-70b", Source: src, Seed: f.Seed, Speed: o.speed, Debug: true, IgnoreEOS: true,
		Warmup: warm.Duration, SLO: replay.SLO{TTFT: o.sloTTFT, TPOT: o.sloTPOT}, Name: traces.MooncakeConversation,
	})
	if err != nil {
		return nil, err
	}
	hit := -1.0
	if r.HitRate != nil {
		hit = *r.HitRate
	}
	fmt.Fprintf(os.Stderr, "rate %5.2f  %-18s routers %d  sharing %-5v  TTFT mean %7.3f s  p99 %7.3f s  hit %.3f  goodput %.3f  errors %d  late p99 %.1f ms\n",
		f.Rate, f.Policy, f.Routers, f.Sharing, r.TTFT.Mean, r.TTFT.P99, hit, r.Goodput.Share, r.Errors, 1e3*r.Lateness.P99)
	return r, nil
}

// writeTable prints one row per run, in Markdown.
func writeTable(w io.Writer, o *options, res *result) error {
	fmt.Fprintf(w, "Mooncake conversation, first %d requests (%d of them warm-up), %d engines of %d KV tokens (h100-70b-tp4, steps of %d tokens, speed %g), knee %.2f x the trace's rate (%s).\n\n",
		o.requests, o.warmup, o.engines, o.kvTokens, o.batch, o.speed, res.Knee, res.KneeRule)
	fmt.Fprintln(w, "| of knee | seed | policy | routers | TTFT mean s | p50 | p99 | TPOT p99 ms | hit rate | goodput req/s | met SLO | errors |")
	fmt.Fprintln(w, "|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	runs := slices.Clone(res.Runs)
	slices.SortStableFunc(runs, func(a, b figure) int {
		if a.Share != b.Share {
			if a.Share < b.Share {
				return -1
			}
			return 1
		}
		return 0
	})
	for _, f := range runs {
		name := f.Policy
		if !f.Sharing {
			name += ", sharing off"
		}
		hit := "-"
		if f.Report.HitRate != nil {
			hit = fmt.Sprintf("%.3f", *f.Report.HitRate)
		}
		r := f.Report
		if _, err := fmt.Fprintf(w, "| %.1f | %d | %s | %d | %.3f | %.3f | %.3f | %.1f | %s | %.2f | %.1f %% | %d |\n",
			f.Share, f.Seed, name, f.Routers, r.TTFT.Mean, r.TTFT.P50, r.TTFT.P99, 1e3*r.TPOT.P99, hit,
			r.Goodput.PerSecond, 100*r.Goodput.Share, r.Errors); err != nil {
			return err
		}
	}
	return nil
}
