package consensus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// maxSeen bounds the command ids that are remembered to make repeats harmless.
// At a hundred commands a second, which scaling never reaches, it covers 40 s.
const maxSeen = 4096

// Result is what a committed command came to.
type Result struct {
	Index    uint64 `json:"index"` // Raft index at which it took effect
	Repeated bool   `json:"repeated,omitempty"`
	// Code and Reason are set when the facts spoke against the command; Apply
	// turns them into a *state.Refusal.
	Code   state.RefusalCode `json:"code,omitempty"`
	Reason string            `json:"reason,omitempty"`
}

// machine is the replicated state machine: a pure function of the log. It has no
// clock, no randomness, and depends on no map's order. Raft calls its methods
// from one goroutine at a time.
type machine struct {
	facts   *state.Facts // replaced at every change, never changed once offered
	seen    map[string]Result
	order   []string // ids in seen, oldest first
	publish func(*state.Facts)

	data []byte  // of the log entry that is being applied
	by   []entry // what led to the facts that are being published; nil: not known
}

func newMachine(publish func(*state.Facts)) *machine {
	return &machine{facts: state.NewFacts(), seen: map[string]Result{}, publish: publish}
}

// Apply implements raft.FSM. Bytes that are no command have no effect.
func (m *machine) Apply(l *raft.Log) any {
	c, err := decodeCommand(l.Data)
	if err != nil {
		return Result{Index: l.Index, Code: state.RefusedInvalid, Reason: err.Error()}
	}
	m.data = l.Data
	defer func() { m.data, m.by = nil, nil }()
	return m.apply(c, l.Index)
}

func (m *machine) apply(c *state.Command, index uint64) Result {
	if r, ok := m.seen[c.ID]; ok && c.ID != "" {
		r.Repeated = true
		return r
	}
	next := m.facts.Clone()
	r := Result{Index: index}
	if ref := change(next, c, index); ref != nil {
		r.Code, r.Reason = ref.Code, ref.Reason
	} else {
		next.Index = index
		if m.data != nil {
			m.by = []entry{entryOf(m.facts.Index, index, c.Kind, m.data)}
		}
		m.facts = next
		m.publish(next)
	}
	if c.ID != "" {
		m.remember(c.ID, r)
	}
	return r
}

func (m *machine) remember(id string, r Result) {
	if len(m.order) >= maxSeen {
		delete(m.seen, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
	m.seen[id] = r
	m.order = append(m.order, id)
}

// wireSnapshot is a snapshot of the machine.
type wireSnapshot struct {
	Facts *wireFacts `json:"facts"`
	Seen  []wireSeen `json:"seen,omitempty"`
}

type wireSeen struct {
	ID string `json:"id"`
	Result
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	w := wireSnapshot{Facts: toWire(m.facts)}
	for _, id := range m.order {
		w.Seen = append(w.Seen, wireSeen{id, m.seen[id]})
	}
	b, err := json.Marshal(&w)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	return snapshot(b), nil
}

// Restore implements raft.FSM. A bad snapshot changes nothing.
func (m *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, 2*maxFactsBytes+1))
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	if len(b) > 2*maxFactsBytes {
		return errors.New("read snapshot: too large")
	}
	var w wireSnapshot
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("decode snapshot: %w", err)
	}
	if w.Facts == nil {
		return errors.New("decode snapshot: no facts")
	}
	f, err := w.Facts.facts()
	if err != nil {
		return fmt.Errorf("decode snapshot: %w", err)
	}
	m.facts, m.seen, m.order = f, map[string]Result{}, nil
	for _, s := range w.Seen {
		if _, ok := m.seen[s.ID]; !ok && s.ID != "" {
			m.remember(s.ID, s.Result)
		}
	}
	m.publish(f)
	return nil
}

type snapshot []byte

// Persist implements raft.FSMSnapshot.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (snapshot) Release() {}
