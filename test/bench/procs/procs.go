// Package procs is what the benchmarks with real processes below test/bench share: a
// command's frame, clusters in directories of their own, and what came of a replay's
// requests.
package procs

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/replay"
)

// Main runs a command until it is done or interrupted, and ends the process.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Cluster is processes in a directory of their own.
type Cluster struct {
	*harness.Procs
	Dir string
}

// Start starts a cluster; cfg.Dir is made.
func Start(ctx context.Context, cfg harness.ProcsConfig) (c *Cluster, err error) {
	if cfg.Dir, err = os.MkdirTemp("", "hearsay-bench-"); err != nil {
		return nil, err
	}
	p, err := harness.StartProcs(ctx, cfg)
	if err != nil {
		_ = os.RemoveAll(cfg.Dir)
		return nil, err
	}
	return &Cluster{p, cfg.Dir}, nil
}

// Close ends the processes and removes their directory.
func (c *Cluster) Close() {
	c.Procs.Close()
	_ = os.RemoveAll(c.Dir)
}

// Replay is replay.Run; an interrupted run is an error.
func Replay(ctx context.Context, cfg replay.Config) (*replay.Report, error) {
	r, err := replay.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if r.Interrupted {
		return nil, context.Canceled
	}
	return r, nil
}
