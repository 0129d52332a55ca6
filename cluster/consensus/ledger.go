package consensus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// ledger is the newest facts this router knows, whether they came through its own
// Raft log, from a peer, or from disk. Safe for concurrent use.
type ledger struct {
	publish func(*state.Facts)
	changed chan struct{} // capacity 1: there is something to save

	mu      sync.Mutex
	facts   *state.Facts  // guarded by mu; never nil
	encoded []byte        // guarded by mu; of facts, made when asked for
	entries []entry       // guarded by mu; each leads to the next one's prev, the last one to facts; not changed
	newer   chan struct{} // guarded by mu; closed by the next newer facts
}

func newLedger(publish func(*state.Facts)) *ledger {
	return &ledger{publish: publish, changed: make(chan struct{}, 1), facts: state.NewFacts(), newer: make(chan struct{})}
}

// current is the newest facts. They are never changed.
func (l *ledger) current() *state.Facts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.facts
}

// await returns once there are facts of that index or a later one, true, or ctx has
// ended, false.
func (l *ledger) await(ctx context.Context, index uint64) bool {
	for {
		l.mu.Lock()
		have, newer := l.facts.Index, l.newer
		l.mu.Unlock()
		if have >= index {
			return true
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return false
		}
	}
}

// offer takes facts that may be newer, and publishes them if they are. It keeps
// them but for the list of decisions, which it copies to note when each was seen.
// The entries are the commands by which they came about, if that is known.
func (l *ledger) offer(f *state.Facts, by []entry) bool {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Index <= l.facts.Index {
		return false
	}
	g := *f
	g.Decisions = make([]state.Decision, len(f.Decisions))
	for i, d := range f.Decisions {
		d.Seen = now
		if old := l.facts.Decisions; i < len(old) && old[i].ID == d.ID {
			d.Seen = old[i].Seen
		} else if old := l.facts.Decision(d.ID); old != nil {
			d.Seen = old.Seen
		}
		g.Decisions[i] = d
	}
	l.keep(l.facts.Index, by)
	l.facts, l.encoded = &g, nil
	l.publish(&g)
	close(l.newer)
	l.newer = make(chan struct{})
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return true
}

// bytes are the encoded facts and their index.
func (l *ledger) bytes() ([]byte, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.encoded == nil {
		b, err := EncodeFacts(l.facts)
		if err != nil {
			return nil, 0, fmt.Errorf("encode facts: %w", err)
		}
		l.encoded = b
	}
	return l.encoded, l.facts.Index, nil
}
