// Command engines measures routers in front of real engines, llama.cpp's own server and
// vLLM's build for CPUs, with models small enough for this machine. It installs them below -dir, starts two replicas and two routers as
// processes, plays chats of several turns by each policy, and then tries what simulated
// engines can't vouch for: what detection, readings, streams, disconnects and deaths
// are like. It fails where a check does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
)

type options struct {
	bin, dir, out, record string
	engines, policies     string
	chats, turns          int
	seed                  uint64
}

// result is everything one invocation measured.
type result struct {
	Command string   `json:"command"`
	Machine string   `json:"machine"`
	Runs    []figure `json:"runs"`
	Checks  []check  `json:"checks"`
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/hearsay", "the hearsay binary")
	flag.StringVar(&o.dir, "dir", "bin/engines", "where engines and models are installed")
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for results")
	flag.StringVar(&o.record, "record", "", "also write what each engine answers below this directory")
	flag.StringVar(&o.engines, "engines", "all", "engines to try: all, or some of llamacpp,llamacpp-slots,vllm")
	flag.StringVar(&o.policies, "policies", "ttft,round_robin", "policies to compare")
	flag.IntVar(&o.chats, "chats", 24, "chats per run")
	flag.IntVar(&o.turns, "turns", 4, "turns per chat")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of chats and of the routers they go to")
	flag.Parse()
	procs.Main("engines", func(ctx context.Context) error { return run(ctx, &o) })
}

func run(ctx context.Context, o *options) (err error) {
	for _, path := range []*string{&o.bin, &o.dir} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if o.engines != "all" {
		names := []string{}
		for _, k := range kinds(o.dir) {
			names = append(names, k.name)
		}
		for _, name := range strings.Split(o.engines, ",") {
			if !slices.Contains(names, name) {
				return fmt.Errorf("-engines: no engine is called %q: want some of %s, or all", name, strings.Join(names, ","))
			}
		}
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	res := result{Command: "go run ./test/engines " + strings.Join(os.Args[1:], " "), Machine: machine()}
	for _, k := range kinds(o.dir) {
		if o.engines != "all" && !slices.Contains(strings.Split(o.engines, ","), k.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "setting up %s\n", k.title)
		if err := k.install(ctx, o.dir); err != nil {
			return fmt.Errorf("set up %s: %w", k.name, err)
		}
		if err := try(ctx, o, k, &res); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		if err := table.Save(o.out, "engines.json", &res); err != nil {
			return err
		}
	}
	return res.print(os.Stdout)
}

// try measures an engine by every policy and makes the checks with the first.
func try(ctx context.Context, o *options, k *kind, res *result) error {
	for i, policy := range strings.Split(o.policies, ",") {
		cluster, err := k.start(ctx, o, policy, 2)
		if err != nil {
			return err
		}
		f, err := measure(ctx, o, k, policy, cluster)
		if err == nil && i == 0 && o.record != "" {
			err = record(ctx, filepath.Join(o.record, k.name), k, cluster.Engines[0].API)
		}
		if err == nil {
			res.Runs = append(res.Runs, f)
			if i == 0 {
				res.Checks = append(res.Checks, checks(ctx, o, k, cluster)...)
			}
		}
		cluster.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
