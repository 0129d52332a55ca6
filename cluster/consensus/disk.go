package consensus

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/hearsay-llm/hearsay/state"
)

// Memory is a disk in memory. It may outlive the node that used it.
type Memory struct {
	log       *raft.InmemStore
	snapshots *raft.InmemSnapshotStore

	mu    sync.Mutex
	facts []byte // guarded by mu
}

// NewMemory returns an empty one.
func NewMemory() *Memory {
	return &Memory{log: raft.NewInmemStore(), snapshots: raft.NewInmemSnapshotStore()}
}

// disk is where a node keeps what must survive it.
type disk struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	close     func() error
	saveFacts func([]byte) error
	loadFacts func() ([]byte, error) // nil, nil when there are none
}

func openMemory(m *Memory) *disk {
	return &disk{
		logs: m.log, stable: m.log, snapshots: m.snapshots,
		close: func() error { return nil },
		saveFacts: func(b []byte) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.facts = b
			return nil
		},
		loadFacts: func() ([]byte, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.facts, nil
		},
	}
}

func openDir(dir string, segmentSize int, log hclog.Logger) (*disk, error) {
	logDir := filepath.Join(dir, "raft", "wal")
	if err := os.MkdirAll(logDir, 0o700); err != nil {
		return nil, fmt.Errorf("open raft log: %w", err)
	}
	meta := &metadb.BoltMetaDB{} // ours, since raft-wal 0.4 never closes its own and so keeps its lock
	w, err := wal.Open(logDir, wal.WithSegmentSize(segmentSize), wal.WithLogger(log.Named("wal")), wal.WithMetaStore(meta))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open raft log: %w", err), meta.Close())
	}
	closeLog := func() error { return errors.Join(w.Close(), meta.Close()) }
	snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(dir, "raft"), 2, log.Named("snapshot"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open raft snapshots: %w", err), closeLog())
	}
	cache, err := raft.NewLogCache(512, w)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open raft log: %w", err), closeLog())
	}
	path := filepath.Join(dir, "facts.json")
	return &disk{
		logs: cache, stable: w, snapshots: snaps, close: closeLog,
		saveFacts: func(b []byte) error { return writeFile(path, b) },
		loadFacts: func() ([]byte, error) { return readFile(path) },
	}, nil
}

// writeFile replaces a file whole: after a crash it is the old one or the new.
func writeFile(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFactsBytes+1))
}

// lastFacts are the facts that were saved last, or nil.
func (d *disk) lastFacts() (*state.Facts, error) {
	b, err := d.loadFacts()
	if err != nil || b == nil {
		return nil, err
	}
	return DecodeFacts(b)
}
