package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// errLocked says that another process, or another node of this one, has the lock.
var errLocked = errors.New("locked")

// lockDir makes the data directory this router's alone until release: two routers on
// one disk would be one router with two voices. The kernel drops the lock when the
// process dies, however it dies; the file stays and means nothing by itself.
func lockDir(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("node.data_dir: %w", err)
	}
	if err := lockFile(f); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, errLocked) {
			return nil, fmt.Errorf("node.data_dir: lock %s: %w", f.Name(), err)
		}
		return nil, fmt.Errorf("node.data_dir: %s is in use by another router%s: give each router its own (--data-dir)", dir, holder(f))
	}
	// Only people read who holds it.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return func() { _ = f.Close() }, nil
}

// holder says which process wrote itself into a lock file.
func holder(f *os.File) string {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}
