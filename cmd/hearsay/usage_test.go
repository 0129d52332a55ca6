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
	call(t, "help").wants(t, 0, "Usage:", "demo --traffic")
	call(t, "help", "scale", "log").wants(t, 0, "Usage:\n  hearsay scale log [ID] [flags]", "--help")
	call(t, "engine-sim", "--help").wants(t, 0, "/sim/fault -d '{", "after_events", "hang_metrics")
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
	f(`"nope" is no command of hearsay`, "help", "nope")
	f(`"lgo" is no command of hearsay scale: did you mean log?`, "help", "scale", "lgo")
	f(`"now" is no command of hearsay status`, "help", "status", "now")
	f("there is no flag --nonsense", "--nonsense")
	f("there is no flag --serverr: did you mean --server?", "status", "--serverr", "x")
	f("there is no flag -x", "status", "-x")
	f("--server needs a value: admin URL, or host:port, of the router to ask", "status", "--server")
	f(`--output "yaml": use table, wide or json`, "status", "-o", "yaml")
	for _, s := range []string{"::", "http:/127.0.0.1:8081", "ftp://127.0.0.1:8081"} {
		f(`--server: "`+s+`" is not a URL such as http://127.0.0.1:8081`, "status", "--server", s)
	}
	f("REPLICA is missing\nusage: hearsay drain REPLICA [flags]", "drain")
	f("REPLICA is missing", "undrain", "")
	f("URL is missing\nusage: hearsay replica add URL [flags]", "replica", "add")
	f(`URL: "127.0.0.1:8600" is not a URL such as`, "replica", "add", "127.0.0.1:8600")
	f(`URL: "nowhere" is not a URL such as`, "replica", "add", "nowhere", "--pool", "chat")
	f(`URL: "http://127.0.0.1:8600/v1": give only scheme, host and port`, "replica", "add", "http://127.0.0.1:8600/v1")
	f("REPLICA is missing", "replica", "rm")
	f("NAME is missing", "member", "remove")
	f("LEVEL is missing", "log-level")
	f("FILE is missing", "config", "check")
	f(`"sub" is no command of hearsay replica`, "replica", "sub")
	f(`"remove" is no command of hearsay replica: did you mean rm?`, "replica", "remove", "x")
	f(`"rm" is no command of hearsay member: did you mean remove?`, "member", "rm", "x")
	f(`"b" is one argument too many: hearsay scale takes [POOL]`, "scale", "a", "b")
	f(`"now" is one argument too many: hearsay status takes none`, "status", "now")
	f(`"127.0.0.1:8081" is one argument too many: did you mean hearsay status --server http://127.0.0.1:8081?`, "status", "127.0.0.1:8081")
	f(`too many: did you mean hearsay serve --config ../../deploy/examples/single.yaml?`, "serve", "../../deploy/examples/single.yaml")
	f(`too many: did you mean hearsay serve --config none.yaml?`, "serve", "none.yaml")
	f(`too many: did you mean hearsay serve --replica http://127.0.0.1:9?`, "serve", "127.0.0.1:9")
	f(`too many: did you mean hearsay replay --target https://h?`, "replay", "https://h")
	f(`"now" is one argument too many: hearsay serve takes none`, "serve", "now")
	f(`"b" is one argument too many`, "explain", "a", "b")
	f(`"5" is one argument too many: did you mean hearsay scale chat --to 5?`, "scale", "chat", "5")
	f(`"sh" is no command of hearsay completion`, "completion", "sh")
	f(`"now" is one argument too many: hearsay completion bash takes none`, "completion", "bash", "now")
	f("--listen and --port exclude each other", "engine-sim", "--listen", "127.0.0.1:0", "--port", "0")
	f(`--listen: "x" is not host:port`, "engine-sim", "--listen", "x")
	f("POOL is missing", "scale", "--to", "3")
	f("exclude each other", "scale", "chat", "--to", "3", "--release")
	f(`--to: "many" is not a whole number`, "scale", "chat", "--to", "many")
	f("--to: -1 is not 0 or more", "scale", "chat", "--to", "-1")
	f(`--release: "perhaps" is not true or false`, "scale", "chat", "--release=perhaps")
	f("either -f FILE or a REQUEST_ID", "explain")
	f("either -f FILE or a REQUEST_ID", "explain", "-f", "x", "id")
	f("--model goes with --replica: ../../deploy/examples/single.yaml names its pools' models", "serve", "--config", "../../deploy/examples/single.yaml", "--model", "m")
	f("no pools", "serve", "--data-dir", t.TempDir())
	f("--routers: 0 is not 1 to 16", "demo", "--routers", "0")
	f("--replicas: 65 is not 1 to 64", "demo", "--replicas", "65")
	for _, n := range []string{"-16", "0", "7", "1000", "999999999999"} {
		f("--kv-tokens: "+n+" is not a multiple of 16, the size of a block, from 16 to 67108864", "demo", "--kv-tokens", n)
	}
	for _, r := range []string{"-1", "0", "NaN", "+Inf", "1e+09"} {
		f("--rate: "+r+" is not above 0 and up to 1000", "demo", "--rate", r)
	}
	f("--rate goes with --traffic", "demo", "--rate", "2")
	f("--duration: -1s is not 0 or more", "demo", "--duration", "-1s")
	f("--to: \"99999999999999999999\" is not a whole number", "scale", "chat", "--to", "99999999999999999999")
	f(`LEVEL: "debg" is unknown: use debug, info, warn, error`, "log-level", "debg")
	f(`LEVEL: "trace" is unknown`, "log-level", "trace")
	f(`--listen: listen.api: "9" is not host:port`, "serve", "--replica", "http://127.0.0.1:9", "--listen", "9", "--data-dir", t.TempDir())
	f(`--cluster: listen.cluster: port 65535 leaves no next port`, "serve", "--replica", "http://127.0.0.1:9", "--cluster", "127.0.0.1:65535", "--data-dir", t.TempDir())
	f(`--rate: "fast" is not a number`, "demo", "--rate", "fast")
	f(`--duration: "5" is not a duration such as 30s or 5m`, "demo", "--duration", "5")
	f(`--policy: "best" is unknown: use ttft`, "demo", "--policy", "best")
	f(`--trace: there is no file "nope", and the traces known by name are azure-conversation, mooncake-conversation, mooncake-synthetic, agents`, "replay", "--trace", "nope")
	for _, x := range []string{"-1", "0", "NaN", "+Inf", "1e-300", "1e+300"} {
		f("--rate: "+x+" is not 0.000001 to 1000000", "replay", "--trace", "agents", "--rate", x)
		f("--speed: "+x+" is not 0.001 to 1000000", "replay", "--trace", "agents", "--speed", x)
	}
	for _, flag := range []string{"--warmup", "--slo-ttft", "--slo-tpot", "--timeout"} {
		f(flag+": -1s is not 0 or more", "replay", "--trace", "agents", "--requests", "1", flag, "-1s")
	}
	f("--concurrency: -1 is not 0 or more", "replay", "--trace", "agents", "--requests", "1", "--concurrency", "-1")
	f("--model: empty", "replay", "--trace", "agents", "--requests", "1", "--model", "")
	f("--requests: -1 is not 0 to 1000000", "replay", "--requests", "-1")
	f("--requests: 1000000000 is not 0 to 1000000", "replay", "--trace", "agents", "--requests", "1000000000")
	f(`--seed: "-1" is not a whole number of 0 or more`, "replay", "--seed", "-1")
	for _, target := range []string{"nowhere", "127.0.0.1", "ftp://127.0.0.1:8080", "http:/127.0.0.1:8080", ":"} {
		f(`--target: "`+target+`" is neither a URL such as http://127.0.0.1:8080 nor host:port`, "replay", "--trace", "agents", "--requests", "1", "--target", target)
	}
	f(`--server: "::" is not a URL`, "status", "--server", "::")
	t.Setenv("HEARSAY_SERVER", "::")
	f(`HEARSAY_SERVER: "::" is not a URL`, "status")
}

func TestEngineSimRefusesBadFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		call(t, append([]string{"engine-sim", "--listen", "127.0.0.1:0"}, args...)...).wants(t, 2, want, "engine-sim --help")
	}
	f("--kv-tokens: 7", "--kv-tokens", "7")
	f("--speed: 0", "--speed", "0")
	f(`--engine: unknown "abacus": use vllm, sglang, llamacpp or anthropic`, "--engine", "abacus")
	f("--profile", "--profile", "abacus")
	f("--model: empty", "--model", "")
	f("--max-seqs: 0 is not 1 to 8192, the --max-batched-tokens", "--max-seqs", "0")
	f("--max-seqs: 9000 is not 1 to 8192", "--max-seqs", "9000")
	f("--max-batched-tokens: 99999999 is not 1 to 1048576", "--max-batched-tokens", "99999999")
	f("--kv-tokens: 1073741824 is not a multiple of 16, the size of a block, from 16 to 67108864", "--kv-tokens", "1073741824")
	f("--speed: +Inf is not 0.001 to 1000000", "--speed", "inf")
	f("--speed: 1e-300 is not 0.001 to 1000000", "--speed", "1e-300")
	f("--max-model-len: 1 is not 2 or more", "--max-model-len", "1")
	f("--stream-interval: 0 is not 1 or more", "--stream-interval", "0")
	f("--mean-output: -1 is not 1 or more", "--mean-output", "-1")
	f("--parent: -1 is not 0 or more", "--parent", "-1")
	for _, port := range []string{"-1", "65536"} {
		call(t, "engine-sim", "--port", port).wants(t, 2, "--port: "+port+" is not 0 to 65535")
		call(t, "engine-sim", "--listen", "127.0.0.1:"+port).wants(t, 2, `--listen: "127.0.0.1:`+port+`" has no port from 0 to 65535`)
	}
	f(`--speed: "fast" is not a number`, "--speed", "fast")

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	call(t, "engine-sim", "--port", port).wants(t, 1, "in use", "choose another with --port")
}
