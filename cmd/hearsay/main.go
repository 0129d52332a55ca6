// Command hearsay is the router, its operator's tool, and what is needed to try
// both on one machine: a simulated engine and a trace replayer.
//
// Exit codes: 0 done, 1 refused or failed, 2 bad usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// usageError marks an error as the caller's: exit code 2.
type usageError struct{ error }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "hearsay: "+err.Error())
	var bad usageError
	if errors.As(err, &bad) {
		fmt.Fprintf(os.Stderr, "see '%s --help'\n", cmd.CommandPath())
		return 2
	}
	return 1
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "hearsay",
		Short: "A cluster of LLM routers that share what replicas hold in their KV caches",
		Long: `hearsay routes OpenAI-compatible requests to inference replicas. Its routers gossip
what prompt prefixes each replica holds and how long its queue is, so that any
router picks as well as one that knows everything.

  hearsay demo --traffic                            try a whole cluster on this machine
  hearsay serve --replica http://127.0.0.1:8000     one router in front of one engine`,
		SilenceErrors: true, SilenceUsage: true,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(
		newServe(), newDemo(), newEngineSim(), newReplay(),
		newStatus(), newMembers(), newReplicas(), newModels(),
		newExplain(), newDrain(), newUndrain(), newReplica(), newScale(),
		newMember(), newConfig(), newLogLevel(), newVersion(),
	)
	return root
}

// noArgs, exactArgs and rangeArgs are cobra's checks with this tool's exit code.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

func maxArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.MaximumNArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
