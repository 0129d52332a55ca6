package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/hearsay-llm/hearsay/"

// allowed is the import table of ARCHITECTURE.md: which packages of ours each
// area may import. A path covers the packages below it; one marked with = is that
// package alone.
var allowed = map[string][]string{
	"cmd/hearsay":        {"cmd/node", "proxy", "routing", "cluster", "autoscale", "state", "test/enginesim", "test/traces", "test/replay", "test/whatif"},
	"cmd/node":           {"proxy", "routing", "cluster", "autoscale", "state"},
	"proxy":              {"proxy", "routing", "state"},
	"proxy/console":      {"routing", "state"},
	"proxy/api":          {"state"},
	"proxy/api/messages": {"=proxy/api", "state"},
	"proxy/sse":          {"state"},
	"proxy/engine":       {"state"},
	"proxy/gateway":      {"state"},
	"proxy/queue":        {"state"},
	"routing":            {"state"},
	"routing/balance":    {"state"},
	"cluster":            {"state"},
	"cluster/discovery":  {"deploy/kube", "state"},
	"autoscale":          {"state"},
	"autoscale/actuator": {"deploy/kube", "state"},
	"deploy/kube":        {"=state"},
	"state":              {},
	"state/prefix":       {"=state", "state/prefix"},
	"state/sketch":       {"=state", "=state/prefix"},
	"state/wire":         {"=state", "=state/prefix", "=state/sketch"},
}

// exact rows are for the package itself only, not for those below it.
var exact = map[string]bool{"proxy": true, "routing": true, "state": true, "routing/balance": true}

// confined names third-party packages whose types stay in one place.
var confined = map[string][]string{
	"github.com/valyala/fasthttp":     {"proxy"},
	"github.com/hashicorp/memberlist": {"cluster/gossip"},
	"github.com/hashicorp/raft":       {"cluster/consensus"},
	"github.com/hashicorp/raft-wal":   {"cluster/consensus"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// row finds the table's row for a package: the longest path that covers it.
func row(path string) (string, bool) {
	for p := path; p != ""; {
		if _, ok := allowed[p]; ok && (p == path || !exact[p]) {
			return p, true
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			break
		}
		p = p[:i]
	}
	return "", false
}

func covers(prefix, path string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func permitted(from, to string) bool {
	r, ok := row(from)
	if !ok {
		return false
	}
	for _, a := range allowed[r] {
		if one, ok := strings.CutPrefix(a, "="); (ok && one == to) || covers(a, to) {
			return true
		}
	}
	return false
}

func TestImportLaw(t *testing.T) {
	pkgs := list(t)
	if len(pkgs) < 5 {
		t.Fatalf("found only %d packages", len(pkgs))
	}
	for _, p := range pkgs {
		from := strings.TrimPrefix(p.ImportPath, module)
		if covers("test", from) {
			continue // tests may look at everything
		}
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module); ours {
				if !permitted(from, to) {
					t.Errorf("%s imports %s, which the import law forbids", from, to)
				}
				continue
			}
			for lib, homes := range confined {
				if !covers(lib, imp) {
					continue
				}
				ok := false
				for _, h := range homes {
					ok = ok || from == h
				}
				if !ok {
					t.Errorf("%s imports %s, whose types stay in %s", from, imp, strings.Join(homes, " and "))
				}
			}
		}
	}
}

func TestLawRefusesWhatItMust(t *testing.T) {
	f := func(from, to string, want bool) {
		t.Helper()
		if got := permitted(from, to); got != want {
			t.Errorf("%s -> %s: permitted = %v, want %v", from, to, got, want)
		}
	}
	f("proxy", "routing", true)
	f("proxy", "proxy/sse", true)
	f("proxy/console", "routing", true)
	f("proxy/sse", "routing", false)
	f("proxy/api/messages", "proxy/api", true)
	f("proxy/api/messages", "proxy/sse", false)
	f("routing", "proxy", false)
	f("routing/balance", "routing", false)
	f("cluster/gossip", "cluster/mesh", false)
	f("cluster/gossip", "state/wire", true)
	f("cluster/observe", "proxy/engine", false)
	f("autoscale", "cluster/consensus", false)
	f("autoscale/actuator", "state", true)
	f("autoscale/actuator", "autoscale", false)
	f("autoscale/actuator", "deploy/kube", true)
	f("autoscale", "deploy/kube", false)
	f("cluster/gossip", "deploy/kube", false)
	f("deploy/kube", "state", true)
	f("deploy/kube", "cluster/discovery", false)
	f("state", "state/sketch", false)
	f("state/sketch", "state/wire", false)
	f("state/wire", "state/sketch", true)
	f("cmd/node", "test/enginesim", false)
	f("cmd/hearsay", "test/enginesim", true)
	f("cmd/hearsay", "test/harness", false)
	f("state/prefix", "state/sketch", false)
	f("util", "state", false)
}
