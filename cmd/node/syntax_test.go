package node

import (
	"strings"
	"testing"
)

// Faults of YAML's syntax are told on their line.
func TestSyntaxFaultsNameTheirLine(t *testing.T) {
	f := func(name, text, want string) {
		t.Helper()
		got := faultsOf(t, text)
		if len(got) == 0 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	const file = `# a router
node:
  name: r1
listen:
  api: ":8080"
  admin: "127.0.0.1:8081"
pools:
  - name: chat
    model: m
    policy: ttft
    slo: {ttft: 2s}
    replicas:
      - {url: "http://127.0.0.1:8000"}
      - {url: "http://127.0.0.1:8001"}
    heartbeat: 10s
`
	change := func(from, to string) string { return strings.Replace(file, from, to, 1) }
	f("a brace that is not closed", change(`8001"}`, `8001"`), "line 14: not YAML, here or below: ")
	f("the same at the end", file+"    breaker: {failures: 5\n", "line 16: not YAML")
	f("a quote that is not closed", change(`:8081"`, `:8081`), "line 6: not YAML")
	f("a space too few", change("    heartbeat", "   heartbeat"), "line 15: not YAML")
	f("a space too many", change("    heartbeat", "     heartbeat"), "line 15: not YAML")
	f("a colon too many", change("name: r1", "name: r1: r2"), "line 3: not YAML")
	f("of three lines the last", "node:\n  name: r1\n data_dir: x\n", "line 3: not YAML")
	f("a tab", change("    policy", "\t  policy"), "line 10: not YAML, here or below: a tab stands where spaces are expected")
	f("a tab after spaces", change("    policy", "  \tpolicy"), "line 10: not YAML, here or below: a tab ")
	f("a missing comma in a list of several lines", "node: {\n  name: r1,\n  data_dir: x\n  name: y\n}\n", "line 1: not YAML, here or below (noticed near line 3): ")
	f("an anchor that is not there", change("ttft\n", "*no\n"), "line 10: not YAML, here or below: unknown anchor")
	f("a control character", change("r1", "r\x01"), "line 3: not YAML")
	f("a second document", file+"---\nnode: [\n", "line 17: not YAML")
	f("no line end", "node: [", "line 1: not YAML")
}
