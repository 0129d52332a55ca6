package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func newLeave() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "leave", Short: "Take the router at --server out of the cluster for good, and stop it", Args: positional,
		Long: `leave stops a router that will not come back. It hands leadership over if it leads; another
router takes its vote, or, if there is none to take it, the voters become fewer; then it
stops as at SIGTERM: no new requests after api.drain_delay, running ones get 30 s. leave
returns when the vote is given up, and nothing has changed if it can't be: without a leader,
or when the other voters would have no majority. For a restart use SIGTERM: a voter that
comes back keeps its vote. Started again, a router that has left joins like a new one.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return write(cmd, a, "POST", "leave", nil, "the router has left")
		},
	}
	a.addFlags(cmd)
	return cmd
}

func newReload() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "reload", Short: "Make the router at --server read its configuration again", Args: positional,
		Long: `reload reads the file, environment and flags that a router was started with, as SIGHUP does.
Pools, clients' keys and the log level are taken at once, all or nothing; keys that need a
restart are named, and stay as they were. A configuration with a fault changes nothing.
Requests that run go on. Each router reads its own file: reload them one after another, and
see with 'hearsay members -o wide' that all run the same.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r console.Reloaded
			raw, err := a.call(cmd.Context(), "POST", "config/reload", nil, &r)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				_, err := os.Stdout.Write(raw)
				return err
			}
			if len(r.Changed) == 0 {
				fmt.Println("nothing to take")
			} else {
				fmt.Println("taken: " + strings.Join(r.Changed, ", "))
			}
			if len(r.Restart) > 0 {
				fmt.Println("needs a restart: " + strings.Join(r.Restart, ", "))
			}
			return nil
		},
	}
	a.addOutput(cmd)
	return cmd
}
