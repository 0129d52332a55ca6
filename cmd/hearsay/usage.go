package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		text := fmt.Sprintf("%q is no command of %s", extra, cmd.CommandPath())
		var known []string
		for _, c := range cmd.Commands() {
			known = append(known, c.Name())
		}
		if near := node.Nearest(extra, known); near != "" {
			text += ": did you mean " + near + "?"
		}
		return usageError{errors.New(text)}
	case len(names) == 0:
		return usageError{fmt.Errorf("%q is one argument too many: %s takes none", extra, cmd.CommandPath())}
	}
	return usageError{fmt.Errorf("%q is one argument too many: %s takes %s", extra, cmd.CommandPath(), strings.Join(names, " "))}
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
