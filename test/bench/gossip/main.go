// Command gossip measures what routers cost each other: bytes, delay and drops by
// number of routers and replicas, beside the published bound (cluster/DESIGN.md).
//
// Routers are whole but for their proxies: store, sketch index, mesh, gossip. They
// run over a simulated network in virtual time, or with -real over loopback
// sockets. Bytes are payload bytes of streams and datagrams, encryption included,
// TCP and IP headers not. Delays are from the event to its application at another
// router, the sender's turn included.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type options struct {
	cells    string
	rate     float64
	links    int
	span     time.Duration
	allPairs int
	real     bool
	out      string
}

func main() {
	testing.Init() // bubbles exist in tests only
	var o options
	flag.StringVar(&o.cells, "cells", "", "comma-separated routers:replicas[:requests a second and router]; empty: the standard ones")
	flag.Float64Var(&o.rate, "rate", 20, "requests a second and router where a cell does not say")
	flag.IntVar(&o.links, "links", 10, "new prefix marks of a request")
	flag.DurationVar(&o.span, "span", 5*time.Second, "time measured")
	flag.IntVar(&o.allPairs, "all-pairs", 0, "routers up to which each has a stream to every other; 0: the default")
	flag.BoolVar(&o.real, "real", false, "real loopback sockets and real time")
	flag.StringVar(&o.out, "out", "test/bench/out/gossip.json", "where to write the figures; empty: nowhere")
	profile := flag.String("profile", "", "write a CPU profile there")
	flag.Parse()
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
			if err := run(t, o); err != nil {
				t.Fatal(err)
			}
		},
	}}, nil, nil)
}

// standard cells: sizes apart, then rates, then those the bound has to hold at.
const (
	standard     = "3:8,3:64,3:400,10:8,10:64,10:400,10:1000,32:8,32:64,32:400,10:64:0,10:64:5,10:64:100,32:64:5,100:64:5,100:64:0,100:400:5"
	standardReal = "3:8,3:64,3:400,10:8,10:64,10:400"
)

func run(t *testing.T, o options) error {
	if o.cells == "" {
		o.cells = standard
		if o.real {
			o.cells = standardReal
		}
	}
	var list []figures
	fmt.Println(header)
	for _, s := range strings.Split(o.cells, ",") {
		c := cell{options: o, Rate: o.rate}
		parts := strings.Split(s, ":")
		var err error
		if len(parts) < 2 {
			return fmt.Errorf("cell %q: want routers:replicas", s)
		}
		if c.Routers, err = strconv.Atoi(parts[0]); err != nil {
			return err
		}
		if c.Replicas, err = strconv.Atoi(parts[1]); err != nil {
			return err
		}
		if len(parts) > 2 {
			if c.Rate, err = strconv.ParseFloat(parts[2], 64); err != nil {
				return err
			}
		}
		f, err := measure(t, c)
		if err != nil {
			return fmt.Errorf("cell %s: %w", s, err)
		}
		fmt.Println(f)
		list = append(list, f)
	}
	if o.out == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.out, append(b, '\n'), 0o644)
}

// measure runs one cell, in a bubble unless it is for real.
func measure(t *testing.T, c cell) (f figures, err error) {
	if c.real {
		return c.run(loopback())
	}
	t.Run(fmt.Sprintf("%d:%d", c.Routers, c.Replicas), func(t *testing.T) {
		synctest.Test(t, func(*testing.T) {
			f, err = c.run(simulated())
			time.Sleep(10 * time.Second) // membership's probes end by their time-outs
		})
	})
	return f, err
}
