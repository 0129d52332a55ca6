package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check a configuration file, or show a router's", Args: positional, RunE: help}
	check := &cobra.Command{
		Use: "check FILE", Short: "Report every fault of a configuration file; nothing is started", Args: positional,
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := node.Check(args[0], os.Environ())
			if err != nil {
				return err
			}
			if len(cfg.Pools) == 0 {
				return fmt.Errorf("%s: pools: is missing: a router needs at least one", args[0])
			}
			replicas := 0
			for _, p := range cfg.Pools {
				replicas += len(p.Replicas)
			}
			fmt.Printf("%s is valid: %s, %s\n", args[0], plural(len(cfg.Pools), "pool"), plural(replicas, "static replica"))
			return nil
		},
	}
	a := &admin{}
	show := &cobra.Command{
		Use: "show", Short: "A running router's configuration, without secrets", Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var doc any
			raw, err := a.call(cmd.Context(), "GET", "config", nil, &doc)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				_, err = os.Stdout.Write(raw)
				return err
			}
			var n any
			if err := json.Unmarshal(raw, &n); err != nil {
				return err
			}
			enc := yaml.NewEncoder(os.Stdout)
			enc.SetIndent(2)
			return enc.Encode(n)
		},
	}
	a.addOutput(show)
	show.Flags().Lookup("output").Usage = "table, which is YAML here, or json"
	cmd.AddCommand(check, show)
	return cmd
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "The version of this binary", Args: positional,
		RunE: func(*cobra.Command, []string) error {
			fmt.Println("hearsay " + node.Version())
			return nil
		},
	}
}
