package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func newKeyring() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keyring", Short: "Change the secret that the routers share", Args: positional, RunE: help,
		Long: `keyring changes the shared secrets in the files (cluster.secret_file) of all live routers at
once. To change the secret in use: 'keyring add', which tells the new one's fingerprint,
'keyring use' it, and 'keyring remove' the old one. Each step is refused, and nothing is
done, if a router does not answer or would be cut off by it, or is away (--force does it
all the same). No secret is ever shown.
Routers that can't write their file are changed by hand: docs/operate.md.`,
	}
	cmd.AddCommand(
		newKeyringVerb("list", "list", "Fingerprints of the secrets that each router has, the one it uses first"),
		newKeyringVerb("add [FINGERPRINT]", "add", "Add a new secret everywhere, or one that this router has where it is missing; it is accepted, not used"),
		newKeyringVerb("use FINGERPRINT", "use", "Use a secret that all routers have"),
		newKeyringVerb("remove FINGERPRINT", "remove", "Remove a secret that no router uses"),
	)
	return cmd
}

func newKeyringVerb(use, op, short string) *cobra.Command {
	a := &admin{}
	var force bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			method, req := "POST", &console.KeyringRequest{Op: op}
			if req.Force = force; len(args) > 0 {
				req.Key = args[0]
			}
			var body any = req
			if op == "list" {
				method, body = "GET", nil
			}
			var list []console.Keys
			raw, err := a.call(cmd.Context(), method, "keyring", body, &list)
			if err != nil {
				return err
			}
			if err := printKeys(os.Stdout, a, raw, list); err != nil || op == "list" {
				return err
			}
			for _, k := range list {
				if k.Error != "" && !k.Away {
					return fmt.Errorf("%s was not done on all routers (%s: %s): mend that and repeat it", op, k.Name, k.Error)
				}
			}
			return nil
		},
	}
	a.addOutput(cmd)
	if op != "list" {
		cmd.Flags().BoolVar(&force, "force", false, "change the files of the live routers although others are away: change theirs by hand before they come back")
	}
	return cmd
}

func printKeys(w io.Writer, a *admin, raw []byte, list []console.Keys) error {
	if a.output == outputJSON {
		_, err := w.Write(raw)
		return err
	}
	t, added := newTable("router", "keys", "note").wide(a.output, "id"), ""
	for _, k := range list {
		keys := slices.Clone(k.Keys)
		if i := slices.Index(keys, k.Added); i >= 0 {
			added = k.Added
			keys[i] += " (added)"
		}
		t.row(k.Name, orNone(strings.Join(keys, " ")), k.Error, k.ID)
	}
	if err := t.write(w); err != nil || added == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "once all have it: hearsay keyring use %s\n", added)
	return err
}
