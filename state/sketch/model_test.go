package sketch

import (
	"container/list"
	"math/rand/v2"
	"slices"

	"github.com/hearsay-llm/hearsay/state/prefix"
)

// blockCache is an exact LRU of 16-token blocks, as engines have: blocks are
// chained by what precedes them, and a request's are released tail first.
type blockCache struct {
	size int
	lru  *list.List // front: newest
	at   map[uint64]*list.Element
}

func newBlockCache(tokens int) *blockCache {
	return &blockCache{size: tokens / blockTokens, lru: list.New(), at: map[uint64]*list.Element{}}
}

// serve takes the hashes of prompt and answer blocks and returns the tokens of
// the prompt that were cached.
func (c *blockCache) serve(prompt, whole []uint64, promptTokens int) (cached int) {
	for i, h := range prompt {
		if c.at[h] == nil || (i+1)*blockTokens >= promptTokens {
			break
		}
		cached += blockTokens
	}
	for _, h := range whole {
		if e := c.at[h]; e != nil {
			c.lru.Remove(e)
			delete(c.at, h)
		}
	}
	for c.lru.Len()+len(whole) > c.size && c.lru.Len() > 0 {
		delete(c.at, c.lru.Remove(c.lru.Back()).(uint64))
	}
	for _, h := range slices.Backward(whole) {
		c.at[h] = c.lru.PushFront(h)
	}
	return cached
}

// text is a prompt as segments (messages), each of a number of tokens.
type text []segment

type segment struct {
	id     uint64
	tokens int
}

func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 ^ b
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31 | 1
}

func (t text) tokens() (n int) {
	for _, s := range t {
		n += s.tokens
	}
	return n
}

// hashes returns the hashes of whole blocks, and marks at message ends and at
// growing distances, as state/prefix sets them; depths are off by bias.
func (t text) hashes(bias float64) (blocks []uint64, m []prefix.Mark, depth []int32) {
	h, pos, next := uint64(7), 0, 64
	add := func() {
		if n := len(m); n == 0 || m[n-1].Hash != h {
			m, depth = append(m, prefix.Mark{Hash: h}), append(depth, int32(float64(pos)*bias))
		}
	}
	for _, s := range t {
		for k := range s.tokens {
			h = mix(h, s.id+uint64(k)<<32)
			if pos++; pos%blockTokens == 0 {
				blocks = append(blocks, h)
			}
			if pos == next {
				add()
				next += max(64, next/16)
			}
		}
		add()
	}
	return blocks, m, depth
}

// chats is a workload of conversations over shared system prompts: revisits are
// skewed to recent ones, and each turn sends the whole history again.
type chats struct {
	rng  *rand.Rand
	open []text
	seq  uint64
}

func (c *chats) id() uint64 { c.seq++; return c.seq<<8 | 0xff }

func (c *chats) next() (prompt, whole text, done func()) {
	i := len(c.open)
	if i < 12 || c.rng.Float64() < 0.12 {
		sys := c.rng.IntN(8)
		c.open = append(c.open, text{{uint64(sys), 500 + 200*sys}})
	} else {
		i = max(0, i-1-int(c.rng.ExpFloat64()*20))
	}
	prompt = append(slices.Clone(c.open[i]), segment{c.id(), 30 + c.rng.IntN(300)})
	whole = append(slices.Clone(prompt), segment{c.id(), 50 + c.rng.IntN(300)})
	return prompt, whole, func() {
		if c.open[i] = whole; len(whole) > 12 {
			c.open[i] = slices.Clone(whole[:1])
		}
	}
}
