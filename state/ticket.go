package state

import "sync/atomic"

// Ticket is one request's own load at one replica, from dispatch to its end. It
// counts each change exactly once whatever the order and number of calls. Safe
// for concurrent use.
type Ticket struct {
	store    *Store
	cell     *Cell
	uncached int64
	phase    atomic.Int32 // 0 before the first token, 1 after, 2 ended
}

const (
	phasePrefill = iota
	phaseDecode
	phaseEnded
)

// Begin counts a request as sent to r with the given number of prompt tokens that
// r must prefill. It counts for the very next pick on this router.
func (s *Store) Begin(r *ReplicaView, uncached int) *Ticket {
	t := &Ticket{store: s, cell: r.Cell, uncached: int64(max(0, uncached))}
	t.cell.add(s.now(), 1, 1, t.uncached)
	s.touch()
	return t
}

// BeginUnder is Begin where r has fewer than limit requests of this router; else it
// counts nothing and returns nil.
func (s *Store) BeginUnder(r *ReplicaView, uncached int, limit int64) *Ticket {
	for {
		n := r.Cell.inFlight.Load()
		if n >= limit {
			return nil
		}
		if r.Cell.inFlight.CompareAndSwap(n, n+1) {
			break
		}
	}
	t := &Ticket{store: s, cell: r.Cell, uncached: int64(max(0, uncached))}
	t.cell.add(s.now(), 0, 1, t.uncached)
	s.touch()
	return t
}

// FirstToken says that the prefill is over. Later calls, and calls after End, do
// nothing.
func (t *Ticket) FirstToken() {
	if t.phase.CompareAndSwap(phasePrefill, phaseDecode) {
		now := t.store.now()
		t.cell.add(now, 0, -1, -t.uncached)
		if c := t.cell.clock; c != nil {
			t.cell.first.Store(max(1, int64(c.Since(now))))
		}
		t.store.touch()
	}
}

// End takes the request off the replica's load. It reports whether this call did.
func (t *Ticket) End() bool {
	switch t.phase.Swap(phaseEnded) {
	case phasePrefill:
		t.cell.add(t.store.now(), -1, -1, -t.uncached)
	case phaseDecode:
		t.cell.add(t.store.now(), -1, 0, 0)
	default:
		return false
	}
	t.store.touch()
	return true
}

// touch signals Changed without blocking.
func (s *Store) touch() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}
