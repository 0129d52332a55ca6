package consensus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// restoreGap is how far the index of recovered facts lies above all that is known of
// the old ones: what was committed after them, and is lost, stays below it. So routers
// that had heard of it take what comes.
const restoreGap = 1 << 16

// stableTerm is where Raft keeps its term in the stable store.
var stableTerm = []byte("CurrentTerm")

// ErrForeign says that a data directory is of another cluster than a snapshot.
var ErrForeign = errors.New("of another cluster")

// Recovered is what Recover found and did.
type Recovered struct {
	Index uint64 // of the facts from now on
	Had   uint64 // of those that were there; 0: none
	Aside string // where what was there is kept; empty: there was nothing
}

// LastFacts are the facts that a router which does not run knew last, or nil.
func LastFacts(dir string) (*state.Facts, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	d, err := openDir(dir, segmentSize, hclog.NewNullLogger())
	if err != nil {
		return nil, err
	}
	f, err := d.lastFacts()
	return f, errors.Join(err, d.close())
}

// Recover makes a router that does not run the only voter of a cluster with the given
// facts, whatever its directory says of other voters: for a quorum that is lost for
// good. The cluster keeps its id and the facts' index goes on upwards. What was in dir
// is kept beside it. With facts of another cluster the error wraps ErrForeign and
// nothing changes, unless force is set.
//
// The other voters of old may come back with what is on their disks, though they should
// not: Facts.Recovered tells their line of facts from this one (superseded).
func Recover(dir string, self state.RouterID, f *state.Facts, force bool) (r Recovered, err error) {
	term, own, err := look(dir)
	if err != nil {
		return r, err
	}
	if own != nil {
		r.Had = own.Index
		if own.ClusterID != "" && own.ClusterID != f.ClusterID && !force {
			return r, fmt.Errorf("%w: the directory is of cluster %s, the snapshot of %s", ErrForeign, own.ClusterID, f.ClusterID)
		}
	}
	r.Index = max(f.Index, r.Had) + restoreGap
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return r, err
	}
	next := resumed(f, r.Index)
	if own != nil {
		next.Recovered = max(next.Recovered, own.Recovered)
	}
	next.Recovered++
	if err := foundIn(fresh, self, next, term+1); err != nil {
		return r, errors.Join(err, os.RemoveAll(fresh))
	}
	if r.Aside, err = putAside(dir); err != nil {
		return r, err
	}
	return r, os.Rename(fresh, dir)
}

// superseded reports that this router's log is of a line of facts that an operator has
// ended by recovering another router: whatever voters of old are left, it acts for none
// of them. It is given the new line by that router, which leads.
func (n *Node) superseded() bool { return n.ledger.current().Recovered > n.line.Load() }

// passed reports that a peer has facts so far above this router's that it must have been
// recovered: even a leader asks it for them.
func (n *Node) passed() bool {
	f := n.ledger.current()
	return slices.ContainsFunc(n.cfg.Peers(), func(p Peer) bool {
		return p.mayBeOf(f.ClusterID) && p.FactsIndex > f.Index+restoreGap/2
	})
}

// look reads a directory, which may not be there.
func look(dir string) (term uint64, own *state.Facts, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil, nil
	}
	d, err := openDir(dir, segmentSize, hclog.NewNullLogger())
	if err != nil {
		return 0, nil, err
	}
	own, factsErr := d.lastFacts()
	if factsErr != nil {
		own = nil // a torn file is as good as none
	}
	term, err = d.stable.GetUint64(stableTerm)
	if err != nil && err.Error() == "not found" { // as raft has it
		term, err = 0, nil
	}
	return term, own, errors.Join(err, d.close())
}

// putAside renames a directory to the first name beside it that is free.
func putAside(dir string) (string, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	for i := 1; ; i++ {
		to := fmt.Sprintf("%s.before-restore-%d", dir, i)
		if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
			return to, os.Rename(dir, to)
		}
	}
}

// foundIn is found in a directory that is not there yet.
func foundIn(dir string, self state.RouterID, f *state.Facts, term uint64) error {
	d, err := openDir(dir, segmentSize, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	return errors.Join(found(d, self, f, term), d.close())
}

// found writes a Raft state of one voter whose snapshot the facts are.
func found(d *disk, self state.RouterID, f *state.Facts, term uint64) (err error) {
	b, err := json.Marshal(&wireSnapshot{Facts: toWire(f)})
	if err != nil {
		return fmt.Errorf("encode snapshot: %w", err)
	}
	addr := serverAddress(self, "") // gossip says where it is
	_, trans := raft.NewInmemTransport(addr)
	defer func() { err = errors.Join(err, trans.Close()) }()
	voters := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(self), Address: addr}}}
	sink, err := d.snapshots.Create(raft.SnapshotVersionMax, f.Index, term, voters, f.Index, trans)
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := snapshot(b).Persist(sink); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := d.stable.SetUint64(stableTerm, term); err != nil {
		return fmt.Errorf("write term: %w", err)
	}
	saved, err := EncodeFacts(f)
	if err != nil {
		return err
	}
	return d.saveFacts(saved)
}
