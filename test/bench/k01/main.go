// Command k01 measures, with real processes, what sharing knowledge between routers
// is worth on a workload that other routers were measured with: 150 groups of 5
// prompts below common system prompts of 640 tokens with questions of 128, on 8
// replicas whose caches hold all of it and 73 % of them filled, arrivals by a
// Poisson process, each request to a router at random. The prompts are repeated, or
// every question is a fresh one.
//
// It runs in three parts: k01, the hit rate by number of routers, with and without
// sharing; k02, a router killed and started again, in a cluster and as the only
// router with its data directory; k03, an empty router that joins a warm cluster and
// gets all traffic at once. It prints tables and writes the figures as JSON.
//
// At full size it takes about an hour on a quiet machine: engines run in real time,
// so that what routers tell each other is as old to them as in life.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
)

type options struct {
	bin, out, parts, modes, policy string
	seeds                          []uint64
	routers                        []int
	replicas, cluster              int
	groups, warm, rounds           int
	system, question, output       int
	resident, rate, speed          float64
	quick                          bool
}

// result is everything one invocation measured.
type result struct {
	Command  string    `json:"command"`
	KVTokens int       `json:"kv_tokens"` // of each replica
	Cells    []cell    `json:"k01"`
	Restarts []restart `json:"k02"`
	Joins    []join    `json:"k03"`
}

func main() {
	var o options
	var seeds, routers string
	flag.StringVar(&o.bin, "bin", "bin/hearsay", "the hearsay binary")
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for results")
	flag.StringVar(&o.parts, "parts", "k01,k02,k03", "what to measure")
	flag.StringVar(&o.modes, "modes", "repeated,fresh", "repeated prompts, fresh questions")
	flag.StringVar(&o.policy, "policy", "ttft", "policy of the pool; round_robin is measured beside it")
	flag.StringVar(&seeds, "seeds", "1,2,3", "seeds, each a run of its own")
	flag.StringVar(&routers, "routers", "1,4,8", "numbers of routers")
	flag.IntVar(&o.cluster, "cluster", 4, "routers of k02 and k03")
	flag.IntVar(&o.replicas, "replicas", 8, "simulated engines")
	flag.IntVar(&o.groups, "groups", 150, "groups of 5 prompts")
	flag.IntVar(&o.warm, "warm", 2, "rounds over all prompts before measuring")
	flag.IntVar(&o.rounds, "rounds", 3, "measured rounds over all prompts")
	flag.IntVar(&o.system, "system", 640, "tokens of a system prompt")
	flag.IntVar(&o.question, "question", 128, "tokens of a question")
	flag.IntVar(&o.output, "output", 16, "tokens of an answer")
	flag.Float64Var(&o.resident, "resident", 0.73, "share of all KV that the prompts and answers fill")
	flag.Float64Var(&o.rate, "rate", 60, "requests per second")
	flag.Float64Var(&o.speed, "speed", 1, "engine speed; beside 1 what routers tell each other is older to the engines by that factor")
	flag.BoolVar(&o.quick, "quick", false, "a smoke run: 30 groups, one warm-up and one measured round, the first seed")
	flag.Parse()
	procs.Main("k01", func(ctx context.Context) error {
		if err := o.parse(seeds, routers); err != nil {
			return err
		}
		return run(ctx, &o)
	})
}

func (o *options) parse(seeds, routers string) (err error) {
	for _, s := range strings.Split(seeds, ",") {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("seeds: %w", err)
		}
		o.seeds = append(o.seeds, n)
	}
	for _, s := range strings.Split(routers, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("routers: %q is no number above 0", s)
		}
		o.routers = append(o.routers, n)
	}
	for _, m := range o.modeList() {
		if m != repeated && m != fresh {
			return fmt.Errorf("modes: %q is neither %s nor %s", m, repeated, fresh)
		}
	}
	if o.quick {
		o.groups, o.warm, o.rounds, o.seeds = 30, 1, 1, o.seeds[:1]
	}
	o.bin, err = filepath.Abs(o.bin)
	return err
}

func (o *options) modeList() []string { return strings.Split(o.modes, ",") }

// kvTokens is the cache of one replica: all groups with their prompts and answers
// fill the given share of all caches, when no group is held twice.
func (o *options) kvTokens() int {
	all := float64(o.groups * (o.system + promptsPer*(o.question+o.output)))
	return int(all/o.resident/float64(o.replicas)) / 16 * 16
}

func run(ctx context.Context, o *options) error {
	res := result{Command: "go run ./test/bench/k01 " + strings.Join(os.Args[1:], " "), KVTokens: o.kvTokens()}
	parts := strings.Split(o.parts, ",")
	steps := []struct {
		part string
		run  func(context.Context, *options, *result) error
	}{{"k01", cells}, {"k02", restarts}, {"k03", joins}}
	for _, s := range steps {
		if !slices.Contains(parts, s.part) {
			continue
		}
		if err := s.run(ctx, o, &res); err != nil {
			return fmt.Errorf("%s: %w", s.part, err)
		}
	}
	res.show(os.Stdout, o)
	return res.save(o)
}

// save writes what is measured so far.
func (res *result) save(o *options) error {
	return table.Save(o.out, "k01.json", res)
}

// progress tells a person that it goes on.
func progress(begin time.Time, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
}
