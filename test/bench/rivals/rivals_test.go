package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// told is what a replica was sent, in order: the reference the indexes must agree
// with as long as nothing is forgotten.
type told [][]byte

func (l told) longest(text []byte) int {
	n := 0
	for _, t := range l {
		same := 0
		for same < len(t) && same < len(text) && t[same] == text[same] {
			same++
		}
		n = max(n, same)
	}
	return n
}

// fewLetters draws texts that often share prefixes and part anywhere.
func fewLetters(t *rapid.T) []byte {
	return rapid.SliceOfN(rapid.SampledFrom([]byte("ab")), 0, 24).Draw(t, "text")
}

func TestTreeKnowsEveryPrefixExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const replicas = 4
		x := newTree(rule{})
		var sent [replicas]told
		for range rapid.IntRange(1, 40).Draw(t, "prompts") {
			r := rapid.IntRange(0, replicas-1).Draw(t, "replica")
			text := fewLetters(t)
			x.insert(text, r, time.Time{})
			sent[r] = append(sent[r], text)
			x.check(t)
		}
		var got [replicas]int
		for range 5 {
			text := fewLetters(t)
			x.match(got[:], text)
			for r := range sent {
				if want := sent[r].longest(text); got[r] != want {
					t.Fatalf("replica %d: %d bytes of %q, want %d; it saw %q", r, got[r], text, want, sent[r])
				}
			}
		}
	})
}

func TestTreeStaysWithinItsBoundAndForgetsTheOldest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(1, 60).Draw(t, "bound")
		x := newTree(rule{size: bound})
		var last []byte
		for range rapid.IntRange(1, 40).Draw(t, "prompts") {
			r := rapid.IntRange(0, 2).Draw(t, "replica")
			last = fewLetters(t)
			x.insert(last, r, time.Time{})
			x.check(t)
			if x.lru[r].size > bound {
				t.Fatalf("replica %d holds %d bytes, bound %d", r, x.lru[r].size, bound)
			}
			var got [3]int
			if x.match(got[:], last); len(last) <= bound && got[r] != len(last) {
				t.Fatalf("the prompt just sent is known to %d of %d bytes", got[r], len(last))
			}
		}
	})
}

// check tests what must always hold of a tree.
func (t *tree) check(f *rapid.T) {
	var sizes [64]int
	held := 0
	var walk func(n *node)
	walk = func(n *node) {
		for i, k := range n.kids {
			switch {
			case len(k.text) == 0 || k.parent != n:
				f.Fatalf("a node without text or of another parent: %q", k.text)
			case i > 0 && n.kids[i-1].text[0] >= k.text[0]:
				f.Fatalf("children out of order below %q", n.text)
			case k.set == 0:
				f.Fatalf("nobody holds %q", k.text)
			case n != &t.root && k.set&^n.set != 0:
				f.Fatalf("%q is held where its parent is not", k.text)
			}
			held += len(k.text)
			for _, h := range k.list {
				sizes[h.replica] += len(k.text)
			}
			walk(k)
		}
	}
	walk(&t.root)
	for r := range sizes {
		if sizes[r] != t.lru[r].size {
			f.Fatalf("replica %d is counted to hold %d bytes and holds %d", r, t.lru[r].size, sizes[r])
		}
	}
	if held != t.held {
		f.Fatalf("%d bytes of text are counted as %d", held, t.held)
	}
}

func TestBlocksMatchWholeBlocksOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Uint32Range(1, 2), 1, 6*blockTokens)
		long, other := tokens.Draw(t, "one"), tokens.Draw(t, "other")
		x := newBlocks(rule{})
		x.insert(appendBlockHashes(nil, long), 3, time.Time{})
		var got [8]int
		x.match(got[:], appendBlockHashes(nil, other))
		want := min(sharedTokens(long, other)/blockTokens, len(other)/blockTokens)
		if got[3] != want {
			t.Fatalf("%d blocks, want %d", got[3], want)
		}
		if got[3] = 0; slices.Max(got[:]) != 0 {
			t.Fatalf("replicas that saw nothing hold %v", got)
		}
	})
}

