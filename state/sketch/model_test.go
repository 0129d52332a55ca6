package sketch

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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

type outcome struct {
	median, mean, bias float64 // of |predicted - cached| over the larger; bias is signed
	ceff               float64
	hit                float64
}

// simulate runs requests on one cache and its sketch and reports over the last
// three quarters.
func simulate(seed uint64, cache int, given float64, requests int, bias float64) outcome {
	w := newWorld()
	x := w.index(1, Bounds{UnknownCapacity: 1 << 20})
	if given > 0 {
		x.SetCapacity("a", given, CapacityEngine)
	}
	truth, load := newBlockCache(cache), &chats{rng: rand.New(rand.NewPCG(seed, 1))}
	var errs []float64
	var o outcome
	var hit, all int
	for n := range requests {
		p, whole, done := load.next()
		blocks, m, d := p.hashes(bias)
		both, am, ad := whole.hashes(bias)
		w.at(time.Duration(n) * 400 * time.Millisecond)
		match := w.look(x, "a", m)
		predicted := 0
		if match.Live > 0 {
			predicted = int(d[match.Live-1])
			if match.Solid > 0 {
				predicted = int(d[match.Solid-1]) + int(match.Trust*float64(d[match.Live-1]-d[match.Solid-1]))
			} else {
				predicted = int(match.Trust * float64(predicted))
			}
		}
		predicted = min(int(float64(predicted)/bias), p.tokens()-1) / blockTokens * blockTokens
		pl := x.Place("a", m, d, w.now)
		cached := truth.serve(blocks, both, p.tokens())
		pl.First(w.at(time.Duration(n)*400*time.Millisecond + 50*time.Millisecond))
		pl.Answer(am, ad)
		pl.End(w.at(time.Duration(n)*400*time.Millisecond + 300*time.Millisecond))
		pl.Evidence(int(float64(predicted)*bias), p.tokens(), cached)
		done()
		if n < requests/4 {
			continue
		}
		hit, all = hit+cached, all+p.tokens()
		e := 0.0
		if top := max(predicted, cached); top > 0 {
			e = float64(predicted-cached) / float64(top)
		}
		o.bias += e
		errs = append(errs, max(e, -e))
	}
	slices.Sort(errs)
	for _, e := range errs {
		o.mean += e
	}
	o.mean, o.bias = o.mean/float64(len(errs)), o.bias/float64(len(errs))
	o.median = errs[len(errs)/2]
	o.ceff, o.hit = x.Stats("a").CEff, float64(hit)/float64(all)
	return o
}

func TestPredictionAgainstExactBlockLRU(t *testing.T) {
	f := func(cache int, given, bias float64, requests int) {
		t.Helper()
		t.Run(fmt.Sprintf("cache %d given %gx bias %g", cache, given, bias), func(t *testing.T) {
			for seed := range uint64(2) {
				o := simulate(seed, cache, given*float64(cache), requests, bias)
				t.Logf("seed %d: median %.3f mean %.3f bias %+.3f C_eff %.2fx hit %.2f", seed, o.median, o.mean, o.bias, o.ceff/float64(cache), o.hit)
				if o.median > 0.05 {
					t.Errorf("median error %.3f", o.median)
				}
				if o.mean > 0.05 {
					t.Errorf("mean error %.3f", o.mean)
				}
				if ratio := o.ceff / float64(cache); ratio < 0.85 || ratio > 1.2 {
					t.Errorf("C_eff ends at %.2f of the truth", ratio)
				}
			}
		})
	}
	for _, cache := range []int{12_000, 30_000, 80_000} {
		f(cache, 1, 1, 1000)
		f(cache, 2, 1.15, 1000)
		f(cache, 0.5, 0.9, 1000)
	}
	f(30_000, 0, 1, 2000) // nobody gave a capacity
}
