// Command overhead measures what a router costs beside plain reverse proxies: nginx,
// HAProxy, net/http's ReverseProxy, and the least that a proxy on the router's own
// foundation does (bare), each as a process of its own in front of one mock engine that
// answers at once. The router is the real process with the policy
// ttft, marks, sketch, metrics and engine readings on; the proxies keep connections
// alive, buffer nothing and log nothing, and all may use the same number of cores.
//
// It prints the CPU time that a proxy's processes take per request (by the kernel's
// clock of them, to the nanosecond), the latency that they add to going to the engine
// directly, and for event streams the delay of each chunk and the writes it takes. Of
// each cell every proxy has its turn in every round, in an order that rotates; the
// median of the rounds counts. What proxies take while nobody asks is measured before,
// and the CPU times are shown with and without it. The figures of all rounds are written
// as JSON.
//
// It needs Linux. With -install it installs what is missing of nginx and HAProxy
// from Debian; their services are neither started nor enabled.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
)

type options struct {
	bin, out       string
	before         string // another hearsay binary
	cells, proxies string
	rounds, cores  int
	gap            time.Duration
	install        bool
	quick          bool
	profile        bool
	progress       io.Writer

	as, listen, engine string // of a process that this one starts
}

// result is everything one invocation measured.
type result struct {
	Command string             `json:"command"`
	Cores   int                `json:"cores"`
	Cells   []cell             `json:"cells"`
	Proxies []string           `json:"proxies"`
	Idle    map[string]float64 `json:"idle_cpu_us_per_s"`
	Rows    []row              `json:"rows"`
}

// row is one proxy's turn in one round of one cell.
type row struct {
	Cell   string  `json:"cell"`
	Proxy  string  `json:"proxy"`
	Round  int     `json:"round"`
	Closed figures `json:"closed_loop"`
	Open   figures `json:"open_loop"`
}

// direct is the row of requests that go to the engine without a proxy.
const direct = "direct"

func main() {
	o := options{progress: os.Stderr}
	flag.StringVar(&o.bin, "bin", "bin/hearsay", "the hearsay binary")
	flag.StringVar(&o.before, "before", "", "the hearsay binary of the proxy named before: an older build beside the present one")
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for results")
	flag.StringVar(&o.cells, "cells", "0.4KB,16KB,256KB,4MB,sse", "what to measure")
	flag.StringVar(&o.proxies, "proxies", "nginx,haproxy,net/http,bare,hearsay", "whom to measure; before is the binary of -before")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds; the median counts")
	flag.IntVar(&o.cores, "cores", runtime.NumCPU(), "workers or threads of every proxy")
	flag.DurationVar(&o.gap, "gap", 10*time.Millisecond, "time between the chunks of a stream")
	flag.BoolVar(&o.install, "install", false, "install what is missing of nginx and HAProxy (Debian, as root)")
	flag.BoolVar(&o.quick, "quick", false, "one round with a tenth of the requests")
	flag.BoolVar(&o.profile, "profile", false, "then write CPU profiles of the router, one for each cell and load, into the directory for results")
	flag.StringVar(&o.as, "as", "", "be a part of the benchmark: engine, reverse or bare")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "where that part listens")
	flag.StringVar(&o.engine, "engine", "", "host and port of the engine, for reverse and bare")
	flag.Parse()
	if o.quick {
		o.rounds = 1
	}
	procs.Main("overhead", func(ctx context.Context) error {
		if o.as == "" {
			return run(ctx, &o, os.Stdout)
		}
		ln, err := net.Listen("tcp", o.listen)
		if err != nil {
			return err
		}
		switch o.as {
		case "engine":
			return newEngine(o.gap).run(ctx, ln)
		case "reverse":
			return runReverse(ctx, ln, o.engine)
		case "bare":
			return runBare(ctx, ln, o.engine)
		}
		return fmt.Errorf("no part %q", o.as)
	})
}

func run(ctx context.Context, o *options, w io.Writer) (err error) {
	res := result{Command: "go run ./test/bench/overhead " + strings.Join(os.Args[1:], " "), Cores: o.cores}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	if o.before, err = filepath.Abs(o.before); err != nil {
		return err
	}
	if res.Cells, err = chosen(o.cells, o.quick); err != nil {
		return err
	}
	res.Proxies = strings.Split(o.proxies, ",")
	if err := provide(ctx, o, res.Proxies); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hearsay-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	all, err := startAll(ctx, o, dir, res.Proxies)
	if err != nil {
		return err
	}
	defer all.stop()
	if res.Idle, err = all.idle(ctx, o); err != nil {
		return err
	}
	for round := range o.rounds {
		for _, c := range res.Cells {
			for i := range all.subjects {
				s := all.subjects[(i+round)%len(all.subjects)]
				r := row{Cell: c.Name, Proxy: s.name, Round: round + 1}
				if r.Closed, r.Open, err = measure(ctx, &c, s); err != nil {
					return fmt.Errorf("%s through %s: %w", c.Name, s.name, err)
				}
				res.Rows = append(res.Rows, r)
				fmt.Fprintf(o.progress, "round %d  %-6s %-9s closed %7.0f/s %s us CPU   open %s us CPU, p50 %s us, p99 %s us\n", round+1, c.Name, s.name,
					r.Closed.Rate, table.Num(r.Closed.CPU), table.Num(r.Open.CPU), table.Num(r.Open.P50), table.Num(r.Open.P99))
			}
		}
		if err := table.Save(o.out, "overhead.json", &res); err != nil {
			return err
		}
	}
	res.show(w)
	if o.profile {
		return all.profile(ctx, o, res.Cells)
	}
	return nil
}
