package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/replay"
	"github.com/hearsay-llm/hearsay/test/traces"
)

type demoFlags struct {
	routers, replicas int
	traffic           bool
	rate              float64
	policy            string
	keep              string
	duration          time.Duration
	kvTokens          int
}

func newDemo() *cobra.Command {
	f := demoFlags{routers: 3, replicas: 4, rate: 1, policy: "ttft", kvTokens: 200_000}
	cmd := &cobra.Command{
		Use: "demo", Short: "A whole cluster on this machine, with simulated engines",
		Long: `demo runs routers and simulated engines in this process (engines that 'scale' adds are
child processes), on loopback ports, and prints where they listen. With --traffic
multi-turn chats run through all of them and live figures are shown, with the requests
in flight at each engine, which goes by its port there: commands take its host:port, as
127.0.0.1:8500. Ctrl-C ends it; nothing is left behind. Several demos can run side by
side: each takes free ports. One that was killed is cleaned up after by the next.`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(cmd); err != nil {
				return err
			}
			return runDemo(cmd.Context(), &f, os.Stdout)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.routers, "routers", f.routers, "number of routers")
	fl.IntVar(&f.replicas, "replicas", f.replicas, "number of simulated engines")
	fl.BoolVar(&f.traffic, "traffic", false, "run multi-turn chats through the routers")
	fl.Float64Var(&f.rate, "rate", f.rate, "with --traffic: chats that begin per second")
	fl.StringVar(&f.policy, "policy", f.policy, "routing policy: "+strings.Join(routing.Policies(), ", "))
	fl.IntVar(&f.kvTokens, "kv-tokens", f.kvTokens, "KV cache of each engine, tokens: a multiple of 16")
	fl.StringVar(&f.keep, "data-dir", "", "keep the routers' data here (default: a temporary directory, removed at the end)")
	fl.DurationVar(&f.duration, "duration", 0, "stop by itself this long after all are ready; 0 = at Ctrl-C")
	return cmd
}

const demoModel = "sim-70b"

// validate judges what the flags say.
func (f *demoFlags) validate(cmd *cobra.Command) error {
	switch {
	case f.routers < 1 || f.routers > 16:
		return usageError{fmt.Errorf("--routers: %d is not 1 to 16", f.routers)}
	case f.replicas < 1 || f.replicas > 64:
		return usageError{fmt.Errorf("--replicas: %d is not 1 to 64", f.replicas)}
	case !(f.rate > 0 && f.rate <= maxDemoRate):
		return usageError{fmt.Errorf("--rate: %v is not above 0 and up to %d", f.rate, maxDemoRate)}
	case cmd.Flags().Changed("rate") && !f.traffic:
		return usageError{errors.New("--rate goes with --traffic: without it no chats begin")}
	case !slices.Contains(node.Policies(), f.policy):
		return usageError{fmt.Errorf("--policy: %q is unknown: use %s", f.policy, strings.Join(node.Policies(), ", "))}
	case f.duration < 0:
		return usageError{fmt.Errorf("--duration: %v is not 0 or more: 0 runs until Ctrl-C", f.duration)}
	}
	engine := f.engine()
	if err := engine.Validate(); err != nil {
		return asFlags(cmd, err)
	}
	return nil
}

// maxDemoRate is the most chats a second that demo begins.
const maxDemoRate = 1000

// engine is each simulated engine's configuration.
func (f *demoFlags) engine() enginesim.Config {
	cfg := enginesim.DefaultConfig()
	cfg.Model, cfg.KVTokens = demoModel, f.kvTokens
	return cfg
}

func runDemo(ctx context.Context, f *demoFlags, out io.Writer) (err error) {
	dir := f.keep
	if dir == "" {
		for _, old := range sweepDemos(os.TempDir()) {
			fmt.Fprintf(out, "removed %s, which a killed demo had left\n", old)
		}
		if dir, err = os.MkdirTemp("", demoPrefix); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	release, err := claim(dir)
	if err != nil {
		return err
	}
	defer release()
	logFile, err := os.Create(filepath.Join(dir, "demo.log"))
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	log, err := newLogger(node.LogConfig{Level: "info", Format: "json"}, logFile)
	if err != nil {
		return err
	}

	line := newLiveLine(out)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	start := func(what string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", what, err))
			}
		})
	}

	pool := node.PoolConfig{Name: "chat", Model: demoModel, Aliases: []string{"default"}, Policy: f.policy}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	pool.Scale = node.ScaleConfig{
		Min: f.replicas, Max: f.replicas + 4, Actuator: "process", Dir: filepath.Join(dir, "process"),
		Command: []string{self, "engine-sim", "--port", "{port}", "--kv-tokens", fmt.Sprint(f.kvTokens), "--parent", fmt.Sprint(os.Getpid())},
	}
	for i := range f.replicas {
		ln, err := listenNear(8500 + i)
		if err != nil {
			return err
		}
		engine := enginesim.New(f.engine())
		start("engine", func(ctx context.Context) error { return engine.Serve(ctx, ln) })
		pool.Replicas = append(pool.Replicas, node.ReplicaConfig{URL: "http://" + ln.Addr().String()})
	}

	nodes, err := demoRouters(f, dir, pool, node.Deps{Log: log})
	if err != nil {
		return err
	}
	for _, n := range nodes {
		start("router "+n.Name(), n.Run)
	}
	if err := waitReady(ctx, nodes); err == nil {
		printDemo(out, f, nodes, pool, dir)
		if f.duration > 0 {
			over := time.AfterFunc(f.duration, func() { stop(nil) })
			defer over.Stop()
		}
		if f.traffic {
			start("traffic", func(ctx context.Context) error { return demoTraffic(ctx, f, nodes, pool, out, line) })
		}
		<-ctx.Done()
	}
	line.end()
	fmt.Fprintln(out, "\nstopping")
	stop(nil)
	wg.Wait()
	if err := endProcesses(filepath.Join(pool.Scale.Dir, pool.Name), pool.Scale.Command); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	fmt.Fprintln(out, "stopped")
	return nil
}

