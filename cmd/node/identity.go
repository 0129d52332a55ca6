package node

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hearsay-llm/hearsay/state"
)

// nodeIDFile holds a node's id in its data directory.
const nodeIDFile = "node-id"

// loadID reads the node's stable id from its data directory, or makes one there.
// An empty disk is a new id.
func loadID(dir string) (state.RouterID, error) {
	path := filepath.Join(dir, nodeIDFile)
	b, err := os.ReadFile(path)
	if err == nil {
		id := strings.TrimSpace(string(b))
		if len(id) < 4 || len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", fmt.Errorf("%s holds no node id: remove the file to become a new node", path)
		}
		return state.RouterID(id), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node id: %w", err)
	}
	id := newID()
	if err := WriteFile(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("write node id: %w", err)
	}
	return state.RouterID(id), nil
}

// newID is 64 random bits in hexadecimal.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// newBoot is a random boot id, never zero.
func newBoot() state.BootID {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return state.BootID(binary.LittleEndian.Uint64(b[:]) | 1)
}

// WriteFile replaces a file whole: a crash leaves the old or the new one. What is there
// and is no regular file stays. Errors name the path.
func WriteFile(path string, b []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "write", Path: path, Err: errors.New("it is there, and no regular file")}
	}
	err := writeBeside(path, b)
	var at *fs.PathError
	var link *os.LinkError
	switch { // of a file that nobody has named
	case errors.As(err, &at):
		err = &fs.PathError{Op: "write", Path: path, Err: at.Err}
	case errors.As(err, &link):
		err = &fs.PathError{Op: "write", Path: path, Err: link.Err}
	}
	return err
}

// writeBeside writes another file, and gives it the name.
func writeBeside(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
