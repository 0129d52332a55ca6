package node

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

// A pool's digest is of what the operator chose: the order of replicas, a default that
// is written out and what differs between hosts are none of it.
func TestDigestIsOfWhatWasChosen(t *testing.T) {
	digest := func(pool string) string {
		t.Helper()
		c, err := load(t, "pools:\n  - {name: chat, model: m, "+pool+"}\n")
		if err != nil {
			t.Fatal(err)
		}
		return c.digests()["chat"]
	}
	two := `replicas: [{url: "http://a:1"}, {url: "http://b:1"}]`
	same := digest(two)
	for _, p := range []string{
		`replicas: [{url: "http://b:1"}, {url: "http://a:1"}]`,
		two + ", policy: ttft, retry: {attempts: 2}, scale: {min: 1, max: 8}",
		two + `, queue: {hold: 0s}`,
	} {
		if digest(p) != same {
			t.Errorf("%s is another one", p)
		}
	}
	for _, p := range []string{
		`replicas: [{url: "http://a:1"}]`, two + ", policy: session", two + ", aliases: [x]", two + ", scale: {min: 2, max: 8}",
		two + ", queue: {hold: 1s}", two + ", queue: {max_inflight: 0}", two + ", slo: {ttft: 3s}",
	} {
		if digest(p) == same {
			t.Errorf("%s is the same", p)
		}
	}
	process := two + `, scale: {min: 1, max: 2, actuator: process, command: [CMD, "{port}"]}`
	if digest(strings.Replace(process, "CMD", "/a/engine", 1)) != digest(strings.Replace(process, "CMD", "/b/engine", 1)) {
		t.Error("where a host keeps its engine makes another pool of it")
	}
}

// What a running router can't take stays as it was, and is named; keys are named by
// their pool or name, wherever in the list they stand.
func TestTakenIsWhatARunningRouterCan(t *testing.T) {
	was, err := load(t, "pools:\n  - {name: a, model: m}\n  - {name: b, model: n}\n")
	if err != nil {
		t.Fatal(err)
	}
	next, err := load(t, `
listen: {api: "127.0.0.1:1"}
log: {level: debug, format: console}
pools:
  - {name: c, model: o, scale: {min: 1, max: 2, actuator: process, command: [x, "{port}"]}}
  - {name: b, model: n, policy: session, engine: vllm}
`)
	if err != nil {
		t.Fatal(err)
	}
	eff := taken(&was, &was, &next)
	if err := eff.Validate(); err != nil {
		t.Fatal(err)
	}
	changed, restart := newOrGone(differing(was.keyed(), eff.keyed()), &was, &eff), differing(eff.keyed(), next.keyed())
	for _, k := range []string{"log.level", "pools.a", "pools.b.policy", "pools.c"} {
		if !slices.Contains(changed, k) {
			t.Errorf("%s is not among %q", k, changed)
		}
	}
	if want := []string{"listen.api", "log.format", "pools.b.engine", "pools.c.scale.actuator", "pools.c.scale.command"}; !slices.Equal(restart, want) {
		t.Errorf("a restart for %q, want %q", restart, want)
	}
	if slices.Contains(changed, "pools.b.model") || eff.Listen.API != was.Listen.API || eff.Pools[1].Engine != "auto" {
		t.Errorf("%q: %+v", changed, eff)
	}
	if d := differing(was.keyed(), was.keyed()); len(d) != 0 {
		t.Errorf("it differs from itself: %q", d)
	}
}

// A replica that comes or goes is one thing, wherever it stands in the list; with a new
// pool its replicas are not told.
func TestReplicaThatComesIsOneThing(t *testing.T) {
	was, err := load(t, "pools:\n  - {name: a, model: m, replicas: [{url: \"http://x:1\"}, {url: \"http://x:10\"}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	next, err := load(t, `
pools:
  - {name: a, model: m, replicas: [{url: "http://y:1"}, {url: "http://x:1", role: both}, {url: "http://x:2"}]}
  - {name: b, model: n, replicas: [{url: "http://z:1"}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	got := newOrGone(differing(was.keyed(), next.keyed()), &was, &next)
	if want := []string{"pools.a.replicas[http://x:10]", "pools.a.replicas[http://x:2]", "pools.a.replicas[http://y:1]", "pools.b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAgreementIsOfAllThatLive(t *testing.T) {
	own, other := map[string]string{"chat": "1"}, map[string]string{"chat": "2"}
	a := &agreement{}
	if a.alike(own) {
		t.Error("nobody was asked")
	}
	a.heard = true
	if !a.alike(own) || len(a.others(own)) != 0 {
		t.Error("a router alone agrees with itself")
	}
	a.pools = map[state.RouterID]map[string]string{"r2": maps.Clone(own), "r3": other}
	if a.alike(own) || !slices.Equal(a.others(own), []state.RouterID{"r3"}) {
		t.Errorf("others %v", a.others(own))
	}
	a.pools["r3"] = own
	a.heard = false
	if a.alike(own) {
		t.Error("one has not answered")
	}
}
