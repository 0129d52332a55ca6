// Command gossip measures what one router of a cluster needs, by the number of
// routers and replicas and the rate of requests: bytes, CPU and memory, beside the
// formulas that predict them (cluster/DESIGN.md), and how late others know.
//
// Routers are whole but for their proxies, Raft and balance loops: store, sketch
// index, lessons, observe, mesh, gossip. Bytes and delays are of clusters over a
// simulated network in virtual time, which no load of the machine changes; with
// -real over loopback sockets. Memory is of loopback sockets always. CPU is what the
// same clusters took; and of single events over loopback sockets. Bytes
// are payload bytes of streams and datagrams, encryption included, TCP and IP headers
// not. Delays are from the event to its application at another router, the sender's
// turn included.
//
// The formulas rest on the cells for fitting; the held-out cells were chosen before
// any was looked at, and only test them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

type options struct {
	parts, cells string
	span         time.Duration
	real         bool
	starts       int
	out          string
	keep         string
}

// results are what was measured, and what -keep goes on with.
type results struct {
	Command string    `json:"command"`
	Bytes   []figures `json:"bytes"`
	Memory  []figures `json:"memory"`
	Loops   []loop    `json:"loops"`
}

func main() {
	testing.Init() // bubbles exist in tests only
	var o options
	flag.StringVar(&o.parts, "parts", "bytes,memory,cpu", "what to measure")
	flag.StringVar(&o.cells, "cells", "", "comma-separated routers:replicas:rate[:links[:all pairs up to]], a rate being requests a second and router; empty: the standard ones")
	flag.DurationVar(&o.span, "span", 0, "time measured; 0: by the cell")
	flag.BoolVar(&o.real, "real", false, "bytes and delays over loopback sockets and in real time, processors kept awake")
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for cost.json and cost.md")
	flag.StringVar(&o.keep, "keep", "", "comma-separated directories: cells that their cost.json has are taken from there")
	flag.IntVar(&o.starts, "starts", 3, "with -real: clusters started for each cell, in turn with the others; their figures are averaged")
	idle := flag.Bool("spin", false, "keep one processor awake at idle priority, for a measurement that runs beside")
	profile := flag.String("profile", "", "write a CPU profile there")
	flag.Parse()
	if *idle {
		if err := spin(); err != nil {
			fmt.Fprintln(os.Stderr, "gossip:", err)
			os.Exit(1)
		}
	}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "gossip", F: func(t *testing.T) {
			if *profile != "" {
				w, err := os.Create(*profile)
				if err != nil {
					t.Fatal(err)
				}
				if err := pprof.StartCPUProfile(w); err != nil {
					t.Fatal(err)
				}
				defer func() { pprof.StopCPUProfile(); _ = w.Close() }()
			}
			if err := run(t, &o); err != nil {
				t.Fatal(err)
			}
		},
	}}, nil, nil)
}

func run(t *testing.T, o *options) error {
	res := results{}
	for _, dir := range strings.FieldsFunc(o.keep, func(r rune) bool { return r == ',' }) {
		b, err := os.ReadFile(filepath.Join(dir, "cost.json"))
		if err != nil {
			return err
		}
		var had results
		if err := json.Unmarshal(b, &had); err != nil {
			return err
		}
		res.Bytes, res.Memory = append(res.Bytes, had.Bytes...), append(res.Memory, had.Memory...)
		res.Loops = append(res.Loops, had.Loops...)
	}
	res.Command = "go run ./test/bench/gossip " + strings.Join(os.Args[1:], " ")
	parts := strings.Split(o.parts, ",")
	if o.real {
		stop, err := keepAwake()
		if err != nil {
			return fmt.Errorf("keep processors awake: %w", err)
		}
		defer stop()
	}
	if slices.Contains(parts, "cpu") && len(res.Loops) == 0 {
		for _, n := range []int{2, 6} {
			l, err := measureLoop(n, 64)
			if err != nil {
				return fmt.Errorf("single events in %d routers: %w", n, err)
			}
			res.Loops = append(res.Loops, l)
		}
		if err := table.Save(o.out, "cost.json", &res); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		name string
		list *[]figures
		real bool
	}{{"bytes", &res.Bytes, o.real}, {"memory", &res.Memory, true}} {
		if !slices.Contains(parts, p.name) {
			continue
		}
		cells, err := o.list(p.name)
		if err != nil {
			return err
		}
		starts := 1
		if o.real {
			starts = o.starts
		}
		if err := res.measure(t, o, p.list, cells, starts, func(c *cell) {
			c.real, c.plain, c.span = p.real, p.name != "bytes", o.span
		}); err != nil {
			return err
		}
	}
	return res.show(o)
}

// measure adds the cells that a list does not have yet. Every cell is started once
// before any is started again: what a shared machine does for some minutes is not one
// cell's.
func (res *results) measure(t *testing.T, o *options, list *[]figures, cells []cell, starts int, set func(*cell)) error {
	for start := range starts {
		for i := range cells {
			c := cells[i]
			set(&c)
			at := slices.IndexFunc(*list, func(f figures) bool { return f.String() == c.String() })
			if at >= 0 && (*list)[at].Starts > start {
				continue
			}
			f, err := c.measure(t)
			if err != nil {
				return fmt.Errorf("cell %s: %w", &c, err)
			}
			fmt.Fprintf(os.Stderr, "start %d of %d: %-16s %8.1f kB/s, %7.4f s of CPU a second, rows p99 %.1f ms; took %.0f s\n",
				start+1, starts, &c, f.Sent.total()/1e3, f.CPU, f.RowsP99, f.Took)
			if at < 0 {
				*list = append(*list, f)
			} else {
				(*list)[at].add(&f)
			}
			if err := table.Save(o.out, "cost.json", res); err != nil {
				return err
			}
		}
	}
	return nil
}
