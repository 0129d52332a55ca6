package main

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestEveryCommandHasHelp(t *testing.T) {
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		r := call(t, append(path, "--help")...)
		r.wants(t, 0, "Usage:", cmd.UseLine())
		if r.errOut != "" {
			t.Errorf("%v --help wrote to standard error: %s", path, r.errOut)
		}
		if cmd.Short == "" {
			t.Errorf("%v has no short description", path)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%v: flag --%s has no description", path, f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub, append(append([]string{}, path...), sub.Name()))
		}
	}
	walk(newRoot(), nil)
}

// The commands that operators' scripts call are all there.
func TestCommandsAreThere(t *testing.T) {
	have := map[string]bool{}
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		have[path] = true
		for _, sub := range cmd.Commands() {
			walk(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
	}
	walk(newRoot(), "")
	for _, want := range []string{
		"serve", "demo", "engine-sim", "replay", "status", "members", "replicas", "models", "explain", "drain", "undrain",
		"replica add", "replica rm", "scale", "scale log", "member remove", "config check", "config show", "log-level", "version",
	} {
		if !have[want] {
			t.Errorf("no command %q", want)
		}
	}
	call(t, "completion", "bash").wants(t, 0, "hearsay")
	call(t, "version").wants(t, 0, "hearsay ")
	call(t).wants(t, 0, "Usage:", "demo --traffic")
}

// Bad usage has exit code 2 and says where help is.
func TestBadUsage(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		call(t, args...).wants(t, 2, "hearsay: ", want, "see 'hearsay")
	}
	f("nonsense", "nonsense")
	f("unknown flag", "--nonsense")
	f("unknown flag", "status", "--nonsense")
	f("use table or json", "status", "-o", "yaml")
	f("is not a URL", "status", "--server", "::")
	f("accepts 1 arg", "drain")
	f("accepts 1 arg", "replica", "add")
	f("", "replica", "sub")
	f("accepts 1 arg", "config", "check")
	f("at most 1 arg", "scale", "a", "b")
	f("name the pool", "scale", "--to", "3")
	f("exclude each other", "scale", "chat", "--to", "3", "--release")
	f("invalid argument", "scale", "chat", "--to", "many")
	f("either -f FILE or a request id", "explain")
	f("either -f FILE or a request id", "explain", "-f", "x", "id")
	f("no pools", "serve", "--data-dir", t.TempDir())
	f("--routers takes 1 to 16", "demo", "--routers", "0")
	f("--replicas", "demo", "--replicas", "65")
	f("--rate", "replay", "--rate", "0")
	f("target", "replay", "--trace", "agents", "--requests", "1", "--target", "nowhere")
}

func TestEngineSimRefusesBadFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		call(t, append([]string{"engine-sim", "--listen", "127.0.0.1:0"}, args...)...).wants(t, 2, want, "engine-sim --help")
	}
	f("kv_tokens", "--kv-tokens", "7")
	f("speed", "--speed", "0")
	f("kind", "--engine", "abacus")
	f("profile", "--profile", "abacus")
	f("model", "--model", "")
	f("max_seqs", "--max-seqs", "0")
	f("invalid argument", "--speed", "fast")

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	call(t, "engine-sim", "--port", port).wants(t, 1, "in use", "choose another with --port")
}
