package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestWebhookKeysAreChecked(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\na second secret, as it is written\n")
	f := func(webhook string, want ...string) {
		t.Helper()
		c, err := load(t, "pools:\n  - name: c\n    model: m\n    scale:\n      actuator: webhook\n      max: 2\n      webhook: {"+webhook+"}\n")
		if err == nil && len(want) == 0 {
			if c.Pools[0].Scale.Webhook.Timeout != 5*time.Second {
				t.Errorf("%+v", c.Pools[0].Scale.Webhook)
			}
			return
		}
		if err == nil {
			t.Errorf("%s: accepted", webhook)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", webhook, err, w)
			}
		}
		if len(want) == 0 || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", webhook, err)
		}
	}
	f(`url: "https://scaler:1/x", secret_file: ` + good)
	f("", "2 faults", "scale.webhook.url: is missing", "scale.webhook.secret_file: is missing")
	f(`url: "scaler:1", secret_file: `+good, "is no URL such as")
	f(`url: "ftp://scaler", secret_file: `+good, "is no URL such as")
	f(`url: "http://me:hush@scaler", secret_file: `+good, "holds credentials")
	f(`url: "http://scaler", tls: {ca: x}, secret_file: `+good, "the URL is http", "x does not exist")
	f(`url: "https://scaler", tls: {cert: x}, secret_file: `+good, "one of cert and key")
	f(`url: "https://scaler", tls: {ca: `+good+`}, secret_file: `+good, "scale.webhook.tls: can't be used", "holds no certificate")
	f(`url: "https://scaler", secret_file: `+filepath.Join(dir, "none"), "none does not exist", "openssl rand -hex 32")
	f(`url: "https://scaler", secret_file: `+file("short", "hush"), "has fewer than 16 bytes")
	f(`url: "https://scaler", secret_file: `+file("odd", "whsec_hush-hush-hush!"), "line 1 of", "is not base64")
	f(`url: "https://scaler", timeout: -1s, secret_file: `+good, "timeout: is -1s")
}

// Another secret is taken at the next call, without a restart.
func TestWebhookSecretIsReadAtEachCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	w := WebhookConfig{SecretFile: path}
	for _, s := range []string{"the first secret, long enough", "the second secret, long enough"} {
		if err := os.WriteFile(path, []byte(s+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if keys, err := w.secrets(); err != nil || len(keys) != 1 || string(keys[0]) != s {
			t.Errorf("%q, %v", keys, err)
		}
	}
}

// A receiver can't take over what other pools have, nor name what its own may not have.
func TestWebhookMayNotTakeOthersReplicas(t *testing.T) {
	cfg := Defaults()
	cfg.Node.DataDir = t.TempDir()
	cfg.Pools = []PoolConfig{
		{Name: "chat", Model: "m", Replicas: []ReplicaConfig{{URL: "http://10.0.0.1:8000"}}, Discover: DiscoverConfig{Allow: []string{"10.0.0.0/8"}}},
		{Name: "code", Model: "n", Replicas: []ReplicaConfig{{URL: "http://10.0.0.2:8000"}}},
	}
	n := newOnFreePorts(t, cfg)
	defer n.Close()
	facts := n.store.View().Facts.Clone()
	facts.Index++
	facts.Replicas["webhook:code:a"] = state.Replica{ID: "webhook:code:a", Pool: "code", URL: "http://10.0.0.3:8000", Source: state.SourceCommitted}
	facts.Replicas["webhook:chat:a"] = state.Replica{ID: "webhook:chat:a", Pool: "chat", URL: "http://10.0.0.4:8000", Source: state.SourceCommitted}
	n.store.SetFacts(facts)
	f := func(raw, want string) {
		t.Helper()
		u, err := n.webhookReplica("chat", raw)
		if want == "" && (err != nil || u != strings.TrimSuffix(raw, "/")) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %s, %v, want %q", raw, u, err, want)
		}
	}
	f("http://10.0.0.4:8000/", "")
	f("http://10.0.0.5:8000", "")
	f("http://10.0.0.2:8000/", "http://10.0.0.2:8000 is a replica of pool code already: start the instance at another address")
	f("https://10.0.0.2:8000", "pool code")
	f("http://10.0.0.1:8000/", "http://10.0.0.1:8000 is a replica that the configuration of pool chat lists")
	f("https://10.0.0.1:8000", "that the configuration of pool chat lists")
	f("http://10.0.0.3:8000", "pool code")
	f("http://192.168.0.1:8000", "discover.allow of pool chat")
	f("10.0.0.5", "is not a URL such as")
}

// Where a host has its files makes no other pool; whom all call does. What a running
// router has of it stays until a restart.
func TestWebhookInDigestAndReload(t *testing.T) {
	pool := func(w WebhookConfig) *Config {
		c := &Config{Pools: []PoolConfig{{Name: "c", Model: "m", Scale: ScaleConfig{Max: 2, Actuator: "webhook", Webhook: w}}}}
		c.Finish()
		return c
	}
	digest := func(w WebhookConfig) string { return pool(w).digests()["c"] }
	a := WebhookConfig{URL: "https://scaler", SecretFile: "/a"}
	b := a
	b.SecretFile, b.TLS.CA, b.Timeout = "/b", "/ca", time.Second
	if digest(a) != digest(b) {
		t.Error("files make another pool")
	}
	b.URL = "https://other"
	if digest(a) == digest(b) {
		t.Error("another receiver is the same pool")
	}
	eff := taken(pool(a), pool(a), pool(b))
	if got := eff.Pools[0].Scale.Webhook; got.URL != a.URL || got.SecretFile != "/a" {
		t.Errorf("a reload takes %+v", got)
	}
	was := &Config{Pools: []PoolConfig{{Name: "other", Model: "n"}}}
	was.Finish()
	a.Timeout = time.Second
	eff = taken(was, was, pool(a))
	if s := eff.Pools[0].Scale; s.Actuator != state.DryRun || s.Webhook != (WebhookConfig{Timeout: defaultWebhookTimeout}) {
		t.Errorf("a new pool has %+v", s)
	}
}
