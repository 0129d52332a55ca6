package node

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/gateway"
	"github.com/hearsay-llm/hearsay/state"
)

const (
	hashAbc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	hashNil = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

const aPool = "pools: [{name: chat, model: m, replicas: [{url: \"http://127.0.0.1:8000\"}]}]\n"

func TestKeysOfTheConfiguration(t *testing.T) {
	cfg, err := load(t, aPool+`
gateway:
  require_key: true
  keys:
    - {name: web, hash: "`+hashAbc+`"}
    - {name: night, hash: "`+strings.Replace(hashAbc, "ba78", "BA79", 1)+`", tenant: web, priority: low, weight: 1, max_parallel: 4}
    - {name: vip, hash: "`+strings.Replace(hashAbc, "ba78", "ba80", 1)+`", priority: high, weight: 2.5}
`)
	if err != nil {
		t.Fatal(err)
	}
	k := cfg.Gateway.keys()
	if !k.RequireKey || len(k.Keys) != 3 {
		t.Fatalf("%+v", k)
	}
	want := gateway.Key{Name: "web", Digest: gateway.DigestOf([]byte("abc")), Tenant: "web", Cap: state.BandNormal, Weight: 1}
	if k.Keys[0] != want {
		t.Errorf("%+v, want %+v", k.Keys[0], want)
	}
	if x := k.Keys[1]; x.Tenant != "web" || x.Cap != state.BandLow || x.MaxParallel != 4 || x.Digest[1] != 0x79 {
		t.Errorf("%+v", x)
	}
	if x := k.Keys[2]; x.Cap != state.BandHigh || x.Weight != 2.5 || x.MaxParallel != 0 {
		t.Errorf("%+v", x)
	}
	shown, _ := json.Marshal(asMap(cfg))
	if s := string(shown); !strings.Contains(s, `"hash":"sha256:ba7816bf..."`) || strings.Contains(s, hashAbc[7:30]) {
		t.Errorf("shown as %s", s)
	}
}

func TestFaultsOfKeys(t *testing.T) {
	f := func(name, text string, want ...string) {
		t.Helper()
		got := faultsOf(t, aPool+text)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	const how = `want sha256: and the 64 hex digits of printf %s "$KEY" | sha256sum`
	const names = `want 1 to 64 letters, digits, '.', '_', '@' or '-', of which the first is a letter or a digit`
	f("no key at all", "gateway: {require_key: true}\n",
		"line 2: gateway.require_key: is true and gateway.keys is empty, so that nobody could ask for anything: add a key")
	f("a key in the place of its hash", "gateway:\n  keys:\n    - name: a\n      hash: sk-very-secret-0123456789\n",
		"line 5: gateway.keys[0].hash: has 25 characters and does not begin with 'sha256:': "+how)
	f("what is wrong with each", `gateway:
  keys:
    - {hash: "`+hashAbc+`"}
    - name: b
    - {name: "c d", hash: "`+hashNil+`", priority: urgent}
    - {name: e, hash: "`+strings.ToUpper(hashAbc[7:])+`"}
    - {name: f, hash: "`+hashAbc[:70]+`"}
    - {name: g, hash: "`+hashAbc+`", max_parallel: -1, weight: -2}
    - {name: g, hash: "`+strings.Replace(hashAbc, "ba", "cd", 1)+`", weight: 0, tenant: "x\ty"}
    - {name: other, hash: "`+strings.Replace(hashAbc, "ba", "ce", 1)+`", tenants: x}
`,
		"line 4: gateway.keys[0].name: is missing",
		"line 5: gateway.keys[1].hash: is missing: "+how,
		`line 6: gateway.keys[2].name: "c d" is no name: `+names,
		"line 6: gateway.keys[2].hash: is that of an empty text: $KEY was not set when it was made",
		`line 6: gateway.keys[2].priority: "urgent" is unknown: use high, normal, low`,
		"line 7: gateway.keys[3].hash: has 64 characters and does not begin with 'sha256:': "+how,
		"line 8: gateway.keys[4].hash: has 63 characters behind 'sha256:', not 64: "+how,
		"line 9: gateway.keys[5].hash: stands twice: gateway.keys[0] is the same key",
		"line 9: gateway.keys[5].weight: is -2: more than 0 and at most 1000",
		"line 9: gateway.keys[5].max_parallel: is -1: 1 or more, or 0 for no limit",
		"line 10: gateway.keys[6].weight: is 0: give more, or leave it out for the default (1)",
		`line 10: gateway.keys[6].name: "g" stands twice: it is gateway.keys[5]'s too`,
		`line 10: gateway.keys[6].tenant: "x\ty" is no name: `+names,
		"line 11: gateway.keys[7].tenants: is no key: did you mean tenant?",
		"line 11: gateway.keys[7].name: is other, which metrics call all keys beyond the first hundred: choose another")
	f("a tenant with two weights", `gateway:
  keys:
    - {name: a, hash: "`+hashAbc+`", weight: 2}
    - {name: b, hash: "`+strings.Replace(hashAbc, "ba", "cd", 1)+`", tenant: a}
`, `line 4: gateway.keys[1].weight: is 1, and 2 in gateway.keys[0] of the same tenant "a": a tenant has one weight`)
}

func TestFaultsOfIsolation(t *testing.T) {
	f := func(pool string, want ...string) {
		t.Helper()
		got := faultsOf(t, "pools:\n  - {name: chat, model: m, "+pool+"}\n")
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q, want %q", pool, got, want)
		}
	}
	f("isolation: tenant")
	f("isolation: tenant, engine: sglang")
	f("isolation: users", `line 2: pools[0].isolation: "users" is unknown: use none, tenant`)
	for _, engine := range []string{"llamacpp", "openai", "anthropic"} {
		f("isolation: none, engine: " + engine)
		f("isolation: tenant, engine: "+engine, "line 2: pools[0].isolation: is tenant, and engine "+engine+" can't keep tenants apart in its cache: use vllm, sglang or auto")
	}
}

// A key's list is the file's alone; what else is in the section may come from the
// environment.
func TestGatewayOfTheEnvironment(t *testing.T) {
	text := aPool + "gateway: {keys: [{name: a, hash: \"" + hashAbc + "\"}]}\n"
	if cfg, err := load(t, text, "HEARSAY_GATEWAY_REQUIRE_KEY=true"); err != nil || !cfg.Gateway.RequireKey {
		t.Errorf("%v %v", cfg.Gateway.RequireKey, err)
	}
	for _, env := range []string{"HEARSAY_GATEWAY_KEYS=a", "HEARSAY_GATEWAY_KEYS[0]_NAME=b"} {
		if _, err := load(t, text, env); err == nil {
			t.Errorf("%s is taken", env)
		}
	}
}
