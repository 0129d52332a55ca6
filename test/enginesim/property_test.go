package enginesim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naivePool is the cache written the plain way: a slice as free queue and the
// content of each block as text.
type naivePool struct {
	refs    []int
	content []string // "" = nothing findable
	free    []int    // next to be handed out first
}

func (n *naivePool) find(content string) bool { return slices.Contains(n.content, content) }

// The pool and the naive one, driven alike, hand out the same blocks, find the
// same contents and have the same free queue.
func TestPoolAgreesWithNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 12).Draw(t, "blocks")
		p := newBlockPool(size)
		n := &naivePool{refs: make([]int, size), content: make([]string, size)}
		for i := range size {
			n.free = append(n.free, i)
		}
		var held []int32 // one entry per reference
		hash := func(c string) uint64 { return chainSeed(c, "x") }
		name := func() string { return string(rune('a' + rapid.IntRange(0, 5).Draw(t, "content"))) }
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				if len(n.free) == 0 {
					t.Skip("no block is free: another step is drawn")
				}
				want := n.free[0]
				n.free = n.free[1:]
				n.refs[want], n.content[want] = 1, ""
				got := p.take()
				if int(got) != want {
					t.Fatalf("took block %d, want %d", got, want)
				}
				held = append(held, got)
			},
			"find and pin": func(t *rapid.T) {
				c := name()
				b := p.lookup(hash(c))
				if (b != none) != n.find(c) {
					t.Fatalf("lookup of %s: %d, want found %v", c, b, n.find(c))
				}
				if b == none {
					return
				}
				if n.content[b] != c {
					t.Fatalf("lookup of %s returns a block with %q", c, n.content[b])
				}
				if n.refs[b] == 0 {
					n.free = slices.DeleteFunc(n.free, func(x int) bool { return x == int(b) })
				}
				n.refs[b]++
				p.pin(b)
				held = append(held, b)
			},
			"publish": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held: another step is drawn")
				}
				b := held[rapid.IntRange(0, len(held)-1).Draw(t, "held")]
				c := name()
				if n.content[b] == "" {
					n.content[b] = c
				}
				p.publish(b, hash(c))
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held: another step is drawn")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "held")
				b := held[i]
				held = slices.Delete(held, i, i+1)
				if n.refs[b]--; n.refs[b] == 0 {
					n.free = append(n.free, int(b))
				}
				p.release(b)
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					t.Skip("clearing is rare: another step is drawn")
				}
				clear(n.content)
				p.clear()
			},
			"": func(t *rapid.T) {
				var free []int
				for b := p.head; b != none; b = p.blocks[b].next {
					free = append(free, int(b))
				}
				if !slices.Equal(free, n.free) || p.free != len(n.free) {
					t.Fatalf("free queue %v (%d), want %v", free, p.free, n.free)
				}
				for i, r := range n.refs {
					if int(p.blocks[i].ref) != r || p.blocks[i].cached != (n.content[i] != "") {
						t.Fatalf("block %d: %+v, want %d references and content %q", i, p.blocks[i], r, n.content[i])
					}
				}
			},
		})
	})
}

// shadow follows what each block really holds, as exact tokens.
type shadow struct {
	content map[int32]string
}

func exact(s *Seq, tokens int) string {
	var b strings.Builder
	fmt.Fprint(&b, s.Seed)
	for i := range tokens {
		fmt.Fprint(&b, ",", s.token(i))
	}
	return b.String()
}

