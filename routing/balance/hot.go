package balance

import (
	"cmp"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

const (
	// A prompt is counted by one mark of each rung: the deepest one of at most firstRung,
	// 2*firstRung, 4*firstRung, ... tokens. Prompts that share that much share that mark.
	firstRung = 128
	rungs     = 8 // up to 16k tokens
	// kept is the prefixes counted on each rung: a share can be wrong by 1/kept.
	kept = 32
	// hotHalfLife fades the counts: half of the weight is of the last 20 s, 7/8 of the
	// last minute.
	hotHalfLife = 20 * time.Second
	// hotLeast is the least share that is worth telling, and hotPicks what it rests on
	// at least.
	hotLeast = 0.05
	hotPicks = 10
	// hotRequests is what a prefix's requests come to at least: a single prompt shares
	// nothing, however few there are. Counts fade, so that two of the last moments pass.
	hotRequests = 1.5
	// hotSame is the share of a prefix's requests from which on a deeper one tells of
	// it as well.
	hotSame = 0.8
)

// hot counts the prefixes that most prompts begin with, in bounded memory: Space-Saving
// (Metwally et al., Efficient Computation of Frequent and Top-k Elements in Data
// Streams), once per rung. Of prompts it knows nothing but hashes.
type hot struct {
	seen  float64 // prompts, fading
	rungs [rungs]frequent
}

// frequent is the most frequent marks of one rung.
type frequent struct {
	n      int
	hashes [kept]uint64 // of list: what is searched lies together
	list   [kept]counted
}

// counted is a mark and its count, at most over too high.
type counted struct {
	hash, above uint64 // above: the mark of the rung before
	tokens      int32
	count, over float64
}

// sure is what the count is at least.
func (c *counted) sure() float64 { return c.count - c.over }

// offer counts one prompt.
func (h *hot) offer(marks []prefix.Mark, tokens []int32) {
	h.seen++
	at, above := 0, uint64(0)
	for i := range h.rungs {
		rung := int32(firstRung) << i
		next := at
		for next < len(marks) && next < len(tokens) && tokens[next] <= rung {
			next++
		}
		if next > at {
			above = h.rungs[i].add(marks[next-1].Hash, above, tokens[next-1])
		} else if at > 0 {
			return // the prompt has ended, or its marks lie too far apart
		}
		at = next
	}
}

// add counts a mark, in the place of the least frequent one where there is no room.
func (f *frequent) add(hash, above uint64, tokens int32) uint64 {
	for i, h := range f.hashes[:f.n] {
		if h == hash {
			f.list[i].count++
			return hash
		}
	}
	at, floor := f.n, 0.0
	if f.n < kept {
		f.n++
	} else {
		at = 0
		for i := range f.list {
			if f.list[i].count < f.list[at].count {
				at = i
			}
		}
		floor = f.list[at].count
	}
	f.hashes[at] = hash
	f.list[at] = counted{hash: hash, above: above, tokens: tokens, count: floor + 1, over: floor}
	return hash
}

// fade lets counts fade over d.
func (h *hot) fade(d time.Duration) {
	keep := fade(d, hotHalfLife)
	h.seen *= keep
	for i := range h.rungs {
		f := &h.rungs[i]
		for j := range f.list[:f.n] {
			f.list[j].count *= keep
			f.list[j].over *= keep
		}
	}
}

// top lists up to n prefixes with the greatest shares: of those that lie on one another
// and have about as many requests, the deepest.
func (h *hot) top(n int) []state.HotPrefix {
	if h.seen < hotPicks {
		return nil
	}
	var list []state.HotPrefix
	for i := range h.rungs {
		f := &h.rungs[i]
		for j := range f.list[:f.n] {
			c := &f.list[j]
			if c.sure() < max(hotRequests, hotLeast*h.seen) || i+1 < rungs && h.rungs[i+1].follows(c) {
				continue
			}
			list = append(list, state.HotPrefix{Mark: c.hash, Tokens: int(c.tokens), Share: min(1, c.sure()/h.seen)})
		}
	}
	slices.SortFunc(list, func(a, b state.HotPrefix) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Mark, b.Mark))
	})
	return slices.Clip(list[:min(len(list), n)])
}

// follows reports whether a deeper prefix has about the same requests.
func (f *frequent) follows(c *counted) bool {
	for i := range f.list[:f.n] {
		if x := &f.list[i]; x.above == c.hash && x.sure() >= hotSame*c.sure() {
			return true
		}
	}
	return false
}
