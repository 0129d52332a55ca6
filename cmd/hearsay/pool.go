package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/routing"
)

func newPool() *cobra.Command {
	cmd := &cobra.Command{Use: "pool", Short: "Change how a pool's replicas are picked", Args: positional, RunE: help}
	a := &admin{}
	var release bool
	policy := &cobra.Command{
		Use: "policy POOL [POLICY]", Short: "Give a pool another routing policy, on all routers", SuggestFor: []string{"set"},
		Long: `policy gives a pool a routing policy at run time, on all routers, until it is given
another one or 'pool policy POOL --release' gives it back to the configuration. 'hearsay
status' shows what is set and what picks. It may be one of
  ` + strings.Join(routing.Policies(), ", ") + `

docs/configure.md says what each goes by and when to use it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || len(args) > 2 || strings.TrimSpace(args[0]) == "":
				return positional(cmd, args)
			case release && len(args) == 2:
				return usageError{fmt.Errorf("a POLICY and --release exclude each other")}
			case !release && (len(args) == 1 || strings.TrimSpace(args[1]) == ""):
				return usageError{fmt.Errorf("POLICY is missing: hearsay pool policy POOL POLICY, or --release")}
			case len(args) == 2 && !slices.Contains(routing.Policies(), args[1]):
				return usageError{fmt.Errorf("POLICY: %q is unknown: use %s", args[1], strings.Join(routing.Policies(), ", "))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			to, done := "", "pool "+args[0]+": the policy of its configuration again"
			if !release {
				to, done = args[1], fmt.Sprintf("pool %s: policy %s, until --release", args[0], args[1])
			}
			return write(cmd, a, "PUT", "pools/"+url.PathEscape(args[0])+"/policy", console.PolicyRequest{Policy: &to}, done)
		},
	}
	a.addFlags(policy)
	policy.Flags().BoolVar(&release, "release", false, "give the policy back to the configuration")
	cmd.AddCommand(policy)
	return cmd
}
