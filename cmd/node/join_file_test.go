package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReadJoinFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "join")
	f := func(text, fault string, want ...string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := readJoinFile(path)
		if !slices.Equal(list, want) || (err == nil) != (fault == "") || err != nil && err.Error() != fault {
			t.Errorf("%q: %q, %v", text, list, err)
		}
	}
	f("", "")
	f("# none yet\n\n", "")
	f("10.0.0.1:7946\n  r2:7946 # the second\n[::1]:7946", "", "10.0.0.1:7946", "r2:7946", "[::1]:7946")
	f("10.0.0.1:7946\n10.0.0.2", "line 2 is not host:port")

	g := func(path, fault string) {
		t.Helper()
		if _, err := readJoinFile(path); err == nil || err.Error() != fault {
			t.Errorf("%s: %v", path, err)
		}
	}
	g(filepath.Join(filepath.Dir(path), "none"), "no such file or directory")
	g(filepath.Dir(path), "it is a directory, not a regular file")
	g(os.DevNull, "it is a device, not a regular file") // as a pipe, which would hold the reader
}
