package sketch

import (
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
	m  map[uint64][]ref // guarded by mu
	_  [64]byte         // keeps the locks of two shards out of one cache line
}

// ref is one holder of a mark. The slot stands beside the pointer, so that a
// reader skips holders it does not look for without touching them.
type ref struct {
	e    *entry
	slot state.Slot
}

func (t *table) init() {
	for i := range t.shards {
		t.shards[i].m = make(map[uint64][]ref)
	}
}

func (t *table) shard(hash uint64) *shard { return &t.shards[hash>>56] }

func (t *table) get(hash uint64, slot state.Slot) *entry {
	s := t.shard(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.m[hash] {
		if r.slot == slot {
			return r.e
		}
	}
	return nil
}

func (t *table) put(e *entry, slot state.Slot) {
	s := t.shard(e.hash)
	s.mu.Lock()
	s.m[e.hash] = append(s.m[e.hash], ref{e, slot})
	s.mu.Unlock()
}

func (t *table) drop(e *entry) {
	s := t.shard(e.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := s.m[e.hash]
	for i := range refs {
		if refs[i].e != e {
			continue
		}
		n := len(refs) - 1
		if n == 0 {
			delete(s.m, e.hash)
			return
		}
		refs[i], refs[n] = refs[n], ref{}
		s.m[e.hash] = refs[:n]
		return
	}
}
