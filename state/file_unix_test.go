//go:build unix

package state

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadFileTakesRegularFilesAlone(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("file"), []byte("12345"), 0o600))
	must(os.WriteFile(at("empty"), nil, 0o600))
	must(os.Mkdir(at("..data"), 0o700))
	must(os.WriteFile(at("..data/secret"), []byte("x"), 0o600))
	must(os.Symlink("..data/secret", at("secret"))) // as Kubernetes mounts them
	must(syscall.Mkfifo(at("pipe"), 0o600))
	must(os.Symlink(at("pipe"), at("to-pipe")))
	must(os.Symlink(at("loop"), at("loop")))
	ln, err := net.Listen("unix", at("socket"))
	must(err)
	defer func() { _ = ln.Close() }()
	f := func(path, want, fault string) {
		t.Helper()
		b, err := ReadFile(path, 5)
		var at *fs.PathError
		switch {
		case fault == "" && (err != nil || string(b) != want || b == nil):
			t.Errorf("%s: %q, %v", path, b, err)
		case fault != "" && (!errors.As(err, &at) || at.Path != path || !strings.Contains(err.Error(), fault)):
			t.Errorf("%s: %v, want %q", path, err, fault)
		}
	}
	f(at("file"), "12345", "")
	f(at("empty"), "", "")
	f(at("secret"), "x", "")
	f(at("none"), "", "no such file")
	f(dir, "", "it is a directory")
	f(at("pipe"), "", "it is a pipe")
	f(at("to-pipe"), "", "it is a pipe")
	f(at("socket"), "", "it is a socket")
	f("/dev/null", "", "it is a device")
	f(at("loop"), "", "too many levels")
	must(os.WriteFile(at("file"), []byte("123456"), 0o600))
	f(at("file"), "", "larger than 5 bytes")
	if _, err := ReadFile(at("none"), 5); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
