package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// fileEvery is the time between two looks at a file. A new content is taken when two
// looks have found it: one of them may be in the middle of a write.
const fileEvery = 500 * time.Millisecond

// maxFile bounds a file of replicas.
const maxFile = 1 << 20

// File is a list of replicas in a file, in YAML or JSON. It is read again and again
// rather than watched: that also notices what is replaced by a rename or behind a
// symbolic link, on any file system, and costs some microseconds.
type File struct {
	path string

	seen []byte // content of the last look; nil: there was none
	done []byte // content that last was what is
	last Snapshot
}

// NewFile makes a source of a file, which need not be there yet.
func NewFile(path string) *File { return &File{path: path} }

// Kind is KindFile.
func (f *File) Kind() string { return KindFile }

// Where is the file's path.
func (f *File) Where() string { return f.path }

// Doubtful is true: who writes the file may have lost its source.
func (f *File) Doubtful() bool { return true }

// Run reads the file until ctx ends.
func (f *File) Run(ctx context.Context, report func(Snapshot)) error {
	if x, ok := f.look(); ok {
		report(x)
	} else { // at the start there is nobody who might be writing
		x, _ = f.look()
		report(x)
	}
	t := time.NewTicker(fileEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if x, ok := f.look(); ok {
			report(x)
		}
	}
}

// look reads the file. It is not ok while the content is new.
func (f *File) look() (x Snapshot, ok bool) {
	b, err := readFile(f.path)
	if err != nil {
		f.seen, f.done = nil, nil
		return Snapshot{Err: err}, true
	}
	if f.done != nil && bytes.Equal(b, f.done) {
		f.seen = b
		return f.last, true
	}
	if f.seen == nil || !bytes.Equal(b, f.seen) {
		f.seen = b
		return Snapshot{}, false
	}
	list, err := ParseFile(b)
	f.done, f.last = b, Snapshot{Replicas: list, Err: err}
	return f.last, true
}

// CheckFile says what is wrong with a file of replicas, or nil. The error does not name
// the file.
func CheckFile(path string) error {
	b, err := readFile(path)
	if err == nil {
		_, err = ParseFile(b)
	}
	return err
}

// readFile reads a file; an error does not name it, since whoever tells it does. The
// result is not nil without one.
func readFile(path string) ([]byte, error) {
	b, err := state.ReadFile(path, maxFile)
	var at *fs.PathError
	if errors.As(err, &at) {
		return nil, fmt.Errorf("can't be read: %w", at.Err)
	}
	return b, err
}
