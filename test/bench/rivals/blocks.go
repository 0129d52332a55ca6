package main

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// blockTokens is the size of an engine's KV block.
const blockTokens = 16

// blocks is a map of chained hashes of blocks of 16 tokens; each block knows which
// replicas saw it and when last. Beyond its bound a replica forgets its least
// recently used block. It counts as engines do, to the block, and needs the
// engine's own tokeniser.
type blocks struct {
	mu    sync.RWMutex
	m     map[uint64]*block // guarded by mu
	lru   [64]lru[block]    // guarded by mu; sizes in blocks
	rule  rule              // size in blocks per replica
	holds int               // guarded by mu
}

type block struct {
	hash uint64
	holders[block]
}

func newBlocks(r rule) *blocks { return &blocks{m: make(map[uint64]*block), rule: r} }

// appendBlockHashes appends the hash of every whole block of tokens: of its tokens
// and of all blocks before it.
func appendBlockHashes(dst []uint64, tokens []uint32) []uint64 {
	var buf [8 + 4*blockTokens]byte
	var parent uint64
	for ; len(tokens) >= blockTokens; tokens = tokens[blockTokens:] {
		binary.LittleEndian.PutUint64(buf[:], parent)
		for i, t := range tokens[:blockTokens] {
			binary.LittleEndian.PutUint32(buf[8+4*i:], t)
		}
		parent = xxh3.Hash(buf[:])
		dst = append(dst, parent)
	}
	return dst
}

// match fills dst[r] with the leading blocks that replica r saw.
func (b *blocks) match(dst []int, hashes []uint64) {
	clear(dst)
	b.mu.RLock()
	defer b.mu.RUnlock()
	alive := ^uint64(0) >> (64 - len(dst))
	at := 0
	leave := func(set uint64) {
		for ; set != 0; set &= set - 1 {
			dst[bits.TrailingZeros64(set)] = at
		}
	}
	for ; at < len(hashes) && alive != 0; at++ {
		x := b.m[hashes[at]]
		if x == nil {
			break
		}
		leave(alive &^ x.set)
		alive &= x.set
	}
	leave(alive)
}

// insert notes that the replica sees the blocks now.
func (b *blocks) insert(hashes []uint64, replica int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := uint8(replica)
	l := &b.lru[r]
	for _, hash := range slices.Backward(hashes) { // so that the tail is forgotten before the head
		x := b.m[hash]
		if x == nil {
			x = &block{hash: hash}
			b.m[hash] = x
		}
		at, ok := x.find(r)
		if ok {
			l.touch(x.list[at], now)
			continue
		}
		h := &hold[block]{of: x, replica: r, used: now}
		x.put(at, h)
		l.add(h)
		l.size++
		b.holds++
	}
	for l.oldest != nil && b.rule.over(l.size, l.oldest.used, now) {
		b.forget(l)
	}
}

// forget removes a replica's oldest hold, and the block if it was the last.
func (b *blocks) forget(l *lru[block]) {
	h := l.oldest
	l.remove(h)
	l.size--
	b.holds--
	h.of.drop(h.replica)
	if h.of.set == 0 {
		delete(b.m, h.of.hash)
	}
}
