package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
)

func TestDiscoveryThatCannotBe(t *testing.T) {
	f := func(keys string, want ...string) {
		t.Helper()
		got := faultsOf(t, "pools: [{name: chat, model: m, discover: {"+keys+"}}]\n")
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", keys, got, want)
			return
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s: %q, want %q", keys, got, want)
			}
		}
	}
	f("file: x.yaml")
	f("file: x.yaml, dns: {name: a, port: 1}, kubernetes: {selector: a=b}, allow: [10.0.0.0/8, .svc], grace: 2m, keep: 1m")
	f("dns: {name: a, type: srv, scheme: https, role: decode, every: 1m, server: \"127.0.0.1:53\"}")
	f("kubernetes: {inference_pool: p, kubeconfig: k, context: c, namespace: n}")
	f("kubernetes: {service: s, port: http}")
	f("allow: [\"10.0.0.0/33\"]", "discover.allow: \"10.0.0.0/33\" is no network")
	f("file: x, grace: -1s", "discover.grace: is -1s")
	f("dns: {name: a}", "dns.port: is 0: the replicas' port")
	f("dns: {port: 1}", "dns.name: is missing")
	f("dns: {name: a, type: srv, port: 1}", "dns.port: is 1: SRV records have ports")
	f("dns: {name: a, port: 1, type: mx}", "dns.type: \"mx\" is unknown")
	f("dns: {name: a, port: 1, every: 10ms}", "dns.every: is 10ms")
	f("dns: {name: a, port: 1, server: x}", "dns.server: \"x\" is not host:port")
	f("kubernetes: {port: http}", "kubernetes: lacks selector")
	f("kubernetes: {selector: a, service: b}", "kubernetes: has 2 of")
	f("kubernetes: {selector: a, port: \"70000\"}", "kubernetes.port: is 70000")
	f("kubernetes: {inference_pool: a, port: http}", "kubernetes.port: is \"http\": an InferencePool")
	f("kubernetes: {selector: a, context: c}", "kubernetes.context")
}

// A pool with a role of one kind may find the other one.
func TestDiscoveryMayFindTheOtherRole(t *testing.T) {
	if got := faultsOf(t, "pools: [{name: chat, model: m, engine: vllm, replicas: [{url: \"http://a:1\", role: prefill}], discover: {file: x}}]\n"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// What is found, what the file of the configuration names and what operators add are
// one list, in which an address stands once.
func TestDiscoveredBesideOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replicas.yaml")
	if err := os.WriteFile(path, []byte("- {url: http://127.0.0.1:1001, id: gpu-1}\n- http://127.0.0.1:1002\n- http://169.254.169.254\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Defaults()
	cfg.Node.DataDir = t.TempDir()
	cfg.Pools = []PoolConfig{{
		Name: "chat", Model: "m", Replicas: []ReplicaConfig{{URL: "http://127.0.0.1:1001"}, {URL: "http://127.0.0.1:1003"}},
		Discover: DiscoverConfig{File: path, Allow: []string{"127.0.0.0/8"}},
	}}
	n := newOnFreePorts(t, cfg)
	defer n.Close()
	if ok, why := n.Ready(); ok || !strings.Contains(strings.Join(why, ";"), "what discovery finds for pool chat") {
		t.Errorf("%v %q", ok, why)
	}
	d := n.discover.list()[0]
	list, err := discovery.ParseFile([]byte("- {url: http://127.0.0.1:1001, id: gpu-1}\n- http://127.0.0.1:1002\n- http://169.254.169.254\n"))
	if err != nil {
		t.Fatal(err)
	}
	d.Report(0, discovery.Snapshot{Replicas: list}, time.Now())
	d.Step(time.Now())
	want := func(ids ...string) {
		t.Helper()
		var have []string
		for _, r := range n.store.View().PoolNamed("chat").Replicas {
			have = append(have, string(r.ID)+" "+string(r.Source))
		}
		if strings.Join(have, ", ") != strings.Join(ids, ", ") {
			t.Errorf("%q, want %q", have, ids)
		}
	}
	want("127.0.0.1:1002 discovery", "127.0.0.1:1003 static", "gpu-1 discovery")
	if w := strings.Join(n.discoveryWarnings(time.Now()), "\n"); !strings.Contains(w, "169.254.169.254 is refused") {
		t.Errorf("%q", w)
	}
	facts := state.NewFacts()
	added, err := n.Replica("chat", "HTTP://127.0.0.1:1001/")
	if err != nil {
		t.Fatal(err)
	}
	facts.Index, facts.Replicas[added.ID] = 1, added
	n.store.SetFacts(facts)
	want("127.0.0.1:1001 committed", "127.0.0.1:1002 discovery", "127.0.0.1:1003 static")
	if _, err := n.Replica("chat", "http://10.0.0.1:80"); err == nil || !strings.Contains(err.Error(), "discover.allow of pool chat") {
		t.Error(err)
	}
}
