package main

import (
	"slices"
	"time"
)

// corpus is all prompts seen so far, in order of their tokens: the exact longest
// common prefix of a new one is that with a neighbour.
type corpus struct {
	sorted [][]uint32
}

// longest returns how many leading tokens of the prompt some earlier prompt has,
// and adds the prompt.
func (c *corpus) longest(tokens []uint32) int {
	at, found := slices.BinarySearchFunc(c.sorted, tokens, slices.Compare)
	if found {
		return len(tokens)
	}
	n := 0
	if at > 0 {
		n = sharedTokens(c.sorted[at-1], tokens)
	}
	if at < len(c.sorted) {
		n = max(n, sharedTokens(c.sorted[at], tokens))
	}
	c.sorted = slices.Insert(c.sorted, at, tokens)
	return n
}

func sharedTokens(a, b []uint32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// engine is one replica's KV cache: an exact LRU of blocks, the tail of a request
// evicted before its head. It is a blocks of one replica, bounded to what the
// cache holds: what is a guess about an engine there is the engine itself here.
type engine struct {
	cache  *blocks
	hashes []uint64
}

func newEngine(capacityTokens int) *engine {
	return &engine{cache: newBlocks(rule{size: capacityTokens / blockTokens})}
}

// serve runs one request: it returns how many prompt tokens came from the cache
// and leaves prompt and answer in it. The last prompt token is always computed.
func (e *engine) serve(tokens []uint32, prompt int, now time.Time) (cached int) {
	var held [1]int
	e.hashes = appendBlockHashes(e.hashes[:0], tokens)
	e.cache.match(held[:], e.hashes)
	e.cache.insert(e.hashes, 0, now)
	return min(held[0], (prompt-1)/blockTokens) * blockTokens
}
