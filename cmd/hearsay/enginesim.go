package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/test/enginesim"
)

func newEngineSim() *cobra.Command {
	cfg := enginesim.DefaultConfig()
	var listen string
	var port, parent int
	cmd := &cobra.Command{
		Use: "engine-sim", Short: "One simulated engine: timing, KV cache, metrics, faults",
		Long: `engine-sim serves the OpenAI API, Anthropic's Messages or both, like an inference engine
would, with its timing and KV cache simulated: chunked prefill, continuous batching, an LRU
of 16-token blocks. It generates no meaningful text. GET /sim/record tells what it received
and executed. POST /sim/fault makes it misbehave, GET /sim/fault tells how it does now:

  curl http://127.0.0.1:8000/sim/fault -d '` + enginesim.FaultExample + `'

A fault ends after "count" requests or "duration_ms", if these are given, or with the
kind none. Kinds:

` + enginesim.FaultHelp(),
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return asFlags(cmd, err)
			}
			if parent < 0 {
				return usageError{fmt.Errorf("--parent: %d is not 0 or more", parent)}
			}
			addr := listen
			if cmd.Flags().Changed("port") {
				switch {
				case cmd.Flags().Changed("listen"):
					return usageError{errors.New("--listen and --port exclude each other: --listen names the port too")}
				case port < 0 || port > 65535:
					return usageError{fmt.Errorf("--port: %d is not 0 to 65535", port)}
				}
				addr = fmt.Sprintf("127.0.0.1:%d", port)
			}
			if _, p, err := net.SplitHostPort(addr); err != nil {
				return usageError{fmt.Errorf("--listen: %q is not host:port, such as 127.0.0.1:8000", addr)}
			} else if _, err := strconv.ParseUint(p, 10, 16); err != nil {
				return usageError{fmt.Errorf("--listen: %q has no port from 0 to 65535", addr)}
			}
			ln, err := net.Listen("tcp", addr)
			switch {
			case errors.Is(err, syscall.EADDRINUSE):
				return fmt.Errorf("listen on %s: %w: choose another with --port", addr, err)
			case err != nil:
				return fmt.Errorf("listen on %s: %w", addr, err)
			}
			fmt.Fprintf(os.Stderr, "simulated %s engine, model %s, %d KV tokens, profile %s at speed %g: http://%s\n",
				cfg.Kind, cfg.Model, cfg.KVTokens, cfg.Profile, cfg.Speed, ln.Addr())
			ctx, cancel := withParent(cmd.Context(), parent)
			defer cancel()
			err = enginesim.New(cfg).Serve(ctx, ln)
			if err == nil {
				fmt.Fprintln(os.Stderr, "stopped")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:8000", "address to listen on")
	f.IntVar(&port, "port", 8000, "port to listen on, on 127.0.0.1")
	f.IntVar(&parent, "parent", 0, "end when the process of this id is no longer the parent; 0 = run on")
	f.StringVar((*string)(&cfg.Kind), "engine", string(cfg.Kind), "engine to speak like: vllm, sglang, llamacpp or anthropic, which wants a key (any one) and the header anthropic-version")
	f.StringVar(&cfg.Model, "model", cfg.Model, "model name")
	f.StringSliceVar(&cfg.Adapters, "adapters", nil, "LoRA adapters served beside the model")
	f.IntVar(&cfg.MaxLoRAs, "max-loras", 0, "most adapters in a batch, and loaded; 0 = no bound")
	f.DurationVar(&cfg.AdapterLoad, "adapter-load", cfg.AdapterLoad, "what loading an adapter takes")
	f.StringVar(&cfg.Profile, "profile", cfg.Profile, "timing: "+strings.Join(enginesim.ProfileNames(), ", ")+" or simple")
	f.Float64Var(&cfg.Speed, "speed", cfg.Speed, "times faster than the profile")
	f.IntVar(&cfg.KVTokens, "kv-tokens", cfg.KVTokens, "KV cache size, tokens")
	f.IntVar(&cfg.MaxSeqs, "max-seqs", cfg.MaxSeqs, "most sequences in a batch")
	f.IntVar(&cfg.MaxBatchedTokens, "max-batched-tokens", cfg.MaxBatchedTokens, "token budget of a step")
	f.IntVar(&cfg.MaxModelLen, "max-model-len", cfg.MaxModelLen, "longest prompt plus output, tokens")
	f.IntVar(&cfg.StreamInterval, "stream-interval", cfg.StreamInterval, "tokens per stream event")
	f.IntVar(&cfg.MeanOutput, "mean-output", cfg.MeanOutput, "mean output without a limit, tokens")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "decides texts and drawn lengths")
	f.BoolVar(&cfg.HideCachedTokens, "hide-cached-tokens", false, "report no cached tokens in usage")
	return cmd
}