// demoRouters makes the routers, each knowing all others' cluster addresses.
func demoRouters(f *demoFlags, dir string, pool node.PoolConfig, deps node.Deps) ([]*node.Node, error) {
	taken := newPlaces()
	defer taken.close()
	taken.lend(&deps)
	cfgs := make([]node.Config, f.routers)
	var join []string
	for i := range cfgs {
		c := node.Defaults()
		c.Node.Name = fmt.Sprintf("r%d", i+1)
		c.Node.DataDir = filepath.Join(dir, c.Node.Name)
		at, err := taken.router(i)
		if err != nil {
			return nil, err
		}
		c.Listen.API, c.Listen.Admin, c.Listen.Cluster = at.api, at.admin, at.cluster
		c.API.Debug, c.API.DrainDelay = true, 0
		c.Pools = []node.PoolConfig{pool}
		join = append(join, c.Listen.Cluster)
		cfgs[i] = c
	}
	var nodes []*node.Node
	for i := range cfgs {
		if f.routers > 1 {
			cfgs[i].Cluster.Join = join
			cfgs[i].Cluster.BootstrapExpect = min(f.routers, 3)
		}
		cfgs[i].Finish()
		if err := cfgs[i].Validate(); err != nil {
			return nil, err
		}
		n, err := node.New(cfgs[i], deps)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// listenNear listens on a loopback port, or on any free one when it is taken.
func listenNear(port int) (net.Listener, error) {
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
	}
	return ln, err
}

// waitReady waits until every router says that it is ready.
func waitReady(ctx context.Context, nodes []*node.Node) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ready := 0
		for _, n := range nodes {
			if ok, _ := n.Ready(); ok {
				ready++
			}
		}
		if ready == len(nodes) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func printDemo(out io.Writer, f *demoFlags, nodes []*node.Node, pool node.PoolConfig, dir string) {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "ROUTER\tAPI\tADMIN AND METRICS\n")
	for _, n := range nodes {
		info := n.Info()
		fmt.Fprintf(tw, "%s\thttp://%s\thttp://%s\n", info.Name, info.API, info.Admin)
	}
	_ = tw.Flush()
	fmt.Fprint(out, "\nENGINE\n")
	for _, r := range pool.Replicas {
		fmt.Fprintln(out, strings.TrimPrefix(r.URL, "http://"))
	}
	info := nodes[0].Info()
	kept := ""
	if f.keep == "" {
		kept = " (removed at the end, unless --data-dir names a place)"
	}
	fmt.Fprintf(out, `
model %s, policy %s, %d KV tokens per engine; log in %s%s

try, in another terminal:
  curl -N http://%s/v1/chat/completions -H 'content-type: application/json' \
    -d '{"model":"%s","stream":true,"max_tokens":32,"messages":[{"role":"user","content":"hello"}]}'
  %s status%s        (also: members, replicas, scale, explain)
  %s drain %s%s

`, demoModel, f.policy, f.kvTokens, filepath.Join(dir, "demo.log"), kept, info.API, demoModel,
		typed(), atServer(info.Admin), typed(), strings.TrimPrefix(pool.Replicas[0].URL, "http://"), atServer(info.Admin))
}

// atServer is the flag that leads a command to a router, where it needs one.
func atServer(admin string) string {
	if "http://"+admin == defaultServer {
		return ""
	}
	return " --server http://" + admin
}

// demoTraffic runs endless chats through the routers and shows live figures.
func demoTraffic(ctx context.Context, f *demoFlags, nodes []*node.Node, pool node.PoolConfig, out io.Writer, line *liveLine) error {
	src, err := traces.Agents(traces.AgentsConfig{Seed: 1, Rate: f.rate, Tools: 3, RealAnswers: true})
	if err != nil {
		return err
	}
	var targets []string
	for _, n := range nodes {
		targets = append(targets, "http://"+n.Info().API)
	}
	last := time.Time{}
	engines := newDemoEngines(pool)
	_, err = replay.Run(ctx, replay.Config{
		Targets: targets, Model: demoModel, Source: src, Seed: 1, Debug: true, IgnoreEOS: true, Name: agentsTrace,
		Observe: func(s replay.Snapshot) {
			now := time.Now()
			all, here := engines.load(nodes[0].View(), now)
			switch {
			case line != nil:
				line.show(func(width int) string { return fitDemo(s, all, here, width) })
			case ctx.Err() == nil && now.Sub(last) >= 5*time.Second:
				last = now
				fmt.Fprintln(out, fitDemo(s, all, here, math.MaxInt))
			}
		},
	})
	return err
}
