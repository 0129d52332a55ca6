package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

func newServe() *cobra.Command {
	var (
		file     string
		replicas []string
		join     []string
		model    string
		name     string
		dataDir  string
		api      string
		adminAt  string
		cluster  string
	)
	cmd := &cobra.Command{
		Use: "serve", Short: "Run one router",
		Long: `serve runs one router until it is told to stop (Ctrl-C, SIGTERM). Then it stops taking
requests after api.drain_delay (2 s), and waits up to 30 s for running ones; the log says
for how many. A second Ctrl-C ends it at once. SIGHUP makes it read its configuration
again, as 'hearsay reload' does. Without a file it needs only its
replicas:

  hearsay serve --replica http://127.0.0.1:8000 --model llama-3.1-8b

The replicas of --replica are one pool, called default; clients may ask for its model by
the name default too.

Flags win over the environment (HEARSAY_SECTION_KEY: HEARSAY_NODE_NAME for node.name),
and that over the file. Keys: docs/configure.md.`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := func(cfg *node.Config) (map[string]string, error) {
				if len(replicas) > 0 && len(cfg.Pools) > 0 {
					return nil, usageError{fmt.Errorf("--replica makes a pool of its own: put the replica into %s instead", file)}
				}
				if cmd.Flags().Changed("model") && len(replicas) == 0 && file != "" {
					return nil, usageError{fmt.Errorf("--model goes with --replica: %s names its pools' models", file)}
				}
				given := map[string]string{}
				if len(replicas) > 0 {
					p := node.PoolConfig{Name: "default", Model: model, Aliases: []string{"default"}}
					if model == "default" {
						p.Aliases = nil
					}
					for _, u := range replicas {
						p.Replicas = append(p.Replicas, node.ReplicaConfig{URL: u})
					}
					given["pools[0].replicas"], given["pools[0].model"] = "--replica", "--model"
					cfg.Pools = append(cfg.Pools, p)
				}
				if len(join) > 0 {
					cfg.Cluster.Join, given["cluster.join"] = join, "--join"
				}
				set := func(p *string, v, flag, key string) {
					if v != "" {
						*p, given[key] = v, flag
					}
				}
				set(&cfg.Node.Name, name, "--name", "node.name")
				set(&cfg.Node.DataDir, dataDir, "--data-dir", "node.data_dir")
				set(&cfg.Listen.API, api, "--listen", "listen.api")
				set(&cfg.Listen.Admin, adminAt, "--admin", "listen.admin")
				set(&cfg.Listen.Cluster, cluster, "--cluster", "listen.cluster")
				return given, nil
			}
			load := func() (node.Config, error) { return node.LoadWith(file, os.Environ(), flags) }
			cfg, err := load()
			var fault interface{ ByFlag() bool }
			switch {
			case errors.As(err, &fault) && fault.ByFlag():
				return usageError{err}
			case err != nil:
				return err
			}
			if len(cfg.Pools) == 0 {
				return usageError{fmt.Errorf("no pools: name a replica with --replica URL, or a file with --config")}
			}
			log, err := newLogger(cfg.Log, os.Stderr)
			if err != nil {
				return usageError{err}
			}
			again := load
			if node.Streamed(file) {
				again = func() (node.Config, error) {
					return node.Config{}, fmt.Errorf("%s, which this router was started from, can't be read again: start it from a file", file)
				}
			}
			return serve(cmd.Context(), cfg, log, again)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "configuration file (YAML)")
	f.StringSliceVar(&replicas, "replica", nil, "a replica's URL (scheme, host, port; no /v1); may be given several times")
	f.StringVar(&model, "model", "default", "with --replica: the model's name, as clients and replicas know it")
	f.StringSliceVar(&join, "join", nil, "cluster address (host:port) of another router; may be given several times")
	f.StringVar(&name, "name", "", "this router's name (default: the host name)")
	f.StringVar(&dataDir, "data-dir", "", "where this router keeps its id and knowledge (default ./hearsay-data)")
	f.StringVar(&api, "listen", "", "client API address (default :8080)")
	f.StringVar(&adminAt, "admin", "", "admin API address (default 127.0.0.1:8081)")
	f.StringVar(&cluster, "cluster", "", "cluster address; the next port is used too (default 127.0.0.1:7946)")
	return cmd
}

func serve(ctx context.Context, cfg node.Config, log zerolog.Logger, load func() (node.Config, error)) error {
	n, err := node.New(cfg, node.Deps{Log: log, Load: load, Hangup: onHangup(ctx)})
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// newLogger makes the process's logger as configured.
func newLogger(cfg node.LogConfig, w io.Writer) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		return zerolog.Nop(), fmt.Errorf("log.level: %w", err)
	}
	zerolog.SetGlobalLevel(level)
	if cfg.Format == "console" {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000", NoColor: !isTerminal(w)}
	}
	return zerolog.New(w).With().Timestamp().Logger(), nil
}

// isTerminal says whether people read what is written there; colours are for them.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
