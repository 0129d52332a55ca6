package sketch

import (
	"sync"
	"sync/atomic"
)

// Journal is a bounded ring of the ops that were news here, own and applied from
// others, at growing positions. Any number of readers follow it, each with its
// own cursor. Safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	ring    []Op          // guarded by mu; ring[p%len] holds position p
	head    uint64        // guarded by mu; position of the next op
	oldest  uint64        // guarded by mu; position of the oldest op kept
	ownSeq  uint64        // guarded by mu; sequence of the last own op
	changed chan struct{} // guarded by mu; nil while nobody waits

	limit   int64         // bytes, the ring included
	bytes   atomic.Int64  // of the ring and the chains in it
	dropped atomic.Uint64 // ops given up for limit
}

// newJournal returns a journal of size ops, whose chains take up to limit bytes.
func newJournal(size, limit int) *Journal {
	j := &Journal{ring: make([]Op, size), limit: int64(limit) + int64(size)*opBytes}
	j.bytes.Store(int64(size) * opBytes)
	return j
}

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
	if cursor < j.oldest || cursor > j.head {
		cursor, gap = j.oldest, true
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
	if j.head-j.oldest == uint64(len(j.ring)) {
		j.forget()
	}
	for add := chainBytes(&op); j.oldest < j.head && j.bytes.Load()+add > j.limit; {
		j.forget()
		j.dropped.Add(1)
	}
	j.ring[j.head%uint64(len(j.ring))] = op
	j.bytes.Add(chainBytes(&op))
	j.head++
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// forget gives up the oldest op. mu is held.
func (j *Journal) forget() {
	op := &j.ring[j.oldest%uint64(len(j.ring))]
	j.bytes.Add(-chainBytes(op))
	*op = Op{}
	j.oldest++
}

func chainBytes(op *Op) int64 { return int64(cap(op.Links)) * linkBytes }
