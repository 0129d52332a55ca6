package node

import (
	"strings"
	"testing"
)

func TestFilesOfTLSAreChecked(t *testing.T) {
	f := func(name, text string, want ...string) {
		t.Helper()
		_, err := load(t, text+minimal)
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
	f("no key", "api: {tls: {cert: a.pem}}\n", "line 1", "api.tls.key", "is missing")
	f("no certificate", "api: {tls: {key: a.pem}}\n", "line 1", "api.tls.cert", "is missing")
	f("no such files", "api: {tls: {cert: /nowhere/c.pem, key: /nowhere/k.pem}}\n", "line 1", "api.tls", "/nowhere/c.pem does not exist")
	f("no authority", "cluster: {tls: {cert: a.pem, key: b.pem}}\n", "line 1", "cluster.tls.ca", "is missing")
}
