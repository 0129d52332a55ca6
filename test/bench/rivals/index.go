package main

import (
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// index is what is compared. For each request it prepares the prompt once, says
// what every replica holds of it, and is told which replica it went to.
type index interface {
	// prepare fills pr with what match and insert need, from what a router has: our
	// index the JSON of the messages, the tree decoded text, the blocks decoded
	// messages.
	prepare(pr *prepared, p *prompt)
	// match fills dst[r] with the prompt tokens that replica r holds.
	match(dst []float64, pr *prepared, now time.Time)
	// insert notes that the prompt was served by a replica. With an outcome our
	// index also learns from it, as a router does from usage and answer.
	insert(pr *prepared, replica int, now time.Time, o *outcome)
	// told is the bytes that another router must get to know what the inserts since
	// the last call noted.
	told() int
	// snapshot is the bytes that a router without any knowledge must get.
	snapshot() int
}

// prepared is a prompt made ready; its slices are reused.
type prepared struct {
	p      *prompt
	marks  []prefix.Mark
	depths []int32
	total  prefix.Mark
	tokens []uint32
	hashes []uint64
}

// outcome is what the engine reported, and what had been predicted.
type outcome struct {
	cached, predicted int // tokens
}

// ours is state/prefix and state/sketch, as proxy and routing use them.
type ours struct {
	sketch  *sketch.Index
	hasher  prefix.Hasher
	ratio   prefix.Ratio
	slots   []state.Slot
	ids     []state.ReplicaID
	matches []sketch.Match
	now     time.Time
	answer  []prefix.Mark
	depths  []int32

	cursor  uint64
	batch   wire.OpBatch
	message []byte
}

// newOurs knows so many replicas; capacity is what their engines report, 0 when
// they report nothing. Bounds are out of the way.
func newOurs(replicas, entries int, capacity float64, start time.Time) *ours {
	o := &ours{now: start, matches: make([]sketch.Match, replicas)}
	numbers := map[state.ReplicaID]state.Slot{}
	for r := range replicas {
		id := state.ReplicaID(fmt.Sprintf("http://10.0.0.%d:8000", r+1))
		o.ids = append(o.ids, id)
		o.slots = append(o.slots, state.Slot(r))
		numbers[id] = state.Slot(r)
	}
	o.sketch = sketch.New(sketch.Config{
		Clock:  state.NewClock(1, start.Add(-time.Second)),
		Slots:  func(id state.ReplicaID) state.Slot { return numbers[id] },
		Bounds: sketch.Bounds{Bytes: 1 << 34, Entries: entries, EntriesPerReplica: entries, Journal: 64},
		Now:    func() time.Time { return o.now },
	})
	if capacity > 0 {
		for _, id := range o.ids {
			o.sketch.SetCapacity(id, capacity, sketch.CapacityEngine)
		}
	}
	return o
}

func (o *ours) prepare(pr *prepared, p *prompt) {
	pr.p = p
	marks, err := o.hasher.Marks(pr.marks[:0], prefix.Seed{Model: "sim-70b"}, prefix.Input{Kind: prefix.Chat, Messages: p.json})
	if err != nil {
		panic(err) // this program wrote the JSON
	}
	pr.marks, pr.total = marks, o.hasher.Total()
	pr.depths = o.estimate(pr.depths[:0], marks)
}

func (o *ours) estimate(dst []int32, marks []prefix.Mark) []int32 {
	for _, m := range marks {
		dst = append(dst, int32(o.ratio.Tokens(m)))
	}
	return dst
}

func (o *ours) match(dst []float64, pr *prepared, now time.Time) {
	o.now = now
	o.sketch.Lookup(o.matches, pr.marks, o.slots, now)
	for i, m := range o.matches {
		depth := func(n int) float64 {
			if n == 0 {
				return 0
			}
			return float64(pr.depths[n-1])
		}
		dst[i] = depth(m.Live)
		if m.Answer {
			solid := depth(m.Solid)
			dst[i] = solid + (dst[i]-solid)*m.Trust
		}
	}
}

func (o *ours) insert(pr *prepared, replica int, now time.Time, out *outcome) {
	o.now = now
	p := o.sketch.Place(o.ids[replica], pr.marks, pr.depths, now)
	p.First(now)
	if out != nil {
		p.Evidence(out.predicted, pr.p.promptTokens, out.cached)
		o.learn(pr)
		o.hasher.BeginAnswer("assistant")
		o.hasher.AnswerText(pr.p.answer)
		o.answer = o.hasher.EndAnswer(append(o.answer[:0], pr.marks...))
		o.depths = o.estimate(o.depths[:0], o.answer)
		p.Answer(o.answer, o.depths)
	}
	p.End(now)
}

// learn learns bytes per token from what the engine counted.
func (o *ours) learn(pr *prepared) { o.ratio.Learn(pr.total, pr.p.promptTokens) }

// told encodes the ops of one request as one message, as gossip would send them
// when nothing else happened within its 10 ms.
func (o *ours) told() int {
	ops, next, _ := o.sketch.Journal().Read(o.cursor, 64)
	o.batch.Reset()
	for i := range ops {
		o.batch.Add(&ops[i])
	}
	o.message = o.batch.Append(o.message[:0], o.cursor, next)
	o.cursor = next
	return len(o.message)
}

// snapshot is the bytes of everything known, as a new router gets it.
func (o *ours) snapshot() (size int) {
	var b wire.OpBatch
	o.sketch.Snapshot(func(op sketch.Op) bool {
		b.Add(&op)
		if b.Len() == 1000 {
			size += b.Size()
			b.Reset()
		}
		return true
	})
	return size + b.Size()
}

// treeIndex is the radix tree with a rule; bytes count as tokens by the prompt's
// own true ratio, which a router would have to guess.
type treeIndex struct {
	*tree
	answers bool // insert the answer too, when the outcome is known
	got     []int
	shown   int
	whole   []byte
}

func newTreeIndex(replicas int, r rule) *treeIndex {
	return &treeIndex{tree: newTree(r), got: make([]int, replicas)}
}

func (t *treeIndex) prepare(pr *prepared, p *prompt) { pr.p = p }

func (t *treeIndex) match(dst []float64, pr *prepared, _ time.Time) {
	t.tree.match(t.got, pr.p.text)
	perByte := float64(pr.p.promptTokens) / float64(len(pr.p.text))
	for i, n := range t.got {
		dst[i] = float64(n) * perByte
	}
}

func (t *treeIndex) insert(pr *prepared, replica int, now time.Time, out *outcome) {
	t.shown = len(pr.p.text) - t.got[replica]
	text := pr.p.text
	if t.answers && out != nil {
		t.whole = append(append(t.whole[:0], text...), "<|im_start|>assistant\n"...)
		t.whole = append(append(t.whole, pr.p.answer...), "<|im_end|>\n"...)
		text = t.whole
	}
	t.tree.insert(text, replica, now)
}

// told counts the text that the replica was not known to have, and 24 bytes: which
// node it hangs below, which replica, when. Nobody sends less without leaving the
// tree for hashes.
func (t *treeIndex) told() int { return t.shown + 24 }

func (t *treeIndex) snapshot() int {
	n := t.held
	for i := range t.lru {
		for h := t.lru[i].oldest; h != nil; h = h.next {
			n += 9 // replica and time
		}
	}
	return n
}

// blockIndex is the map of block hashes with a rule.
type blockIndex struct {
	*blocks
	answers bool // insert the answer too, when the outcome is known
	got     []int
	fresh   int
}

func newBlockIndex(replicas int, r rule) *blockIndex {
	return &blockIndex{blocks: newBlocks(r), got: make([]int, replicas)}
}

func (b *blockIndex) prepare(pr *prepared, p *prompt) {
	pr.p = p
	pr.tokens = appendPromptTokens(pr.tokens[:0], p)
	pr.hashes = appendBlockHashes(pr.hashes[:0], pr.tokens)
}

func (b *blockIndex) match(dst []float64, pr *prepared, _ time.Time) {
	b.blocks.match(b.got, pr.hashes)
	for i, n := range b.got {
		dst[i] = float64(n * blockTokens)
	}
}

func (b *blockIndex) insert(pr *prepared, replica int, now time.Time, out *outcome) {
	b.fresh = len(pr.hashes) - b.got[replica]
	if b.answers && out != nil {
		pr.hashes = appendBlockHashes(pr.hashes[:0], pr.p.tokens)
	}
	b.blocks.insert(pr.hashes, replica, now)
}

// told counts 8 bytes for each block the replica was not known to have, and 24:
// the block above them, which replica, when.
func (b *blockIndex) told() int { return 8*b.fresh + 24 }

func (b *blockIndex) snapshot() int { return 8*len(b.m) + 9*b.holds }
