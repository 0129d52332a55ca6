package enginesim

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// blockPool owns the KV blocks. A block is in use (ref > 0, pinned) or in the
// free queue; a free block may still be cached under its hash and is then found
// by lookup until it is handed out again. Several blocks may carry one hash:
// requests that computed the same prefix side by side. Not safe for concurrent
// use.
type blockPool struct {
	blocks []block
	cached map[uint64]int32 // hash -> first block of a chain through twin
	// Free queue: least recently freed first, an intrusive list.
	head, tail int32
	free       int
	known      int   // blocks cached
	evicted    int64 // cached blocks handed out for other content
}

type block struct {
	ref        int32
	prev, next int32 // free queue; valid while ref == 0
	twin       int32 // next block with the same hash, or none
	hash       uint64
	cached     bool
}

const none int32 = -1

func newBlockPool(n int) *blockPool {
	p := &blockPool{blocks: make([]block, n), cached: make(map[uint64]int32), head: none, tail: none}
	for i := range p.blocks {
		p.blocks[i].twin = none
		p.push(int32(i))
	}
	return p
}

func (p *blockPool) used() int { return len(p.blocks) - p.free }

// push appends a block to the free queue.
func (p *blockPool) push(b int32) {
	p.blocks[b].prev, p.blocks[b].next = p.tail, none
	if p.tail == none {
		p.head = b
	} else {
		p.blocks[p.tail].next = b
	}
	p.tail = b
	p.free++
}

// unlink takes a block out of the free queue.
func (p *blockPool) unlink(b int32) {
	prev, next := p.blocks[b].prev, p.blocks[b].next
	if prev == none {
		p.head = next
	} else {
		p.blocks[prev].next = next
	}
	if next == none {
		p.tail = prev
	} else {
		p.blocks[next].prev = prev
	}
	p.free--
}

// lookup returns a block cached under the hash, or none.
func (p *blockPool) lookup(hash uint64) int32 {
	if b, ok := p.cached[hash]; ok {
		return b
	}
	return none
}

// pin adds a user to a block found by lookup.
func (p *blockPool) pin(b int32) {
	if p.blocks[b].ref == 0 {
		p.unlink(b)
	}
	p.blocks[b].ref++
}

// take hands out the block freed longest ago, pinned once; what it held is
// forgotten. The caller has checked that one is free.
func (p *blockPool) take() int32 {
	b := p.head
	p.unlink(b)
	if p.blocks[b].cached {
		p.forget(b)
		p.evicted++
	}
	p.blocks[b].ref = 1
	return b
}

// release drops one use; a block without users joins the free queue's end and
// stays cached. Callers release a request's blocks from last to first, so that
// the tail is evicted before the head.
func (p *blockPool) release(b int32) {
	p.blocks[b].ref--
	switch {
	case p.blocks[b].ref < 0:
		panic("enginesim: block released twice")
	case p.blocks[b].ref == 0:
		p.push(b)
	}
}

// publish makes a computed, pinned block findable under its hash.
func (p *blockPool) publish(b int32, hash uint64) {
	if p.blocks[b].cached {
		return
	}
	p.blocks[b].hash, p.blocks[b].cached, p.blocks[b].twin = hash, true, none
	p.known++
	first, ok := p.cached[hash]
	if !ok {
		p.cached[hash] = b
		return
	}
	p.blocks[b].twin = p.blocks[first].twin
	p.blocks[first].twin = b
}

// forget removes a block from the cache without touching its users.
func (p *blockPool) forget(b int32) {
	h := p.blocks[b].hash
	if first := p.cached[h]; first == b {
		if t := p.blocks[b].twin; t == none {
			delete(p.cached, h)
		} else {
			p.cached[h] = t
		}
	} else {
		for i := first; ; i = p.blocks[i].twin {
			if p.blocks[i].twin == b {
				p.blocks[i].twin = p.blocks[b].twin
				break
			}
		}
	}
	p.blocks[b].cached, p.blocks[b].twin = false, none
	p.known--
}

// clear forgets all cached content, pinned blocks included.
func (p *blockPool) clear() {
	clear(p.cached)
	p.known = 0
	for i := range p.blocks {
		p.blocks[i].cached, p.blocks[i].twin = false, none
	}
}

// chainSeed starts a hash chain for one adapter and cache salt.
func chainSeed(adapter, salt string) uint64 {
	if adapter == "" && salt == "" {
		return 0
	}
	return xxh3.HashString(adapter + "\x00" + salt)
}

// chainHash identifies a block by what precedes it and its own token ids.
func chainHash(parent uint64, ids []uint32) uint64 {
	var buf [8 + 4*64]byte
	b := binary.LittleEndian.AppendUint64(buf[:0], parent)
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return xxh3.Hash(b)
}

// HashChain appends to dst the chain hashes of the whole blocks of ids and
// returns it. It may be called from any goroutine, so that long prompts are
// hashed outside the scheduler.
func HashChain(dst []uint64, ids []uint32, blockTokens int, seed uint64) []uint64 {
	for len(ids) >= blockTokens {
		seed = chainHash(seed, ids[:blockTokens])
		dst = append(dst, seed)
		ids = ids[blockTokens:]
	}
	return dst
}