// Whatever arrives, is aborted or cleared: blocks are conserved, what counts as a
// hit was computed and is still there, what is there is hit, and all that is not
// aborted ends with its full output.
func TestHitsAreTrueAndBlocksConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bt = 4
		cfg := CoreConfig{
			Blocks: rapid.IntRange(6, 24).Draw(t, "blocks"), BlockTokens: bt,
			MaxBatchedTokens: rapid.IntRange(4, 40).Draw(t, "budget"), MaxSeqs: rapid.IntRange(1, 4).Draw(t, "seqs"),
			MaxAdapters: rapid.IntRange(0, 1).Draw(t, "adapters"),
			Timing:      SimpleTiming{PrefillTokensPerSecond: 1000, Base: msec, PerStream: msec}, Speed: 1,
		}
		c := NewCore(cfg)
		sh := shadow{map[int32]string{}}
		var now time.Duration
		var all []*Seq
		aborted := map[*Seq]bool{}
		step := func() {
			at, ok := c.Next()
			if !ok {
				return
			}
			now = max(now, at)
			if c.busy {
				type work struct {
					s      *Seq
					blocks []int32
					from   int // blocks before were published earlier, and may be forgotten
					upTo   int
				}
				var done []work
				for _, s := range c.batch {
					if s.state == seqRunning {
						done = append(done, work{s, slices.Clone(s.blocks), s.published, s.computed + s.step})
					}
				}
				c.finish()
				for _, w := range done {
					for i := w.from; i < w.upTo/bt; i++ {
						sh.content[w.blocks[i]] = exact(w.s, (i+1)*bt)
					}
				}
			}
			start, ok := c.Next()
			if !ok || start > now {
				return
			}
			wasRunning := map[*Seq]int{}
			for _, s := range c.running {
				wasRunning[s] = len(s.blocks)
			}
			c.begin(start)
			admitted := []*Seq{}
			for _, s := range c.running {
				kept, was := wasRunning[s]
				if !was {
					kept = s.published
					admitted = append(admitted, s)
					for i, b := range s.blocks[:kept] {
						if sh.content[b] != exact(s, (i+1)*bt) {
							t.Fatalf("sequence %d hit block %d, which holds %q", s.ID, b, sh.content[b])
						}
					}
				}
				for _, b := range s.blocks[kept:] {
					delete(sh.content, b)
				}
			}
			for _, s := range admitted {
				if next := (s.published + 1) * bt; next < s.tokens() {
					for b, content := range sh.content {
						if content == exact(s, next) {
							t.Fatalf("sequence %d missed block %d, which holds its next tokens", s.ID, b)
						}
					}
				}
				if s.published*bt >= s.tokens() {
					t.Fatalf("sequence %d hit its last token", s.ID)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				tree := rapid.SliceOfN(rapid.Uint32Range(0, 1), 1, 5).Draw(t, "branches") // prompts share prefixes
				var prompt []uint32
				for i, b := range tree {
					for k := range 3 {
						prompt = append(prompt, b*1000+uint32(i*10+k))
					}
				}
				s := seq(uint64(len(all)+1), prompt, rapid.IntRange(0, 8).Draw(t, "output"))
				s.Output = func(i int) uint32 { return 7000 + uint32(i) }
				s.Adapter = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "adapter")
				s.Seed = chainSeed(s.Adapter, "")
				if err := c.Add(now+time.Duration(rapid.IntRange(0, 5).Draw(t, "delay"))*msec, s); err == nil {
					all = append(all, s)
				}
			},
			"step": func(*rapid.T) { step() },
			"abort": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("nothing runs: another step is drawn")
				}
				if s := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]; c.Abort(s) {
					aborted[s] = true
				}
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					t.Skip("clearing is rare: another step is drawn")
				}
				c.ClearCache()
				clear(sh.content)
			},
			"": func(t *rapid.T) { checkCore(t, c) },
		})
		for range 100_000 {
			if _, ok := c.Next(); !ok {
				break
			}
			step()
			checkCore(t, c)
		}
		for _, s := range all {
			if !aborted[s] && (s.state != seqDone || s.out != s.MaxOutput) {
				t.Fatalf("sequence %d ended with %d of %d tokens, state %d", s.ID, s.out, s.MaxOutput, s.state)
			}
		}
		if tot := c.Totals(); tot.Finished+tot.Aborted != int64(len(all)) {
			t.Fatalf("totals %+v of %d sequences", tot, len(all))
		}
	})
}

// The same arrivals give the same events, whenever Step is called.
func TestScheduleDoesNotDependOnWhenStepIsCalled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type arrival struct{ at, prompt, output int }
		arrivals := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) arrival {
			return arrival{rapid.IntRange(0, 200).Draw(t, "at"), rapid.IntRange(1, 100).Draw(t, "prompt"), rapid.IntRange(1, 10).Draw(t, "output")}
		}), 1, 12).Draw(t, "arrivals")
		slices.SortFunc(arrivals, func(a, b arrival) int { return a.at - b.at })
		run := func(calls func(c *Core, until time.Duration, take func([]Event))) (out []string) {
			c := handCore(func(cfg *CoreConfig) { cfg.Blocks = 16 })
			take := func(evs []Event) {
				for _, ev := range evs {
					out = append(out, fmt.Sprint(ev.Seq.ID, ev.Tokens, ev.At, ev.Finished))
				}
			}
			for i, a := range arrivals {
				calls(c, time.Duration(a.at)*msec, take)
				if err := c.Add(time.Duration(a.at)*msec+1, seq(uint64(i+1), ids(i%3, a.prompt), a.output)); err != nil {
					t.Fatal(err)
				}
			}
			calls(c, time.Hour, take)
			return out
		}
		timely := run(func(c *Core, until time.Duration, take func([]Event)) {
			for {
				at, ok := c.Next()
				if !ok || at > until {
					return
				}
				take(c.Step(at))
			}
		})
		late := run(func(c *Core, until time.Duration, take func([]Event)) { take(c.Step(until)) })
		if !slices.Equal(timely, late) {
			t.Fatalf("timely %v\nlate   %v", timely, late)
		}
	})
}
