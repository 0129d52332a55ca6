package node

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
)

// reloading is a node that does not run, whose configuration a test changes.
type reloading struct {
	*Node
	t    *testing.T
	next Config
}

func newReloading(t *testing.T, pools ...PoolConfig) *reloading {
	t.Helper()
	cfg := Defaults()
	cfg.Node.DataDir, cfg.Pools = t.TempDir(), pools
	r := &reloading{Node: newOnFreePorts(t, cfg), t: t}
	t.Cleanup(r.Close)
	r.next = *r.now()
	r.deps.Load = func() (Config, error) { return r.next, nil }
	return r
}

// reload takes other pools.
func (r *reloading) reload(pools ...PoolConfig) {
	r.t.Helper()
	r.next.Pools = pools
	r.next.Finish()
	if _, err := r.Reload(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// hear has a pool's first source list replicas on loopback, by their ports.
func hear(d *discovery.Pool, ports ...int) {
	var x discovery.Snapshot
	for _, p := range ports {
		x.Replicas = append(x.Replicas, discovery.Found{URL: fmt.Sprintf("http://127.0.0.1:%d", p)})
	}
	d.Report(0, x, time.Now())
	d.Step(time.Now())
}

// want compares a pool's replicas: "port", "port draining"; it gives their slots.
func (r *reloading) want(pool string, replicas ...string) map[state.ReplicaID]state.Slot {
	r.t.Helper()
	var have []string
	slots := map[state.ReplicaID]state.Slot{}
	if p := r.store.View().PoolNamed(pool); p != nil {
		for _, x := range p.Replicas {
			s := strings.TrimPrefix(x.URL, "http://127.0.0.1:")
			if x.Leaving != "" {
				s += " draining"
			}
			have, slots[x.ID] = append(have, s), x.Slot
		}
	}
	if strings.Join(have, ", ") != strings.Join(replicas, ", ") {
		r.t.Errorf("pool %s has %q, want %q", pool, have, replicas)
	}
	return slots
}

func finds(name, file string, static ...string) PoolConfig {
	p := PoolConfig{Name: name, Model: name, Discover: DiscoverConfig{File: file}}
	for _, u := range static {
		p.Replicas = append(p.Replicas, ReplicaConfig{URL: u})
	}
	return p
}

func TestDiscoverIsReloaded(t *testing.T) {
	n := newReloading(t, finds("chat", "one.yaml"))
	first := n.discover.list()[0]
	hear(first, 1001, 1002)
	slots := n.want("chat", "1001", "1002")

	// Another file: the replicas stay until that says what there is.
	n.reload(finds("chat", "two.yaml"))
	second := n.discover.list()[0]
	second.Step(time.Now())
	if now := n.want("chat", "1001", "1002"); !maps.Equal(now, slots) {
		t.Errorf("slots %v, were %v", now, slots)
	}
	hear(first, 1009) // it is over
	n.want("chat", "1001", "1002")
	hear(second, 1002, 1003)
	if now := n.want("chat", "1001 draining", "1002", "1003"); now["127.0.0.1:1002"] != slots["127.0.0.1:1002"] {
		t.Errorf("slots %v, were %v", now, slots)
	}

	// A reload that is not about it changes nothing.
	other := finds("chat", "two.yaml")
	other.Policy = "session"
	n.reload(other)
	if n.discover.list()[0] != second {
		t.Error("it was started anew")
	}

	// No discover any more: what was found drains, and is let go in time.
	n.reload(PoolConfig{Name: "chat", Model: "chat"})
	third := n.discover.list()[0]
	third.Step(time.Now())
	n.want("chat", "1001 draining", "1002 draining", "1003 draining")
	third.Step(time.Now().Add(2 * discovery.DefaultGrace))
	n.want("chat")

	// A fault in one pool's block changes nothing.
	bad := finds("chat", "three.yaml")
	bad.Discover.Kubernetes = KubernetesConfig{Selector: "a=b", Kubeconfig: "/nowhere"}
	n.next.Pools = []PoolConfig{bad}
	n.next.Finish()
	if _, err := n.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "/nowhere") || n.discover.list()[0] != third {
		t.Errorf("%v", err)
	}
}

// Finders that a reload brings are started, and those it takes away end.
func TestDiscoveriesRun(t *testing.T) {
	n := newReloading(t, finds("chat", "one.yaml"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.discover.Run(ctx) }()
	for range 20 {
		n.reload(finds("chat", "two.yaml"), finds("code", "two.yaml"))
		n.reload(finds("code", "one.yaml"))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPoolIsTakenOutAndPutBack(t *testing.T) {
	process := PoolConfig{Name: "own", Model: "own", Scale: ScaleConfig{Min: 1, Max: 2, Actuator: "process", Command: []string{"x", "{port}"}, Dir: t.TempDir()}}
	all := []PoolConfig{finds("chat", "one.yaml"), process}
	n := newReloading(t, all...)
	before := n.digests()
	first := n.discover.list()[0]
	hear(first, 1001)
	n.want("chat", "1001")
	n.reload(PoolConfig{Name: "rest", Model: "rest"})
	if len(n.discover.list()) != 0 {
		t.Error("its discovery goes on")
	}
	if c, err := testutil.GatherAndCount(n.reg, "hearsay_discovery_replicas", "hearsay_discovery_changes_total"); err != nil || c != 0 {
		t.Errorf("%d series of a pool that is gone, %v", c, err)
	}
	hear(first, 1001, 1002)
	n.reload(all...)
	if now := n.digests(); !maps.Equal(now, before) {
		t.Errorf("it runs %v, before it was taken out %v", now, before)
	}
	n.want("chat")
	hear(first, 1001, 1002)
	n.want("chat")
	hear(n.discover.list()[0], 1003)
	n.want("chat", "1003")
}

func TestAllowOfAPoolThatAReloadAdds(t *testing.T) {
	n := newReloading(t, PoolConfig{Name: "chat", Model: "chat"})
	p := PoolConfig{Name: "new", Model: "new", Discover: DiscoverConfig{Allow: []string{"127.0.0.0/8"}}}
	n.reload(PoolConfig{Name: "chat", Model: "chat"}, p)
	if _, err := n.Replica("new", "http://10.0.0.1:80"); err == nil || !strings.Contains(err.Error(), "discover.allow of pool new") {
		t.Error(err)
	}
	if _, err := n.Replica("new", "http://127.0.0.1:80"); err != nil {
		t.Error(err)
	}
	p.Discover.Allow = nil
	n.reload(PoolConfig{Name: "chat", Model: "chat"}, p)
	if _, err := n.Replica("new", "http://10.0.0.1:80"); err != nil {
		t.Error(err)
	}
}

// What a file lists stays in the pool where it is already, and status says so.
func TestReplicaOfAnotherPoolIsNotFound(t *testing.T) {
	n := newReloading(t, finds("a", "a.yaml", "http://127.0.0.1:1001"), finds("b", "b.yaml"))
	a, b := n.discover.list()[0], n.discover.list()[1]
	told := func(ports ...string) {
		t.Helper()
		have := n.discoveryWarnings(time.Now())
		for i, p := range ports {
			if len(have) != len(ports) || !strings.Contains(have[i], p+" is refused: it is a replica of pool a") {
				t.Errorf("%q, want %q", have, ports)
				return
			}
		}
		if len(ports) == 0 && len(have) > 0 {
			t.Errorf("%q", have)
		}
	}
	hear(a)
	hear(b, 1001, 1002)
	n.want("a", "1001")
	n.want("b", "1002")
	told("1001")

	// Of two that find it, the first by name has it, whoever was first.
	hear(a, 1002)
	hear(b, 1001, 1002)
	n.want("a", "1001", "1002")
	n.want("b")
	told("1001", "1002")
	b.Report(0, discovery.Snapshot{Replicas: []discovery.Found{{URL: "http://127.0.0.1:1005", ID: "127.0.0.1:1001"}}}, time.Now())
	b.Step(time.Now())
	n.want("a", "1001", "1002")
	told("1005")

	// One that an operator added to another pool.
	facts := state.NewFacts()
	facts.Index, facts.Replicas["127.0.0.1:1004"] = 1, state.Replica{ID: "127.0.0.1:1004", Pool: "a", URL: "http://127.0.0.1:1004"}
	n.store.SetFacts(facts)
	hear(b, 1004)
	told("1004")

	// Where the other pool has it no more, it is found.
	hear(a)
	hear(b, 1001)
	told("1001")
	n.reload(finds("a", "a.yaml"), finds("b", "b.yaml"))
	b.Step(time.Now())
	n.want("b", "1001")
	told()

	// And what another pool comes to list is given up.
	n.reload(finds("a", "a.yaml", "http://127.0.0.1:1001"), finds("b", "b.yaml"))
	b.Step(time.Now())
	n.want("b")
	told("1001")
}
