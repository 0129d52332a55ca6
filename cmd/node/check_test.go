package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A check looks at files that a router looks for only once it runs.
func TestCheckReadsWhatDiscoveryNames(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := func(name, cluster, user string) string {
		t.Helper()
		return put(name, `
current-context: c
contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"`+cluster+`}}]
users: [{name: u, user: {`+user+`}}]
`)
	}
	none := filepath.Join(dir, "none")
	f := func(discover string, want ...string) {
		t.Helper()
		path := put("hearsay.yaml", "node: {name: r1, data_dir: "+dir+"}\npools:\n  - name: chat\n    model: m\n    discover: "+discover+"\n")
		_, err := Check(path, nil)
		if len(want) == 0 {
			if err != nil {
				t.Errorf("%s: %v", discover, err)
			}
			return
		}
		for _, w := range append(want, "line 5: pools[0].discover.") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", discover, err, w)
			}
		}
		if _, err := Load(path, nil); err != nil {
			t.Errorf("a router does not start: %v", err)
		}
	}
	f("{file: " + put("good.yaml", "[http://10.0.0.1:8000]") + "}")
	f("{file: "+none+"}", "discover.file: "+none+" can't be read: no such file")
	f("{file: "+put("bad.yaml", "replicas: {a: b}")+"}", "bad.yaml is not a list of replicas")
	f("{file: "+put("half.yaml", "- http://10.0.0.1:8000\n- {url: ")+"}", "half.yaml is not a list of replicas")
	f("{file: "+dir+"}", dir+" can't be read: it is a directory")

	kube := func(path string) string { return "{kubernetes: {selector: app=a, kubeconfig: " + path + "}}" }
	f("{kubernetes: {selector: app=a}}") // the account of a Pod is not this machine's
	f(kube(kubeconfig("good", "", "token: x")))
	f(kube(none), "kubernetes.kubeconfig: can't be used: "+none+" does not exist")
	f(kube(put("no-yaml", "{")), "no-yaml is no kubeconfig")
	f(kube(kubeconfig("token", "", "tokenFile: gone")), filepath.Join(dir, "gone")+" does not exist")
	f(kube(kubeconfig("ca", ", certificate-authority: gone", "token: x")), filepath.Join(dir, "gone")+" does not exist")
	put("junk.pem", "junk")
	f(kube(kubeconfig("ca2", ", certificate-authority: junk.pem", "token: x")), "holds no certificate")
	f(kube(kubeconfig("cert", "", "client-certificate: junk.pem, client-key: junk.pem")), "client certificate: ")
}

// The routers' certificates are read too, and a kubeconfig that only scaling names.
func TestCheckReadsCertificatesAndWhatScalingNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "hearsay.yaml")
	text := `node: {name: r1, data_dir: ` + dir + `}
cluster: {tls: {cert: none.pem, key: none.pem, ca: none.pem}}
pools:
  - name: chat
    model: m
    discover: {kubernetes: {selector: app=a}}
    scale: {actuator: kubernetes, kubernetes: {name: a, kubeconfig: none.config}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Check(path, nil)
	for _, want := range []string{
		"line 2: cluster.tls: can't be used: cluster.tls.cert: none.pem does not exist",
		"line 7: pools[0].scale.kubernetes.kubeconfig: can't be used: none.config does not exist",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
