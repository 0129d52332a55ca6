package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
)

// write sends a change and says that it was made, and from where on in the facts, as
// status and members count them.
func write(cmd *cobra.Command, a *admin, method, path string, body any, done string) error {
	var answer console.Done
	raw, err := a.call(cmd.Context(), method, path, body, &answer)
	if err != nil {
		return err
	}
	if answer.Local && answer.Message != "" { // the cluster was meant
		return errors.New(answer.Message)
	}
	if a.output == outputJSON {
		_, err := os.Stdout.Write(raw)
		return err
	}
	if answer.Message != "" {
		fmt.Println(answer.Message)
		return nil
	}
	var notes []string
	if answer.Index > 0 {
		notes = append(notes, fmt.Sprintf("facts at %d", answer.Index))
	}
	if answer.Behind {
		notes = append(notes, "this router has not heard of it yet")
	}
	if len(notes) > 0 {
		done += " (" + strings.Join(notes, "; ") + ")"
	}
	fmt.Println(done)
	return nil
}

func newDrain() *cobra.Command {
	cmd, req := newDrainVerb("drain", "Give a replica no new work; running streams go on", "is draining")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, for the record")
	return cmd
}

func newUndrain() *cobra.Command {
	cmd, _ := newDrainVerb("undrain", "Give a drained replica work again", "takes work again")
	cmd.Long += "\n\nWith a leader it also ends what single routers had drained alone before."
	return cmd
}

