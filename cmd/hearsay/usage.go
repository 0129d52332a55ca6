package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// usageError marks an error as the caller's: exit code 2.
type usageError struct{ error }

// Unwrap gives what is wrong.
func (e usageError) Unwrap() error { return e.error }

// positional checks a command's arguments against its usage line, where NAME is
// needed and [NAME] may be left out. An empty argument is a missing one: an unset
// variable of a script.
func positional(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	for i, n := range names {
		if !strings.HasPrefix(n, "[") && (i >= len(args) || strings.TrimSpace(args[i]) == "") {
			return usageError{fmt.Errorf("%s is missing", n)}
		}
	}
	if len(args) <= len(names) {
		return nil
	}
	extra := args[len(names)]
	switch {
	case cmd.HasSubCommands() && len(names) == 0:
		return noCommand(cmd, extra)
	case len(names) == 0:
		text := fmt.Sprintf("%q is one argument too many: ", extra)
		if flag := flagFor(cmd, extra); flag != "" {
			return usageError{fmt.Errorf("%sdid you mean %s %s?", text, cmd.CommandPath(), flag)}
		}
		return usageError{fmt.Errorf("%s%s takes none", text, cmd.CommandPath())}
	}
	return usageError{fmt.Errorf("%q is one argument too many: %s takes %s", extra, cmd.CommandPath(), strings.Join(names, " "))}
}

// noCommand says that a command has none of this name, and which may be meant.
func noCommand(cmd *cobra.Command, name string) error {
	var near string
	var known []string
	for _, c := range cmd.Commands() {
		known = append(known, c.Name())
		if slices.Contains(c.SuggestFor, name) {
			near = c.Name()
		}
	}
	if near == "" {
		near = node.Nearest(name, known)
	}
	text := fmt.Sprintf("%q is no command of %s", name, cmd.CommandPath())
	if near != "" {
		text += ": did you mean " + near + "?"
	}
	return usageError{errors.New(text)}
}

// helpOf is what the help command does: unlike the library's it refuses what is no
// command.
func helpOf(cmd *cobra.Command, args []string) error {
	of, rest, err := cmd.Root().Find(args)
	switch {
	case err != nil:
		return usageError{err}
	case len(rest) > 0:
		return noCommand(of, rest[0])
	}
	of.InitDefaultHelpFlag() // which a command otherwise gets when it is run
	return of.Help()
}

// flagFor is the flag by which a command takes what was given without one, if it
// has one: a URL or host:port, or a file.
func flagFor(cmd *cobra.Command, given string) string {
	names := []string{"config", "trace"}
	isURL := strings.Contains(given, "://")
	if _, _, err := net.SplitHostPort(given); isURL || err == nil {
		names = []string{"replica", "target", "server"}
		if !isURL {
			given = "http://" + given
		}
	} else if _, err := os.Stat(given); err != nil && filepath.Ext(given) == "" {
		return ""
	}
	for _, name := range names {
		if cmd.Flags().Lookup(name) != nil {
			return "--" + name + " " + given
		}
	}
	return ""
}

// flagFault says what is wrong with a flag, in words for people.
func flagFault(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &value):
		f := value.GetFlag()
		want, known := flagTypes[f.Value.Type()]
		if !known {
			return usageError{fmt.Errorf("--%s %q: %w", f.Name, value.GetValue(), value.Unwrap())}
		}
		return usageError{fmt.Errorf("--%s: %q is not %s", f.Name, value.GetValue(), want)}
	case errors.As(err, &missing):
		f := missing.GetFlag()
		return usageError{fmt.Errorf("--%s needs a value: %s", f.Name, f.Usage)}
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		text := fmt.Sprintf("there is no flag --%s", unknown.GetSpecifiedName())
		if near := node.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			text += ": did you mean --" + near + "?"
		}
		return usageError{errors.New(text)}
	case errors.As(err, &unknown):
		return usageError{fmt.Errorf("there is no flag -%s", unknown.GetSpecifiedShortnames())}
	}
	return usageError{err}
}

// flagTypes says what values of pflag's types look like.
var flagTypes = map[string]string{
	"int": "a whole number", "uint64": "a whole number of 0 or more", "float64": "a number",
	"bool": "true or false", "duration": "a duration such as 30s or 5m",
}

// asFlags names the flags where a part's own check named its fields.
func asFlags(cmd *cobra.Command, err error) error {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, rest, ok := strings.Cut(line, ": ")
		name := strings.ReplaceAll(key, "_", "-")
		if key == "kind" {
			name = "engine"
		}
		if ok && cmd.Flags().Lookup(name) != nil {
			cmd.Flags().VisitAll(func(f *pflag.Flag) { // another field that it is judged by
				if field := strings.ReplaceAll(f.Name, "-", "_"); field != f.Name {
					rest = strings.ReplaceAll(rest, field, "--"+f.Name)
				}
			})
			line = "--" + name + ": " + rest
		}
		lines = append(lines, line)
	}
	return usageError{errors.New(strings.Join(lines, "\n  "))}
}

// explainUsage prints how a command is to be called.
func explainUsage(cmd *cobra.Command) {
	line := cmd.UseLine()
	if cmd.HasSubCommands() && !strings.Contains(cmd.Use, " ") {
		line = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(os.Stderr, "usage: %s\nsee '%s --help'\n", line, cmd.CommandPath())
}

// typed is how this program was called, for commands that are shown to be copied.
func typed() string {
	name := os.Args[0]
	if strings.ContainsRune(name, filepath.Separator) {
		return name
	}
	return "hearsay"
}
