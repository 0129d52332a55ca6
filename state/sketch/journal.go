package sketch

import "sync"

// Journal is a bounded ring of the ops that were news here, own and applied from
// others, at growing positions. Any number of readers follow it, each with its
// own cursor. Safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	ring    []Op          // guarded by mu; ring[p%len] holds position p
	head    uint64        // guarded by mu; position of the next op
	ownSeq  uint64        // guarded by mu; sequence of the last own op
	changed chan struct{} // guarded by mu; nil while nobody waits
}

func newJournal(size int) *Journal { return &Journal{ring: make([]Op, size)} }

// Head is the position the next op will have. A reader that takes a snapshot
// takes Head before it and reads on from there.
func (j *Journal) Head() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.head
}

// Read returns up to limit ops from position cursor on and the cursor to go on
// with. gap says that ops at cursor were overwritten already, or that cursor is
// ahead of the journal (it is of another start): the ops then begin at the oldest
// position kept, and the reader's knowledge has a hole only a snapshot fills.
func (j *Journal) Read(cursor uint64, limit int) (ops []Op, next uint64, gap bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	oldest := uint64(0)
	if n := uint64(len(j.ring)); j.head > n {
		oldest = j.head - n
	}
	if cursor < oldest || cursor > j.head {
		cursor, gap = oldest, true
	}
	n := min(j.head-cursor, uint64(max(limit, 0)))
	if n == 0 {
		return nil, cursor, gap
	}
	ops = make([]Op, n)
	for i := range ops {
		ops[i] = j.ring[(cursor+uint64(i))%uint64(len(j.ring))]
	}
	return ops, cursor + n, gap
}

// Changed returns a channel that is closed at the next append. Take it before
// Read, so that nothing is missed between the two.
func (j *Journal) Changed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return j.changed
}

// append keeps the op; own gives it this router's next sequence.
func (j *Journal) append(op Op, own bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if own {
		j.ownSeq++
		op.Seq = j.ownSeq
	}
	j.ring[j.head%uint64(len(j.ring))] = op
	j.head++
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}
