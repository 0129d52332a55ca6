package main

import (
	"path/filepath"
	"testing"
)

func TestConfigCheck(t *testing.T) {
	good := writeTemp(t, "good.yaml", `
node: {name: r1}
pools:
  - name: chat
    model: llama
    replicas: [{url: "http://127.0.0.1:8000"}, {url: "http://127.0.0.1:8001"}]
`)
	call(t, "config", "check", good).wants(t, 0, good, "is valid", "1 pool, 2 static replicas")

	f := func(name, text string, want ...string) {
		t.Helper()
		path := writeTemp(t, name+".yaml", text)
		call(t, "config", "check", path).wants(t, 1, append(want, path)...)
	}
	f("unknown-key", "node: {name: r1}\nlisten:\n  apj: \":8080\"\n", "line 3", "apj")
	f("unknown-section", "node: {name: r1}\n\nnodes: {}\n", "line 3", "nodes")
	f("wrong-type", "node: {name: r1}\ncluster:\n  voters: many\n", "line 3", "many")
	f("no-yaml", "node: {name: r1\npools: [", "line")
	f("bad-size", "api:\n  max_body: huge\n", "line 2", "huge")
	f("several-faults", "cluster: {voters: 2}\npools:\n  - name: chat\n    policy: best\n    replicas: [{url: \"ftp://h\"}]\n",
		"has 4 faults", "line 1: cluster.voters", "pools[0].model", "pools[0].policy", "line 5: pools[0].replicas[0].url")
	f("beyond-loopback", "listen: {cluster: \"0.0.0.0:7946\", admin: \"0.0.0.0:8081\"}\n", "cluster.secret_file", "admin.token_file")

	call(t, "config", "check", filepath.Join(t.TempDir(), "none.yaml")).wants(t, 1, "none.yaml")
	t.Setenv("HEARSAY_LISTEN_APJ", ":1")
	call(t, "config", "check", good).wants(t, 1, "HEARSAY_LISTEN_APJ", "not a configuration key")
}

func TestServeRefusesABadConfiguration(t *testing.T) {
	bad := writeTemp(t, "bad.yaml", "node:\n  nome: r1\n")
	call(t, "serve", "--config", bad).wants(t, 1, "line 2", "nome")
	call(t, "serve", "--replica", "ftp://h", "--data-dir", t.TempDir()).wants(t, 2, "--replica: pools[0].replicas[0].url", "ftp://h")
	call(t, "serve", "--replica", "http://127.0.0.1:9", "--join", "nohost", "--data-dir", t.TempDir()).wants(t, 2, "--join: cluster.join[0]", "nohost")
	t.Setenv("HEARSAY_CLUSTER_JOIN", "a")
	call(t, "serve", "--replica", "http://127.0.0.1:9", "--data-dir", t.TempDir()).wants(t, 1, `HEARSAY_CLUSTER_JOIN: cluster.join[0]: "a" is not host:port`)
}
