// Command memory measures how much memory a router takes, with real processes:
// idle, per stream that waits for its first token, per stream in the middle of its
// answer, per entry of the sketch, and over a million prompts that share their
// first 200 characters, while one hot prefix is kept warm; then idle, then with all
// replicas removed. Upstreams are simulated in this process: they answer at once
// and keep account of which replica still caches the hot prefix.
//
// It prints tables, draws memory over time, and writes the figures as JSON and heap
// profiles of the routers beside it. It needs Linux, whose /proc it reads.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
)

type options struct {
	bin, out, parts   string
	streams, prompts  int
	entries           int
	routers, replicas int
	kvTokens          int
	workers           int
	idle              time.Duration
	quick             bool
	progress          io.Writer
}

// result is everything one invocation measured.
type result struct {
	Command string     `json:"command"`
	Idle    *usage     `json:"idle,omitempty"`
	Streams []streams  `json:"streams,omitempty"`
	Entries *entries   `json:"entries,omitempty"`
	Unique  *uniqueRun `json:"unique,omitempty"`
}

func main() {
	o := options{progress: os.Stderr}
	flag.StringVar(&o.bin, "bin", "bin/hearsay", "the hearsay binary")
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for results")
	flag.StringVar(&o.parts, "parts", "streams,entries,unique", "what to measure")
	flag.IntVar(&o.streams, "streams", 1000, "streams open at a time")
	flag.IntVar(&o.entries, "entries", 100_000, "sketch entries to fill")
	flag.IntVar(&o.prompts, "prompts", 1_000_000, "unique prompts")
	flag.IntVar(&o.routers, "routers", 3, "routers of the run with unique prompts")
	flag.IntVar(&o.replicas, "replicas", 20, "replicas of that run")
	flag.IntVar(&o.kvTokens, "kv-tokens", 400_000, "KV cache that each replica reports, tokens")
	flag.IntVar(&o.workers, "workers", 48, "requests in flight of that run")
	flag.DurationVar(&o.idle, "idle", 4*time.Minute, "how long to watch memory fall after the last prompt, and again after the removal; Go collects an idle process's garbage every 2 minutes")
	flag.BoolVar(&o.quick, "quick", false, "a tenth of the streams and entries, a hundredth of the prompts, 10 s idle")
	flag.Parse()
	if o.quick {
		o.streams, o.entries, o.prompts, o.idle = o.streams/10, o.entries/10, o.prompts/100, 10*time.Second
	}
	procs.Main("memory", func(ctx context.Context) error { return run(ctx, &o, os.Stdout) })
}

func run(ctx context.Context, o *options, w io.Writer) (err error) {
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	res := result{Command: "go run ./test/bench/memory " + strings.Join(os.Args[1:], " ")}
	parts := strings.Split(o.parts, ",")
	if slices.Contains(parts, "streams") {
		if err := measureStreams(ctx, o, &res); err != nil {
			return err
		}
		res.showStreams(w)
	}
	if slices.Contains(parts, "entries") {
		if err := measureEntries(ctx, o, &res); err != nil {
			return err
		}
		res.showEntries(w)
	}
	if slices.Contains(parts, "unique") {
		if err := measureUnique(ctx, o, &res); err != nil {
			return err
		}
		res.showUnique(w)
		file := filepath.Join(o.out, "memory_unique.svg")
		if err := res.Unique.plot(file); err != nil {
			return err
		}
		fmt.Fprintf(w, "\nDrawn in %s.\n", file)
	}
	return table.Save(o.out, "memory.json", &res)
}

func mb(bytes float64) string { return table.Num(bytes / 1e6) }
func kb(bytes float64) string { return table.Num(bytes / 1e3) }