// exactLRU is the plainest block cache: a list of hashes, oldest first.
type exactLRU struct {
	list  []uint64
	bound int
}

func (l *exactLRU) serve(hashes []uint64) (held int) {
	for held < len(hashes) && slices.Contains(l.list, hashes[held]) {
		held++
	}
	for _, h := range slices.Backward(hashes) {
		if i := slices.Index(l.list, h); i >= 0 {
			l.list = slices.Delete(l.list, i, i+1)
		}
		l.list = append(l.list, h)
	}
	l.list = l.list[max(0, len(l.list)-l.bound):]
	return held
}

func TestBoundedBlocksAreAnExactLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ref := exactLRU{bound: rapid.IntRange(1, 12).Draw(t, "bound")}
		x := newBlocks(rule{size: ref.bound})
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			tokens := rapid.SliceOfN(rapid.Uint32Range(1, 2), 0, 8).Draw(t, "blocks")
			var ids []uint32
			for _, b := range tokens { // a block of 16 equal tokens
				ids = append(ids, bytesOf(b)...)
			}
			hashes := appendBlockHashes(nil, ids)
			var got [1]int
			x.match(got[:], hashes)
			if want := ref.serve(hashes); got[0] != want {
				t.Fatalf("%d blocks, want %d", got[0], want)
			}
			x.insert(hashes, 0, time.Time{})
			if len(x.m) != len(ref.list) || x.lru[0].size != len(ref.list) {
				t.Fatalf("%d blocks are kept, want %d", len(x.m), len(ref.list))
			}
		}
	})
}

func bytesOf(b uint32) (ids []uint32) {
	for range blockTokens {
		ids = append(ids, b)
	}
	return ids
}

func TestTimeToLiveForgetsWhatIsOld(t *testing.T) {
	start := time.Now()
	r := rule{ttl: time.Minute}
	tr, bl := newTree(r), newBlocks(r)
	a, b := []byte("first prompt"), []byte("second prompt")
	ha, hb := []uint64{1, 2}, []uint64{3}
	tr.insert(a, 0, start)
	bl.insert(ha, 0, start)
	tr.insert(b, 0, start.Add(61*time.Second))
	bl.insert(hb, 0, start.Add(61*time.Second))
	var got [1]int
	if tr.match(got[:], a); got[0] != 0 {
		t.Errorf("the tree still holds %d bytes of what was used a minute ago", got[0])
	}
	if bl.match(got[:], ha); got[0] != 0 {
		t.Errorf("%d blocks used a minute ago are still held", got[0])
	}
	if tr.match(got[:], b); got[0] != len(b) {
		t.Errorf("the tree lost what was used now")
	}
}

func TestLongestCommonPrefixIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c corpus
	var all [][]uint32
	for range 400 {
		p := make([]uint32, rng.IntN(12))
		for i := range p {
			p[i] = rng.Uint32N(2)
		}
		want := 0
		for _, o := range all {
			want = max(want, sharedTokens(o, p))
		}
		if got := c.longest(p); got != want {
			t.Fatalf("longest common prefix %d, want %d", got, want)
		}
		all = append(all, p)
	}
}

func TestPromptsRenderTheSameEverywhere(t *testing.T) {
	for _, kind := range corpora {
		prompts, err := load(kind.name, 40, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(prompts) != 40 {
			t.Fatalf("%s: %d prompts", kind.name, len(prompts))
		}
		for _, p := range prompts {
			p.render()
			var pr prepared
			pr.p = p
			pr.tokens = appendPromptTokens(nil, p)
			if !slices.Equal(pr.tokens, p.tokens[:p.promptTokens]) {
				t.Fatalf("%s: the tokeniser of the rival and of the engine differ", kind.name)
			}
			if p.turn > 0 && p.before != nil {
				p.before.render()
				if !bytes.HasPrefix(p.text, p.before.text) {
					t.Fatalf("%s: a follow-up does not begin with the turn before", kind.name)
				}
				if n := len(p.before.tokens); !slices.Equal(p.tokens[:n], p.before.tokens) {
					t.Fatalf("%s: a follow-up's tokens do not begin with the turn before and its answer", kind.name)
				}
			}
		}
	}
}
