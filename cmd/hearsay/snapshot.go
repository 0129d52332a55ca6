package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
)

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Save what the cluster has committed, and restore it", Args: positional, RunE: help}
	cmd.AddCommand(newSnapshotSave(), newSnapshotRestore())
	return cmd
}

func newSnapshotSave() *cobra.Command {
	a := &admin{}
	var stale bool
	var dir string
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Write the committed facts to a file", Args: positional,
		Long: `save writes what the cluster has committed (targets, decisions, drains, replicas added at
run time, policies) to FILE, as it is now: the leader is asked. Without a leader give
--stale: what the asked router knows. --data-dir takes it from the directory of a router
that does not run. Neither keys nor learned prefixes are in it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := savedSnapshot(cmd, a, dir, stale)
			if err != nil {
				return err
			}
			if err := node.WriteFile(args[0], b); err != nil {
				return err
			}
			fmt.Printf("%s: %d bytes\n", args[0], len(b))
			return nil
		},
	}
	a.addFlags(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "what the asked router knows, without asking the leader")
	cmd.Flags().StringVar(&dir, "data-dir", "", "of a router that does not run: what it knew last")
	return cmd
}

func savedSnapshot(cmd *cobra.Command, a *admin, dir string, stale bool) ([]byte, error) {
	if dir != "" {
		return node.SaveDir(dir)
	}
	path := "snapshot"
	if stale {
		path += "?stale"
	}
	return a.call(cmd.Context(), "GET", path, nil, nil)
}

func newSnapshotRestore() *cobra.Command {
	a := &admin{}
	var force bool
	var dir string
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Put saved facts in place of those there are", Args: positional,
		Long: `restore gives a running cluster the facts of FILE in place of its own; it needs a leader.

With --data-dir it recovers a cluster whose quorum is lost for good: the router of that
directory, which must be stopped, becomes the only voter, with the facts of FILE and the
cluster's id. Started, it leads, and others join it. Remove the directory raft of the
other voters of old before they are started: what they know is of the past.

A snapshot of another cluster is refused; --force takes it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := state.ReadFile(args[0], maxSnapshot)
			if err != nil {
				return err
			}
			if dir != "" {
				said, err := node.RestoreDir(dir, b, force)
				if err != nil {
					return err
				}
				fmt.Println(said)
				return nil
			}
			path := "snapshot"
			if force {
				path += "?" + url.Values{"force": {""}}.Encode()
			}
			return write(cmd, a, "PUT", path, rawBody(b), args[0]+" was restored")
		},
	}
	a.addFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "take a snapshot of another cluster, too")
	cmd.Flags().StringVar(&dir, "data-dir", "", "of a stopped router, which becomes the cluster's only voter")
	return cmd
}

// rawBody is sent as it is.
type rawBody []byte

// maxSnapshot bounds a file of saved facts; a router takes less.
const maxSnapshot = 256 << 20
