package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// A saved snapshot is the committed facts in a file of their own, for people to keep.
// It is JSON in the same form as facts travel, behind a line that says what it is.
const (
	savedFormat  = "hearsay-snapshot"
	savedVersion = 1
)

// maxRestoreBytes bounds the facts that a running cluster can be given: the command
// goes to the leader in one frame.
const maxRestoreBytes = 768 << 10

// wireSaved is a snapshot as it is saved.
type wireSaved struct {
	Format  string     `json:"format"`
	V       int        `json:"v"`
	SavedAt time.Time  `json:"saved_at"` // of the router's clock, for people
	By      string     `json:"by"`       // the router's name, for people
	Facts   *wireFacts `json:"facts"`
}

// EncodeSaved is what a saved snapshot of the facts looks like.
func EncodeSaved(f *state.Facts, by string, at time.Time) ([]byte, error) {
	b, err := json.MarshalIndent(&wireSaved{Format: savedFormat, V: savedVersion, SavedAt: at, By: by, Facts: toWire(f)}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	return append(b, '\n'), nil
}

// DecodeSaved reads EncodeSaved's bytes. It never panics; a file that was cut off is
// refused.
func DecodeSaved(b []byte) (*state.Facts, error) {
	if len(b) > 2*maxFactsBytes {
		return nil, errors.New("read snapshot: too large")
	}
	var w wireSaved
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, errors.New("read snapshot: this is no snapshot that hearsay has saved, or only a part of one")
	}
	switch {
	case w.Format != savedFormat || w.Facts == nil:
		return nil, errors.New("read snapshot: this is no snapshot that hearsay has saved")
	case w.V < 1 || w.V > savedVersion:
		return nil, fmt.Errorf("read snapshot: version %d is not known here: use the release that saved it, or a later one", w.V)
	}
	f, err := w.Facts.facts()
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	if f.ClusterID == "" || f.Index == 0 {
		return nil, errors.New("read snapshot: it is of no cluster: nothing was committed when it was saved")
	}
	return f, nil
}

// Current is the facts as they are now: they hold every command that was done, anywhere,
// when it was called. It asks the leader, which proves that it still is one by an entry
// through its log. The error wraps ErrNoLeader when none could be asked in time.
func (n *Node) Current(ctx context.Context) (*state.Facts, error) {
	r, err := n.apply(ctx, state.Command{Kind: state.CommandRead})
	switch {
	case errors.Is(err, ErrOutcomeUnknown): // of a question, that is none
		return nil, fmt.Errorf("%w: it did not answer in time", ErrNoLeader)
	case err != nil:
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ApplyTimeout)
	defer cancel()
	if !n.Await(ctx, r.Index) {
		return nil, fmt.Errorf("%w: its facts at %d have not come here", ErrNoLeader, r.Index)
	}
	return n.ledger.current(), nil
}

// read is the leader's side of Current: the index that its facts have after everything
// that was committed before.
func (n *Node) read(ctx context.Context) (Result, verdict) {
	if err := n.prove(ctx); err != nil {
		return Result{}, verdictNone
	}
	return Result{Index: n.ledger.current().Index}, verdictDone
}

// resumed are saved facts as they go on at an index: what refers to the log refers
// to that index, since routers acknowledge what they have seen by theirs.
func resumed(f *state.Facts, index uint64) *state.Facts {
	g := f.Clone()
	g.Index = index
	for id, d := range g.Draining {
		d.Index = index
		g.Draining[id] = d
	}
	for id := range g.Undrained {
		g.Undrained[id] = index
	}
	return g
}

// restore puts saved facts in the place of the present ones. Whose cluster it is, and
// its term, stay.
func restore(f *state.Facts, c *state.Command, index uint64) *state.Refusal {
	if c.Facts == nil || c.Facts.ClusterID == "" {
		return refuse(state.RefusedInvalid, "there are no facts to restore")
	}
	if c.Facts.ClusterID != f.ClusterID && !c.Force {
		return refuse(state.RefusedForeign, "the snapshot is of cluster %.64s, this is %.64s: --force restores it all the same", c.Facts.ClusterID, f.ClusterID)
	}
	g := resumed(c.Facts, index)
	g.ClusterID, g.Recovered, g.Epoch, g.Leader = f.ClusterID, f.Recovered, f.Epoch, f.Leader
	*f = *g
	return nil
}
