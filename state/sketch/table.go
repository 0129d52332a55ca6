package sketch

import (
	"cmp"
	"slices"
	"sync"

	"github.com/hearsay-llm/hearsay/state"
)

// table finds the entries of a mark, in shards that are locked for one mark at a
// time. A replica's mu may be held while a shard's is taken, never the reverse.
type table struct {
	shards [shardCount]shard
}

const shardCount = 256

type shard struct {
	mu sync.RWMutex
	m  map[uint64][]ref    // guarded by mu; refs ascend by slot
	in map[uint64][]uint64 // guarded by mu; slots as a bit set, for marks with many holders
	_  [64]byte            // keeps the locks of two shards out of one cache line
}

// ref is one holder of a mark. The slot stands beside the pointer, so that a
// reader skips holders it does not look for without touching them.
type ref struct {
	e    *entry
	slot state.Slot
}

// manyHolders is the number of holders from which on a mark has a bit set: a
// reader then goes straight to the few holders it still looks for.
const manyHolders = 16

func (t *table) init() {
	for i := range t.shards {
		t.shards[i].m = make(map[uint64][]ref)
		t.shards[i].in = make(map[uint64][]uint64)
	}
}

func (t *table) shard(hash uint64) *shard { return &t.shards[hash>>56] }

func bySlot(r ref, slot state.Slot) int { return cmp.Compare(r.slot, slot) }

func (t *table) get(hash uint64, slot state.Slot) *entry {
	s := t.shard(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	refs := s.m[hash]
	if i, ok := slices.BinarySearchFunc(refs, slot, bySlot); ok {
		return refs[i].e
	}
	return nil
}

func (t *table) put(e *entry, slot state.Slot) {
	s := t.shard(e.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := s.m[e.hash]
	i, _ := slices.BinarySearchFunc(refs, slot, bySlot)
	refs = slices.Insert(refs, i, ref{e, slot})
	s.m[e.hash] = refs
	if len(refs) < manyHolders {
		return
	}
	set := s.in[e.hash]
	if set == nil {
		for _, r := range refs {
			set = setBit(set, r.slot)
		}
	}
	s.in[e.hash] = setBit(set, slot)
}

func setBit(set []uint64, slot state.Slot) []uint64 {
	for int(slot/64) >= len(set) {
		set = append(set, 0)
	}
	set[slot/64] |= 1 << (slot % 64)
	return set
}

func (t *table) drop(e *entry, slot state.Slot) {
	s := t.shard(e.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := s.m[e.hash]
	i, ok := slices.BinarySearchFunc(refs, slot, bySlot)
	if !ok || refs[i].e != e {
		return
	}
	refs = slices.Delete(refs, i, i+1)
	if len(refs) == 0 {
		delete(s.m, e.hash)
	} else {
		s.m[e.hash] = refs
	}
	if set := s.in[e.hash]; len(refs) < manyHolders {
		delete(s.in, e.hash)
	} else {
		set[slot/64] &^= 1 << (slot % 64)
	}
}
