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

// Bad usage has exit code 2, names what is wrong in the user's words, and shows how
// the command is called.
func TestBadUsage(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		r := call(t, args...)
		r.wants(t, 2, "hearsay: ", want, "\nusage: hearsay", "\nsee 'hearsay")
		for _, raw := range []string{"strconv", "accepts ", "received ", "invalid syntax", "cannot "} {
			if strings.Contains(r.errOut, raw) {
				t.Errorf("%v: a library's words: %s", args, r.errOut)
			}
		}
	}
	f(`"nonsense" is no command of hearsay`, "nonsense")
	f(`"statsu" is no command of hearsay: did you mean status?`, "statsu")
	f("there is no flag --nonsense", "--nonsense")
	f("there is no flag --serverr: did you mean --server?", "status", "--serverr", "x")
	f("there is no flag -x", "status", "-x")
	f("--server needs a value: admin URL of the router to ask", "status", "--server")
	f(`--output "yaml": use table, wide or json`, "status", "-o", "yaml")
	f("is not a URL", "status", "--server", "::")
	f("REPLICA is missing\nusage: hearsay drain REPLICA [flags]", "drain")
	f("REPLICA is missing", "undrain", "")
	f("URL is missing\nusage: hearsay replica add URL [flags]", "replica", "add")
	f("REPLICA is missing", "replica", "rm")
	f("NAME is missing", "member", "remove")
	f("LEVEL is missing", "log-level")
	f("FILE is missing", "config", "check")
	f(`"sub" is no command of hearsay replica`, "replica", "sub")
	f(`"b" is one argument too many: hearsay scale takes [POOL]`, "scale", "a", "b")
	f(`"now" is one argument too many: hearsay status takes none`, "status", "now")
	f(`"b" is one argument too many`, "explain", "a", "b")
	f(`"5" is one argument too many: did you mean hearsay scale chat --to 5?`, "scale", "chat", "5")
	f(`"sh" is no command of hearsay completion`, "completion", "sh")
	f(`"now" is one argument too many: hearsay completion bash takes none`, "completion", "bash", "now")
	f(`--listen: "x" is not host:port`, "engine-sim", "--listen", "x")
	f("POOL is missing", "scale", "--to", "3")
	f("exclude each other", "scale", "chat", "--to", "3", "--release")
	f(`--to: "many" is not a whole number`, "scale", "chat", "--to", "many")
	f("--to: -1 is not 0 or more", "scale", "chat", "--to", "-1")
	f(`--release: "perhaps" is not true or false`, "scale", "chat", "--release=perhaps")
	f("either -f FILE or a REQUEST_ID", "explain")
	f("either -f FILE or a REQUEST_ID", "explain", "-f", "x", "id")
	f("no pools", "serve", "--data-dir", t.TempDir())
	f("--routers: 0 is not 1 to 16", "demo", "--routers", "0")
	f("--replicas: 65 is not 1 to 64", "demo", "--replicas", "65")
	f(`--rate: "fast" is not a number`, "demo", "--rate", "fast")
	f(`--duration: "5" is not a duration such as 30s or 5m`, "demo", "--duration", "5")
	f(`--policy: "best" is unknown: use ttft`, "demo", "--policy", "best")
	f("--rate: 0 is not above 0", "replay", "--rate", "0")
	f(`--seed: "-1" is not a whole number of 0 or more`, "replay", "--seed", "-1")
	f("target", "replay", "--trace", "agents", "--requests", "1", "--target", "nowhere")
}

func TestEngineSimRefusesBadFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		call(t, append([]string{"engine-sim", "--listen", "127.0.0.1:0"}, args...)...).wants(t, 2, want, "engine-sim --help")
	}
	f("--kv-tokens: 7", "--kv-tokens", "7")
	f("--speed: 0", "--speed", "0")
	f(`--engine: unknown "abacus": use vllm, sglang or llamacpp`, "--engine", "abacus")
	f("--profile", "--profile", "abacus")
	f("--model: empty", "--model", "")
	f("--max-seqs: 0", "--max-seqs", "0")
	f(`--speed: "fast" is not a number`, "--speed", "fast")

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	call(t, "engine-sim", "--port", port).wants(t, 1, "in use", "choose another with --port")
}
