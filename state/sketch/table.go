package sketch

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hearsay-llm/hearsay/state"
)

// table finds the entries of a mark, in shards that are locked for one mark at a
// time. A replica's mu may be held while a shard's is taken, never the reverse.
// It grows and shrinks with what is in it.
type table struct {
	bytes  atomic.Int64 // of cells and holders
	shards [shardCount]shard
}

const (
	shardBits  = 10
	shardCount = 1 << shardBits // so many that resizing one is a matter of microseconds
)

// shard is a hash table with open addressing and linear probing.
type shard struct {
	mu    sync.RWMutex
	cells []cell // guarded by mu; a power of two, or none
	used  int    // guarded by mu
	_     [72]byte
}

// cell is a mark and who holds it: one entry, or several.
type cell struct {
	hash uint64 // 0: free
	one  *entry
	many *holders // from two holders on; one is nil then
}

// holders ascend by slot. From manyHolders on there is a bit set too, so that a
// reader goes straight to the few holders it still looks for.
type holders struct {
	refs []ref
	set  []uint64
}

// ref is one holder of a mark. The slot stands beside the pointer, so that a
// reader skips holders it does not look for without touching them.
type ref struct {
	e    *entry
	slot state.Slot
}

const (
	manyHolders = 16
	minCells    = 8

	cellBytes    = int64(unsafe.Sizeof(cell{}))
	holdersBytes = int64(unsafe.Sizeof(holders{}))
	refBytes     = int64(unsafe.Sizeof(ref{}))
)

func (h *holders) bytes() int64 {
	return holdersBytes + int64(cap(h.refs))*refBytes + int64(cap(h.set))*8
}

func (t *table) shard(hash uint64) *shard { return &t.shards[hash>>(64-shardBits)] }

func bySlot(r ref, slot state.Slot) int { return cmp.Compare(r.slot, slot) }

// home is where the search for a hash begins among n cells.
func home(hash uint64, n int) int {
	return int(hash * 0x9e3779b97f4a7c15 >> 32 & uint64(n-1))
}

// at is the index of the mark's cell, or -1. mu is held.
func (s *shard) at(hash uint64) int {
	n := len(s.cells)
	if n == 0 || hash == 0 {
		return -1
	}
	for i := home(hash, n); ; i = (i + 1) & (n - 1) {
		switch s.cells[i].hash {
		case hash:
			return i
		case 0:
			return -1
		}
	}
}

// find returns the mark's cell, or nil. mu is held.
func (s *shard) find(hash uint64) *cell {
	if i := s.at(hash); i >= 0 {
		return &s.cells[i]
	}
	return nil
}

// resize moves all cells into n new ones.
func (s *shard) resize(n int) {
	old := s.cells
	s.cells = make([]cell, n)
	for i := range old {
		if old[i].hash != 0 {
			*s.free(old[i].hash) = old[i]
		}
	}
}

// free is the cell a new mark goes into.
func (s *shard) free(hash uint64) *cell {
	n := len(s.cells)
	i := home(hash, n)
	for s.cells[i].hash != 0 {
		i = (i + 1) & (n - 1)
	}
	return &s.cells[i]
}

// remove frees a cell and moves those up that were pushed on by it.
func (s *shard) remove(gap int) {
	n := len(s.cells)
	for i := (gap + 1) & (n - 1); s.cells[i].hash != 0; i = (i + 1) & (n - 1) {
		// A cell may move to the gap unless its home lies behind it, up to the cell.
		if h := home(s.cells[i].hash, n); (i-h)&(n-1) >= (i-gap)&(n-1) {
			s.cells[gap] = s.cells[i]
			gap = i
		}
	}
	s.cells[gap] = cell{}
	s.used--
}

func (t *table) get(hash uint64, slot state.Slot) *entry {
	s := t.shard(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.find(hash)
	switch {
	case c == nil:
	case c.many != nil:
		if i, ok := slices.BinarySearchFunc(c.many.refs, slot, bySlot); ok {
			return c.many.refs[i].e
		}
	case c.one.slot == slot:
		return c.one
	}
	return nil
}

// put adds an entry that is not there yet.
func (t *table) put(e *entry) {
	s := t.shard(e.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(e.hash)
	if c == nil {
		if n := len(s.cells); 4*(s.used+1) > 3*n {
			more := max(minCells, 2*n)
			s.resize(more)
			t.bytes.Add(int64(more-n) * cellBytes)
		}
		s.used++
		*s.free(e.hash) = cell{hash: e.hash, one: e}
		return
	}
	var before int64
	if c.many == nil {
		c.many, c.one = &holders{refs: append(make([]ref, 0, 2), ref{c.one, c.one.slot})}, nil
	} else {
		before = c.many.bytes()
	}
	h := c.many
	i, _ := slices.BinarySearchFunc(h.refs, e.slot, bySlot)
	h.refs = slices.Insert(h.refs, i, ref{e, e.slot})
	switch {
	case len(h.refs) == manyHolders:
		for _, r := range h.refs {
			h.set = setBit(h.set, r.slot)
		}
	case len(h.refs) > manyHolders:
		h.set = setBit(h.set, e.slot)
	}
	t.bytes.Add(h.bytes() - before)
}

func setBit(set []uint64, slot state.Slot) []uint64 {
	if n := int(slot/64) + 1; n > len(set) {
		set = append(set, make([]uint64, n-len(set))...)
	}
	set[slot/64] |= 1 << (slot % 64)
	return set
}

// drop removes an entry, and gives back what is no longer needed.
func (t *table) drop(e *entry) {
	s := t.shard(e.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.at(e.hash)
	if i < 0 {
		return
	}
	switch c := &s.cells[i]; {
	case c.many != nil:
		t.dropHolder(c, e)
	case c.one == e:
		s.remove(i)
		if n := len(s.cells); n > minCells && 16*s.used < 3*n {
			s.resize(n / 2)
			t.bytes.Add(-int64(n/2) * cellBytes)
		} else if s.used == 0 {
			s.cells = nil
			t.bytes.Add(-int64(n) * cellBytes)
		}
	}
}

func (t *table) dropHolder(c *cell, e *entry) {
	h := c.many
	i, ok := slices.BinarySearchFunc(h.refs, e.slot, bySlot)
	if !ok || h.refs[i].e != e {
		return
	}
	before := h.bytes()
	h.refs = slices.Delete(h.refs, i, i+1)
	switch n := len(h.refs); {
	case n == 1:
		c.one, c.many = h.refs[0].e, nil
		t.bytes.Add(-before)
		return
	case n < manyHolders:
		h.set = nil
	default:
		h.set[e.slot/64] &^= 1 << (e.slot % 64)
	}
	if n := len(h.refs); cap(h.refs) > 4*n {
		h.refs = append(make([]ref, 0, 2*n), h.refs...)
	}
	t.bytes.Add(h.bytes() - before)
}
