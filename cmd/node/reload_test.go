package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// A file is replaced by worse and worse ones: each leaves what runs as it is, whole,
// and says where its fault is. The next good one is taken.
func TestBadFilesChangeNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hearsay.yaml")
	write := func(text string) {
		t.Helper()
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write(minimal)
	cfg, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Node.DataDir = t.TempDir()
	var log bytes.Buffer
	n := newOnFreePorts(t, cfg)
	defer n.Close()
	ours := *n.now()
	n.log = zerolog.New(&log)
	n.deps.Load = func() (Config, error) {
		next, err := Load(path, nil)
		next.Node, next.Listen = ours.Node, ours.Listen // of the test
		return next, err
	}
	before := n.now()
	pools := n.store.View().Pools
	five := "log: {level: debug}\ngateway: {keys: [{name: app, hash: \"sha256:" + strings.Repeat("ab", 32) + "\"}]}\n" +
		"pools:\n  - {name: chat, model: m, policy: session, aliases: [x], retry: {attempts: ATTEMPTS}}\n"
	for _, bad := range []struct{ text, at string }{
		{"pools:\n  - {name: chat model: m}\n", "line 2:"},
		{strings.Replace(five, "ATTEMPTS", "-3", 1), "pools[0].retry.attempts"},
		{five[:strings.Index(five, "policy")], "line 4:"},
		{"", "pools: is missing"},
		{"deleted", "no such file"},
	} {
		log.Reset()
		if bad.text == "deleted" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else {
			write(bad.text)
		}
		_, err := n.Reload(t.Context())
		var ref *state.Refusal
		if !errors.As(err, &ref) || !strings.Contains(ref.Reason, bad.at) {
			t.Errorf("%q: %v, want a refusal that names %s", bad.text, err, bad.at)
		}
		if n.now() != before || &n.store.View().Pools[0] != &pools[0] || n.gate.HasKeys() {
			t.Errorf("%q: part of it was taken", bad.text)
		}
		if why := n.configWarnings(); len(why) == 0 || !strings.Contains(why[0], bad.at) || !strings.Contains(log.String(), bad.at) {
			t.Errorf("%q: warns %q, logs %s", bad.text, why, log.String())
		}
	}
	if c := testutil.ToFloat64(n.reloads.WithLabelValues("refused")); c != 5 {
		t.Errorf("%v refusals counted", c)
	}

	// A good one, put in place as a link, as mounted configurations are.
	good := filepath.Join(filepath.Dir(path), "good.yaml")
	if err := os.WriteFile(good, []byte(strings.Replace(five, "ATTEMPTS", "3", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(good, path); err != nil {
		t.Fatal(err)
	}
	level := zerolog.GlobalLevel()
	defer zerolog.SetGlobalLevel(level)
	r, err := n.Reload(t.Context())
	if err != nil || len(r.Restart) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, k := range []string{"log.level", "gateway.keys.app", "pools.chat.policy", "pools.chat.retry.attempts"} {
		if !slices.Contains(r.Changed, k) {
			t.Errorf("%s is not among %q", k, r.Changed)
		}
	}
	p := n.store.View().PoolNamed("chat")
	if p == nil || p.Spec.Policy != "session" || p.Spec.RetryAttempts != 3 || len(p.Replicas) != 0 || !n.gate.HasKeys() || zerolog.GlobalLevel() != zerolog.DebugLevel {
		t.Errorf("%+v", p)
	}
	if why := n.configWarnings(); len(why) > 0 {
		t.Errorf("it still warns: %q", why)
	}

	// A replica that changes its pool is one that is known.
	write("pools:\n  - name: chat\n    model: m\n    replicas: [{url: \"http://127.0.0.1:8000\"}]\n  - {name: code, model: n}\n")
	if _, err := n.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	slot := n.store.View().Replica("127.0.0.1:8000").Slot
	write("pools:\n  - {name: chat, model: m}\n  - name: code\n    model: n\n    replicas: [{url: \"http://127.0.0.1:8000\"}]\n")
	if _, err := n.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := n.store.View().Replica("127.0.0.1:8000"); r == nil || r.Pool != "code" || r.Slot != slot {
		t.Errorf("%+v, was at slot %v", r, slot)
	}
}
