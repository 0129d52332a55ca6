package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/proxy/console"
)

func TestSnapshotIsSavedAndRestored(t *testing.T) {
	newRig(t)
	file := filepath.Join(t.TempDir(), "facts.json")
	call(t, "scale", "chat", "--to", "3").wants(t, 0)
	call(t, "snapshot", "save", file).wants(t, 0, file, "bytes")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := consensus.DecodeSaved(b)
	if err != nil || len(f.Targets) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	call(t, "scale", "chat", "--to", "4").wants(t, 0)
	call(t, "snapshot", "restore", file).wants(t, 0, file+" was restored", "facts at")
	if p := isJSON[[]console.Pool](t, call(t, "scale", "-o", "json")); p[0].Target != 3 {
		t.Errorf("the target is %d", p[0].Target)
	}
	foreign := writeTemp(t, "foreign.json", strings.Replace(string(b), f.ClusterID, "another-one", 1))
	call(t, "snapshot", "restore", foreign).wants(t, 1, "of cluster another-one", "--force")
	call(t, "snapshot", "restore", foreign, "--force").wants(t, 0, "restored")
	call(t, "snapshot", "restore", writeTemp(t, "half.json", string(b[:len(b)/2]))).wants(t, 1, "read snapshot", "only a part of one")
	call(t, "snapshot", "restore", writeTemp(t, "long.json", strings.Repeat(" ", 80<<20))).wants(t, 1, "the snapshot is larger than ", " MiB")
	call(t, "snapshot", "restore", file+".none").wants(t, 1, "no such file")
	call(t, "snapshot", "save", filepath.Join(file, "no", "dir")).wants(t, 1)
	call(t, "snapshot", "save").wants(t, 2)
	call(t, "snapshot", "save", file, "--data-dir", file+".none").wants(t, 1, "no such file")
	empty := t.TempDir() // no router's, by mistake
	call(t, "snapshot", "save", file, "--data-dir", empty).wants(t, 1, empty+" holds no committed facts")
	call(t, "snapshot", "restore", file, "--data-dir", empty).wants(t, 1, empty+" is no router's data directory", "--force")
	if _, err := os.Stat(filepath.Join(empty, "raft")); err == nil {
		t.Error("a directory raft was made")
	}
	call(t, "snapshot", "restore", file, "--data-dir", empty, "--force").wants(t, 0, "the only voter of cluster "+f.ClusterID)
}

func TestReloadSaysWhatItTook(t *testing.T) {
	newRig(t)
	call(t, "reload").wants(t, 0, "taken: pools.chat.policy", "needs a restart: api.max_connections")
	call(t, "reload").wants(t, 0, "nothing to take", "needs a restart")
	if r := isJSON[console.Reloaded](t, call(t, "reload", "-o", "json")); len(r.Changed) != 0 || r.Config.Digest == "" {
		t.Errorf("%+v", r)
	}
	call(t, "status").wants(t, 0, "config   ")
	call(t, "reload", "now").wants(t, 2)
}

func TestOnlyRouterLeaves(t *testing.T) {
	newRig(t)
	call(t, "leave").wants(t, 0, "rig has left the cluster and stops", "no router is left to take requests")
	within(t, "it has stopped", func() bool { return call(t, "status").code == 1 })
}

func TestKeyringNeedsASecret(t *testing.T) {
	newRig(t)
	call(t, "keyring", "list").wants(t, 1, "no shared secret is in use", "cluster.secret_file")
	call(t, "keyring", "add").wants(t, 1, "no shared secret is in use")
	call(t, "keyring", "use").wants(t, 2, "FINGERPRINT")
	call(t, "keyring").wants(t, 0, "add", "use", "remove", "list")
	var b strings.Builder
	a := &admin{output: outputTable}
	if err := printKeys(&b, a, nil, []console.Keys{{Name: "r1", Keys: []string{"0a", "0b"}}, {Name: "r2", Away: true, Error: "it is away"}}); err != nil {
		t.Fatal(err)
	}
	if want := "ROUTER  KEYS   NOTE"; !strings.HasPrefix(b.String(), want) || !strings.Contains(b.String(), "0a 0b") || !strings.Contains(b.String(), "it is away") {
		t.Errorf("%s", b.String())
	}
	if strings.Contains(b.String(), "added") {
		t.Errorf("nothing was added: %s", b.String())
	}
	b.Reset()
	if err := printKeys(&b, a, nil, []console.Keys{{Name: "r1", Keys: []string{"0a", "0b"}, Added: "0b"}, {Name: "r2", Keys: []string{"0a"}, Error: "read-only"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"r1      0a 0b (added)  -", "r2      0a ", "\nonce all have it: hearsay keyring use 0b\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in:\n%s", want, b.String())
		}
	}
}
