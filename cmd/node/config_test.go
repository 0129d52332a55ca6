package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const minimal = `
pools:
  - name: chat
    model: m
    replicas: [{url: "http://127.0.0.1:8000"}]
`

func load(t *testing.T, text string, env ...string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hearsay.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path, env)
}

func TestMinimalFileGetsDefaults(t *testing.T) {
	c, err := load(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pools[0]
	if p.Policy != "ttft" || p.Engine != "auto" || p.Retry.Attempts != 2 || p.Timeouts.Idle != 30*time.Second ||
		p.Breaker.MaxEjected != 0.5 || p.Scale.Max != 8 || p.Replicas[0].Role != "both" {
		t.Errorf("pool: %+v", p)
	}
	if c.Listen.Admin != "127.0.0.1:8081" || c.API.MaxBody != 64<<20 || c.Node.Name == "" {
		t.Errorf("node: %+v", c)
	}
	if s := p.Spec(); s.UpstreamName() != "m" || s.ScaleMax != 8 || s.FirstByteTimeout != 10*time.Minute {
		t.Errorf("spec: %+v", s)
	}
}

func TestUnitsAndEnvironment(t *testing.T) {
	c, err := load(t, "api: {max_body: 8MiB}\npools:\n  - {name: c, model: m, breaker: {max_ejected: 25%, open: 90s}, heartbeat: 10s}\n  - {name: d, model: n, heartbeat: 0s}\n",
		"HEARSAY_LISTEN_API=127.0.0.1:9", "HEARSAY_CLUSTER_JOIN=a:1, b:2", "HEARSAY_API_MAX_HEADER=4KiB", "HEARSAY_CLUSTER_VOTERS=5", "HEARSAY_API_CONNECTION_MAX_AGE=1m", "HEARSAY_CLUSTER_RAFT_HEARTBEAT_TIMEOUT=2s",
		"HEARSAY_API_DEBUG=true", "HEARSAY_SERVER=http://x", "OTHER=1")
	if err != nil {
		t.Fatal(err)
	}
	if c.API.MaxBody != 8<<20 || c.API.MaxHeader != 4<<10 || c.Pools[0].Breaker.MaxEjected != 0.25 || c.Pools[0].Breaker.Open != 90*time.Second {
		t.Errorf("units: %+v", c)
	}
	if a, b := c.Pools[0].Spec(), c.Pools[1].Spec(); a.Heartbeat != 10*time.Second || b.Heartbeat != 0 {
		t.Errorf("heartbeats: %v, %v", a.Heartbeat, b.Heartbeat)
	}
	if c.Listen.API != "127.0.0.1:9" || len(c.Cluster.Join) != 2 || c.Cluster.Join[1] != "b:2" || c.Cluster.Voters != 5 || c.API.ConnectionMaxAge != time.Minute || !c.API.Debug || c.Cluster.Raft.HeartbeatTimeout != 2*time.Second {
		t.Errorf("environment: %+v", c)
	}
}

func TestFaultsNameTheirPlace(t *testing.T) {
	f := func(name, text string, want ...string) {
		t.Helper()
		_, err := load(t, text)
		if err == nil {
			t.Errorf("%s: accepted", name)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", name, err, w)
			}
		}
	}
	f("misspelt key", "pools:\n  - {name: c, model: m}\nlisten:\n  appi: \":1\"\n", "hearsay.yaml", "line 4", "appi")
	f("missing comma", "listen: {api: \":1\" admin: \":2\"}\n", "line 1")
	f("bad size", "api: {max_body: lots}\n", "line 1", "64MiB")
	f("bad share", "pools:\n  - name: c\n    model: m\n    breaker: {max_ejected: 120%}\n", "line 4", "50%")
	f("bad duration", "pools:\n  - {name: c, model: m, slo: {ttft: soon}}\n", "line 2")
	f("every fault at once", "listen: {api: x}\ncluster: {voters: 2}\npools:\n  - {name: c}\n",
		"has 3 faults", "line 1: listen.api", "host:port", "line 2: cluster.voters", "1, 3 or 5", "line 4: pools[0].model: is missing")
	f("unknown policy", "pools:\n  - {name: c, model: m, policy: best}\n", "line 2: pools[0].policy", "ttft, ")
	f("two pools, one name", "pools:\n  - {name: c, model: m}\n  - {name: c, model: n}\n", "stands twice")
	f("alias of two pools", "pools:\n  - {name: c, model: m, aliases: [x]}\n  - {name: d, model: n, aliases: [x]}\n", `"x" already names pool "c"`)
	f("one address in two pools", "pools:\n  - {name: c, model: m, replicas: [{url: \"http://h:80\"}]}\n  - {name: d, model: n, replicas: [{url: \"http://h\"}]}\n", "is a replica of pools[0] already")
	f("same replica spelt twice", "pools:\n  - {name: c, model: m, replicas: [{url: \"http://h:80\"}, {url: \"HTTP://H/\"}]}\n", "stands twice")
	f("not a URL", "pools:\n  - {name: c, model: m, replicas: [{url: \"h:80\"}]}\n", "http://10.0.0.1:8000")
	f("too soon for an election", "cluster: {raft: {heartbeat_timeout: 100ms}}\n", "line 1: cluster.raft.heartbeat_timeout: is 100ms: 200ms to 10s")
	f("too late for one", "cluster:\n  raft:\n    heartbeat_timeout: 11s\n", "line 3: cluster.raft.heartbeat_timeout: is 11s")
	f("open cluster address", "listen: {cluster: \"0.0.0.0:7946\"}\n", "cluster.secret_file", "insecure")
	f("open admin address", "listen: {admin: \":8081\"}\n", "admin.token_file")
	f("process without command", "pools:\n  - {name: c, model: m, scale: {actuator: process, max: 2}}\n", "scale.command", "{port}")
	f("a port twice", "listen: {api: \":7947\"}\n", "listen.cluster", "port 7947 is listen.api's too")
	f("two pools, one model", "pools:\n  - {name: c, model: m}\n  - {name: d, model: m}\n", "pools[1].model", `"m" already names pool "c"`)
	f("bounds", "pools:\n  - {name: c, model: m, scale: {min: 3, max: 2}}\n", "min 3, max 2")
	f("a budget below the minimum", "pools:\n  - {name: c, model: m, scale: {min: 3, max: 4, budget: 2}}\n", "line 2: pools[0].scale.budget", "is 2, and scale.min of its roles is 3")
	f("a budget without roles", "pools:\n  - {name: c, model: m, replicas: [{url: \"http://h:80\"}], scale: {max: 4, budget: 3}}\n", "pools[0].scale.budget: is 3, and has no effect")
	f("a budget that no role can have", "pools:\n  - {name: c, model: m, scale: {actuator: process, command: [e, \"{port}\"], budget: 3}}\n", "pools[0].scale.budget: is 3, and has no effect")
	f("bounds that may be 0", "pools:\n  - {name: c, model: m, scale: {min: -1, max: 2}}\n", "needs 0 <= min <= max")
	f("a negative budget", "pools:\n  - {name: c, model: m, scale: {budget: -1}}\n", "pools[0].scale.budget")
	f("too much to warm with", "pools:\n  - {name: c, model: m, prewarm: {prefixes: 65}}\n", "line 2: pools[0].prewarm.prefixes", "up to 64")
	f("less than nothing to warm with", "pools:\n  - {name: c, model: m, prewarm: {prefixes: -1}}\n", "pools[0].prewarm.prefixes")
	f("too fast a heartbeat", "pools:\n  - {name: c, model: m, heartbeat: 10ms}\n", "line 2: pools[0].heartbeat", "at least 100ms, or 0")
	f("no patience", "api: {write_stall: 0s}\n", "line 1: api.write_stall", "at least 100ms")
	f("two documents", minimal+"\n---\n"+minimal, "more than one")
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), nil); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("missing file: %v", err)
	}
}

func TestNormalURL(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got, err := NormalURL(in); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	f("http://r1:8000", "http://r1:8000")
	f("http://R1:8000/", "http://r1:8000")
	f("HTTP://r1", "http://r1:80")
	f("https://api.example", "https://api.example:443")
	f("http://[::1]:8000", "http://[::1]:8000")
	for _, bad := range []string{"", "r1:8000", "ftp://r1", "http://", "http://u:p@r1", "http://r1/v1", "http://r1?x=1", "file:///etc/passwd"} {
		if got, err := NormalURL(bad); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("../../deploy/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, f := range files {
		v := &faults{file: f}
		if _, err := read(f, nil, nil, v); err != nil || v.err() != nil {
			t.Error(err, v.err())
		}
	}
}
