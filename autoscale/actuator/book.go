package actuator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	bookVersion = 1
	bookFile    = "processes.json"
	maxBook     = 4 << 20 // bytes
	lockEvery   = 10 * time.Millisecond
)

// book is the record of a directory's processes. It is read and written whole
// under the directory's lock.
type book struct {
	V         int `json:"v"`
	fence     `json:"-"`
	Fence     *fence    `json:"fence"`
	Place     string    `json:"place,omitempty"` // tells this directory from others of the host, for good
	Processes []*record `json:"processes"`
	path      string
	saved     []byte // what the file holds
}

// record is one replica's process.
type record struct {
	ID       string           `json:"id"`
	Pool     string           `json:"pool"`
	Role     state.Role       `json:"role"`
	Model    string           `json:"model"`
	Engine   state.EngineKind `json:"engine"`
	Port     int              `json:"port"`
	Epoch    uint64           `json:"epoch"`    // of the leader that wanted it
	Decision string           `json:"decision"` // that wanted it
	// PID and Started name the process; PID 0 with a Marker is a start whose end is
	// not known, without one a process that has ended.
	PID       int       `json:"pid,omitempty"`
	Started   string    `json:"started,omitempty"`
	Marker    string    `json:"marker,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	WasReady  bool      `json:"was_ready,omitempty"` // it keeps its port when started again
	ReadyAt   time.Time `json:"ready_at,omitzero"`   // since this start
	Ends      int       `json:"ends,omitempty"`      // unasked ends in a row, and starts that failed
	Problem   string    `json:"problem,omitempty"`   // of the last start, when it failed
	NotBefore time.Time `json:"not_before,omitzero"` // of the next start
	StopAt    time.Time `json:"stop_at,omitzero"`    // asked to end; killed from then on
}

func (r *record) alive() bool { return r.PID != 0 && r.Started != "" && started(r.PID) == r.Started }

func (r *record) of(k state.TargetKey) bool {
	return r.Pool == k.Pool && cmp.Or(r.Role, state.RoleBoth) == cmp.Or(k.Role, state.RoleBoth)
}

// locked runs f on the book under the directory's lock, and writes the book.
func (p *Process) locked(ctx context.Context, f func(*book) error) (err error) {
	if err := os.MkdirAll(p.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("open process records: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(p.cfg.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open process records: %w", err)
	}
	defer lock.Close() // and with it the lock goes
	if err := flock(ctx, lock); err != nil {
		return fmt.Errorf("lock process records: %w", err)
	}
	b, err := readBook(filepath.Join(p.cfg.Dir, bookFile))
	if err != nil {
		return fmt.Errorf("read process records: %w", err)
	}
	if b.Place == "" && len(b.Processes) == 0 { // older records keep ids without one
		b.Place = strings.ToLower(rand.Text()[:6])
	}
	err = f(b)
	if errors.Is(err, state.ErrFenced) {
		return err
	}
	if werr := b.write(); werr != nil {
		err = errors.Join(err, fmt.Errorf("write process records: %w", werr))
	}
	return err
}

// flock waits for the lock as long as ctx allows.
func flock(ctx context.Context, f *os.File) error {
	t := time.NewTicker(lockEvery)
	defer t.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func readBook(path string) (*book, error) {
	b := &book{path: path}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	if err := b.decode(data); err != nil {
		return nil, err
	}
	b.saved = data
	return b, nil
}

func (b *book) decode(data []byte) error {
	if len(data) > maxBook {
		return errors.New("too large")
	}
	if err := json.Unmarshal(data, b); err != nil {
		return err
	}
	if b.V != bookVersion {
		return fmt.Errorf("version %d is not known here", b.V)
	}
	if b.Fence != nil {
		b.fence = *b.Fence
	}
	for _, r := range b.Processes {
		// A pid of 1 or less would signal far more than one process group.
		if r == nil || r.ID == "" || r.PID < 0 || r.PID == 1 || r.Ends < 0 {
			return errors.New("a record makes no sense")
		}
	}
	return nil
}

// write replaces the file whole, if there is something new to say.
func (b *book) write() error {
	b.V, b.Fence = bookVersion, &b.fence
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if bytes.Equal(data, b.saved) {
		return nil
	}
	tmp := b.path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, b.path); err != nil {
		return err
	}
	b.saved = data
	return nil
}
