package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files that a configuration names are regular files: a device or a directory in the
// place of one is said to be that, and a pipe holds nobody up.
func TestNamedFilesAreRegular(t *testing.T) {
	dir := t.TempDir()
	good := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	large := good("large", strings.Repeat("x", maxNamed+1))
	f := func(what string, read func(path string) error) {
		t.Helper()
		for path, want := range map[string]string{dir: "it is a directory", os.DevNull: "it is a device", large: "it is larger than"} {
			if err := read(path); err == nil || !strings.Contains(err.Error(), path+": "+want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
	f("secrets", func(path string) error {
		_, err := readSecrets(path, 1)
		return err
	})
	f("api.tls", func(path string) error {
		_, err := newCertificate(TLSConfig{Cert: path, Key: path})
		return err
	})
	f("cluster.tls", func(path string) error {
		_, err := newRouterTLS(ClusterTLSConfig{Cert: path, Key: path, CA: path})
		return err
	})
	large = good("large", strings.Repeat("x", maxConfig+1))
	f("configuration", func(path string) error {
		_, err := Load(path, nil)
		return err
	})
	if !Streamed("/dev/stdin") || !Streamed("/dev/fd/63") || Streamed("/etc/hearsay.yaml") {
		t.Error("what can be read once")
	}
}

func TestWriteFileNamesWhatItWrites(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "no", "such", "dir"), dir, os.DevNull} {
		if err := WriteFile(path, nil); err == nil || !strings.Contains(err.Error(), path+": ") || strings.Contains(err.Error(), ".tmp") {
			t.Errorf("%v", err)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("it left %v, %v", list, err)
	}
}
