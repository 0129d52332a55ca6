// Command hearsay is the router, its operator's tool, and what is needed to try
// both on one machine: a simulated engine and a trace replayer.
//
// Exit codes: 0 done, 1 refused or failed, 2 bad usage, 130 interrupted before it
// was done (replay), 130 or 143 ended at once by a second SIGINT or SIGTERM.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

func main() {
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00" // of all loggers; with milliseconds
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := untilSignal(os.Exit)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "hearsay: "+err.Error())
	var bad usageError
	switch {
	case errors.As(err, &bad):
		explainUsage(cmd)
		return 2
	case errors.Is(err, errInterrupted):
		return 130
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

  try a whole cluster on this machine:
    hearsay demo --traffic
  one router in front of one engine, which serves the model by that name:
    hearsay serve --replica http://127.0.0.1:8000 --model llama-3.1-8b`,
		SilenceErrors: true, SilenceUsage: true,
		Args: positional, Version: node.Version(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagFault)
	root.SetVersionTemplate("hearsay {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = false
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"try", "Run and try:", []*cobra.Command{newServe(), newDemo(), newEngineSim(), newReplay()}},
		{"look", "Look at a running cluster:", []*cobra.Command{newStatus(), newMembers(), newReplicas(), newModels(), newExplain(), newDiagnose(), newEvents()}},
		{"change", "Change a running cluster:", []*cobra.Command{newDrain(), newUndrain(), newReplica(), newPool(), newScale(), newMember(), newLeave(), newSnapshot(), newReload(), newKeyring(), newLogLevel()}},
		{"files", "Configuration and this binary:", []*cobra.Command{newConfig(), newVersion()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("files")
	root.SetCompletionCommandGroupID("files")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() { // the library's own take any word
		case "help":
			c.RunE = helpOf
		case "completion":
			c.Args, c.RunE = positional, help
			for _, shell := range c.Commands() {
				shell.Args = positional
			}
		}
	}
	return root
}

// errInterrupted is what a command returns that was told to stop before its work
// was done, and has said what it has.
var errInterrupted = errors.New("interrupted")