// newDrainVerb makes drain or undrain; req is what will be sent.
func newDrainVerb(verb, short, done string) (*cobra.Command, *console.ReasonRequest) {
	a, req := &admin{}, &console.ReasonRequest{}
	cmd := &cobra.Command{
		Use: verb + " REPLICA", Short: short, Args: positional,
		Long: short + `, on all routers.
REPLICA is a replica's id, as 'hearsay replicas' shows it, or its URL. Without a leader
it is done on the asked router alone, and said so, with exit code 1.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Local {
				done += " on this router alone"
			}
			return write(cmd, a, "POST", "replicas/"+url.PathEscape(args[0])+"/"+verb, req, args[0]+" "+done)
		},
	}
	a.addFlags(cmd)
	cmd.Flags().BoolVar(&req.Local, "local", false, "on the asked router alone, without a commit")
	return cmd, req
}

func newReplica() *cobra.Command {
	cmd := &cobra.Command{Use: "replica", Short: "Add or remove replicas at run time", Args: positional, RunE: help}
	a := &admin{}
	var req console.ReplicaRequest
	add := &cobra.Command{
		Use: "add URL", Short: "Add a replica to a pool, on all routers", Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := node.NormalURL(args[0]); err != nil {
				return usageError{fmt.Errorf("URL: %w", err)}
			}
			req.URL = args[0]
			return write(cmd, a, "POST", "replicas", req, args[0]+" was added")
		},
	}
	a.addFlags(add)
	add.Flags().StringVar(&req.Pool, "pool", "", "the pool it serves in; may be left out when there is only one")
	rm := &cobra.Command{
		Use: "rm REPLICA", Short: "Remove a replica that was added at run time", Args: positional, SuggestFor: []string{"remove", "delete"},
		Long: `rm removes a replica that 'replica add' added, on all routers. What the autoscaler runs is
drained, or goes with 'scale POOL --to N'; what the configuration lists, a file or
--replica of serve, is taken out there. REPLICA is an id, as 'hearsay replicas' shows it, or a URL.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return write(cmd, a, "DELETE", "replicas/"+url.PathEscape(args[0]), nil, args[0]+" was removed")
		},
	}
	a.addFlags(rm)
	cmd.AddCommand(add, rm)
	return cmd
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func newMember() *cobra.Command {
	cmd := &cobra.Command{Use: "member", Short: "Care for the set of Raft voters", Args: positional, RunE: help}
	a := &admin{}
	rm := &cobra.Command{
		Use: "remove NAME", Short: "Remove a router that will not come back from the voters", Args: positional, SuggestFor: []string{"rm", "delete"},
		Long: `remove takes a router that was stopped or has died out of the voters, by its name, or by
its id where two share a name ('hearsay members -o wide' has both; name/id will do). One
that is alive is not removed: it would be a voter again at once. Another live router
takes its place, if there is one; else one of two others left stops voting too, since
an even number gains nothing: 'hearsay members' shows who votes. A voter that is away
for 30 s while others can replace it goes by itself.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return write(cmd, a, "POST", "members/"+url.PathEscape(args[0])+"/remove", nil, args[0]+" is no voter any more")
		},
	}
	a.addFlags(rm)
	cmd.AddCommand(rm)
	return cmd
}

func newScale() *cobra.Command {
	a := &admin{}
	var to int
	var release bool
	var role string
	cmd := &cobra.Command{
		Use: "scale [POOL]", Short: "Show or set how many replicas a pool should have",
		Long: `Without --to, scale shows the pools' targets. With --to N the operator's target wins
over the autoscaler until 'scale POOL --release'. N must lie within the pool's bounds
(scale.min, scale.max); with the actuator dry_run the target is only recorded. Where
replicas prefill and decode apart each role has a target: name it with --role. 'hearsay
scale log' shows what became of it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				if _, err := strconv.ParseUint(args[1], 10, 31); err == nil {
					return usageError{fmt.Errorf("%q is one argument too many: did you mean %s %s --to %s?", args[1], cmd.CommandPath(), args[0], args[1])}
				}
			}
			return positional(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			set := cmd.Flags().Changed("to")
			if (set || release) && (len(args) == 0 || strings.TrimSpace(args[0]) == "") {
				return usageError{fmt.Errorf("POOL is missing: hearsay scale POOL --to N, or --release")}
			}
			if role != "" && !set && !release {
				return usageError{fmt.Errorf("--role goes with --to or --release")}
			}
			if set && release {
				return usageError{fmt.Errorf("--to and --release exclude each other")}
			}
			if to < 0 {
				return usageError{fmt.Errorf("--to: %d is not 0 or more", to)}
			}
			switch {
			case set:
				return write(cmd, a, "PUT", "pools/"+url.PathEscape(args[0])+"/target",
					console.TargetRequest{To: &to, Role: role}, fmt.Sprintf("pool %s: target %d, held until --release", args[0], to))
			case release:
				return write(cmd, a, "PUT", "pools/"+url.PathEscape(args[0])+"/target",
					console.TargetRequest{Release: true, Role: role}, "pool "+args[0]+": the autoscaler has it again")
			}
			var list []console.Pool
			return show(cmd, a, "pools", &list, func(w io.Writer) error {
				if len(args) == 1 {
					list = slices.DeleteFunc(list, func(p console.Pool) bool { return p.Name != args[0] })
					if len(list) == 0 {
						return fmt.Errorf("no pool %s: see hearsay status", args[0])
					}
				}
				t := newTable("pool", "replicas", "ready", "target", "held", "bounds", "actuator", "in flight", "queued tokens")
				for _, p := range list {
					held := "no"
					if p.Held || slices.ContainsFunc(p.Targets, func(r console.RoleTarget) bool { return r.Held }) {
						held = "yes"
					}
					t.row(p.Name, p.Replicas, p.Ready, target(&p, len(p.Targets) > 0), held, fmt.Sprintf("%d-%d", p.Min, p.Max), p.Actuator, p.InFlight, p.Queued)
				}
				return t.write(w)
			})
		},
	}
	a.addOutput(cmd)
	cmd.Flags().IntVar(&to, "to", 0, "wanted number of replicas")
	cmd.Flags().BoolVar(&release, "release", false, "give the target back to the autoscaler")
	cmd.Flags().StringVar(&role, "role", "", "whose target, where replicas have roles: prefill, decode or both")
	cmd.AddCommand(newScaleLog())
	return cmd
}

func newLogLevel() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "log-level LEVEL", Short: "Set the log level of the router at --server until it restarts: " + strings.Join(node.LogLevels(), ", "), Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(node.LogLevels(), args[0]) {
				return usageError{fmt.Errorf("LEVEL: %q is unknown: use %s", args[0], strings.Join(node.LogLevels(), ", "))}
			}
			return write(cmd, a, "PUT", "log-level", console.LevelRequest{Level: args[0]}, "log level is "+args[0])
		},
	}
	a.addFlags(cmd)
	return cmd
}

// maxInput bounds what a command reads for a router.
const maxInput = 64 << 20

// readInput reads a file, or standard input for "-".
func readInput(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, maxInput))
	}
	return state.ReadFile(path, maxInput)
}

// inputName is what readInput's path is called in errors.
func inputName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}
