package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hearsay-llm/hearsay/test/traces"
	"github.com/hearsay-llm/hearsay/test/whatif"
)

// whatIfFlags are replay's flags for a comparison in simulation.
type whatIfFlags struct {
	lists []string
	pool  string // of the recorded requests, and of --target
	cfg   whatif.Config
}

// whatIfRequests is how much of a trace is compared unless --requests says otherwise:
// its prompts are kept in memory.
const whatIfRequests = 2000

func (f *whatIfFlags) register(fl *pflag.FlagSet) {
	f.cfg = whatif.DefaultConfig()
	fl.StringArrayVar(&f.lists, "what-if", nil, "compare in simulation instead of sending anything: setting=value,value; again for every combination with another setting ("+strings.Join(whatif.Settings(), ", ")+")")
	fl.StringVar(&f.pool, "pool", "", "of recorded requests, and of --target with --what-if: this pool's; may be left out where there is one")
	fl.IntVar(&f.cfg.Routers, "routers", f.cfg.Routers, "with --what-if: simulated routers")
	fl.IntVar(&f.cfg.Replicas, "replicas", f.cfg.Replicas, "with --what-if: simulated replicas")
	fl.IntVar(&f.cfg.KVTokens, "kv-tokens", f.cfg.KVTokens, "with --what-if: KV cache of each replica, tokens")
	fl.StringVar(&f.cfg.Profile, "profile", f.cfg.Profile, "with --what-if: timing of the replicas, as of engine-sim")
}

// onlySent and onlyWhatIf are the flags that mean nothing with and without --what-if.
var (
	onlySent   = []string{"model", "speed", "concurrency", "timeout", "api-key", "debug", "plot"}
	onlyWhatIf = []string{"routers", "replicas", "kv-tokens", "profile"}
)

// misplaced reports a flag that was given and means nothing.
func (f *whatIfFlags) misplaced(fl *pflag.FlagSet) error {
	names, text := onlyWhatIf, "has a meaning with --what-if only"
	if len(f.lists) > 0 {
		names, text = onlySent, "has no meaning with --what-if, which sends nothing"
	}
	for _, n := range names {
		if fl.Changed(n) {
			return usageError{fmt.Errorf("--%s %s", n, text)}
		}
	}
	return nil
}

// runWhatIf compares what --what-if names on the trace.
func runWhatIf(cmd *cobra.Command, f *replayFlags) error {
	w := &f.whatIf
	w.cfg.Seed = f.cfg.Seed
	w.cfg.SLO = whatif.SLO{TTFT: f.cfg.SLO.TTFT, TPOT: f.cfg.SLO.TPOT}
	if cmd.Flags().Changed("target") {
		if len(f.cfg.Targets) != 1 {
			return usageError{fmt.Errorf("--target: with --what-if it is one router's admin address, not %d", len(f.cfg.Targets))}
		}
		said := io.Writer(os.Stderr)
		if f.quiet {
			said = io.Discard
		}
		if err := w.adopt(cmd.Context(), f.cfg.Targets[0], cmd.Flags().Changed, said); err != nil {
			return err
		}
	}
	variants, err := whatif.Variants(w.cfg, w.lists)
	if err != nil {
		return usageError{fmt.Errorf("--what-if: %w", err)}
	}
	if f.requests == 0 {
		f.requests = whatIfRequests
	}
	ctx := cmd.Context()
	src, closer, err := openTrace(ctx, f)
	if err != nil {
		return err
	}
	defer closer()
	work, err := whatif.NewWorkload(f.trace, untilDone(ctx, src), 0)
	if err != nil {
		return interrupted(ctx, err)
	}
	for work.Warmup < len(work.Items) && work.Items[work.Warmup].At < f.cfg.Warmup {
		work.Warmup++
	}
	if work.Warmup == len(work.Items) {
		return usageError{fmt.Errorf("--warmup: all %d requests are due within it", len(work.Items))}
	}
	outcomes, err := whatif.Compare(ctx, variants, work, func(o whatif.Outcome) {
		if !f.quiet {
			fmt.Fprintf(os.Stderr, "%s: TTFT mean %.3f s, hit rate %.3f\n", o.Name, o.Figures.TTFTMean.Seconds(), o.Figures.HitRate)
		}
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	if seen, ok := whatif.Seen(work, w.cfg.SLO); ok && f.rate == 1 {
		outcomes = append(outcomes, whatif.Outcome{Name: recordedRow, Figures: seen})
	}
	if f.jsonPath != "-" {
		e := f.cfg.Expect
		rate := "all at one time"
		if e.Duration > 0 {
			rate = fmt.Sprintf("%.2f/s", float64(e.Requests)/e.Duration.Seconds())
		}
		title := fmt.Sprintf("%s, %s, %s, seed %d", f.trace, plural(e.Requests, "request"), rate, f.cfg.Seed)
		whatif.Write(os.Stdout, title, outcomes)
	}
	return writeJSON(f.jsonPath, outcomes)
}

// recordedRow names what really came of recorded requests, beside what the simulation
// makes of them.
const recordedRow = "as recorded"

// untilDone ends a source when ctx is over.
func untilDone(ctx context.Context, src traces.Source) traces.Source {
	return sourceFunc(func() (*traces.Request, error) {
		if ctx.Err() != nil {
			return nil, errInterrupted
		}
		return src.Next()
	})
}

// interrupted is errInterrupted where that is the reason.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, errInterrupted) {
		return errInterrupted
	}
	return err
}
