package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ReadFile reads a file that a person or another program has named: a regular one, or a
// link to one, of at most that many bytes. Anything else is not opened, since a pipe
// would keep the reader for as long as nobody writes. Errors are of type *fs.PathError;
// the result is not nil without one.
func ReadFile(path string, most int) ([]byte, error) {
	fault := func(err error) ([]byte, error) {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	info, err := os.Stat(path)
	if err == nil {
		err = regular(info)
	}
	if err != nil {
		return fault(err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be another one by now
	if err != nil {
		return fault(err)
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err == nil {
		err = regular(info)
	}
	if err != nil {
		return fault(err)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("it is larger than %d bytes", most)
	}
	if err != nil {
		return fault(err)
	}
	return b, nil
}

// regular says what a file is that is none to be read.
func regular(info fs.FileInfo) error {
	what := "a device"
	switch m := info.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		what = "a directory"
	case m&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case m&fs.ModeSocket != 0:
		what = "a socket"
	}
	return fmt.Errorf("it is %s, not a regular file", what)
}
