package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/state"
)

// raftDir is where a router keeps what it has agreed on with others.
func raftDir(dataDir string) string { return filepath.Join(dataDir, "raft") }

// Save gives a snapshot of the committed facts.
func (n *Node) Save(ctx context.Context, stale bool) ([]byte, error) {
	f := n.raft.Facts()
	if !stale {
		var err error
		if f, err = n.raft.Current(ctx); err != nil {
			return nil, committed(err)
		}
	}
	if f.ClusterID == "" {
		return nil, &state.Refusal{Code: state.RefusedUnknown, Reason: "nothing is committed yet"}
	}
	return consensus.EncodeSaved(f, n.cfg.Node.Name, time.Now().UTC())
}

// Restore commits the facts of a snapshot in place of the present ones.
func (n *Node) Restore(ctx context.Context, snapshot []byte, force bool) (index uint64, behind bool, err error) {
	f, err := consensus.DecodeSaved(snapshot)
	if err != nil {
		return 0, false, &state.Refusal{Code: state.RefusedInvalid, Reason: err.Error()}
	}
	return n.Commit(ctx, state.Command{Kind: state.CommandRestore, Facts: f, Force: force})
}

// SaveDir is Save for a router that does not run: what it knew last.
func SaveDir(dataDir string) ([]byte, error) {
	release, err := stopped(dataDir)
	if err != nil {
		return nil, err
	}
	defer release()
	f, err := consensus.LastFacts(raftDir(dataDir))
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("%s holds no committed facts", dataDir)
	}
	return consensus.EncodeSaved(f, filepath.Base(dataDir), time.Now().UTC())
}

// RestoreDir makes a router that does not run the only voter of its cluster, with the
// facts of a snapshot. It says what it did.
func RestoreDir(dataDir string, snapshot []byte, force bool) (string, error) {
	f, err := consensus.DecodeSaved(snapshot)
	if err != nil {
		return "", err
	}
	if force { // a new disk will do
		if err := os.MkdirAll(dataDir, 0o700); err != nil {
			return "", err
		}
	}
	release, err := stopped(dataDir)
	if err != nil {
		return "", err
	}
	defer release()
	if _, err := os.Stat(filepath.Join(dataDir, nodeIDFile)); errors.Is(err, fs.ErrNotExist) && !force { // a wrong path would be made a router's
		return "", fmt.Errorf("%s is no router's data directory: give --force to make it one", dataDir)
	}
	id, err := loadID(dataDir)
	if err != nil {
		return "", err
	}
	r, err := consensus.Recover(raftDir(dataDir), id, f, force)
	if errors.Is(err, consensus.ErrForeign) {
		return "", fmt.Errorf("%w: give --force if you mean it", err)
	}
	if err != nil {
		return "", err
	}
	said := fmt.Sprintf("%s: the only voter of cluster %s, with the facts of the snapshot (at %d, from now on %d)", dataDir, f.ClusterID, f.Index, r.Index)
	if r.Had > f.Index {
		said += fmt.Sprintf("\nthe directory had later facts, at %d: what was committed in between is not in the snapshot", r.Had)
	}
	if r.Aside != "" {
		said += "\nwhat was there is kept in " + r.Aside
	}
	return said + "\nbefore other voters of old are started, remove the directory raft in their data directories", nil
}

// stopped makes sure that no router runs on a data directory, until release.
func stopped(dataDir string) (release func(), err error) {
	if _, err := os.Stat(dataDir); err != nil {
		return nil, err
	}
	return lockDir(dataDir)
}
