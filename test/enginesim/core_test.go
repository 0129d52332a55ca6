package enginesim

import (
	"fmt"
	"testing"
	"time"
)

const msec = time.Millisecond

// handCore has blocks of 16 tokens, steps of 10 ms plus 1 ms per 16 prefill
// tokens plus 1 ms per decoding stream, and a budget of 64 tokens per step.
func handCore(change func(*CoreConfig)) *Core {
	cfg := CoreConfig{
		Blocks: 64, BlockTokens: 16, MaxBatchedTokens: 64, MaxSeqs: 8, Speed: 1,
		Timing: SimpleTiming{PrefillTokensPerSecond: 16_000, Base: 10 * msec, PerStream: msec},
	}
	if change != nil {
		change(&cfg)
	}
	return NewCore(cfg)
}

// ids returns n token ids that start a sequence of its own per from.
func ids(from, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(from*100_000 + i)
	}
	return out
}

func seq(id uint64, prompt []uint32, output int) *Seq {
	return &Seq{ID: id, Prompt: prompt, MaxOutput: output, Output: func(i int) uint32 { return uint32(id)*1_000_000 + uint32(i) }}
}

// run steps the core until it is idle and returns what happened as
// "id:tokens@ms", with "!" at a sequence's end.
func run(t *testing.T, c *Core) []string {
	t.Helper()
	var out []string
	for range 10_000 {
		at, ok := c.Next()
		if !ok {
			return out
		}
		for _, ev := range c.Step(at) {
			s := fmt.Sprintf("%d:%d@%g", ev.Seq.ID, ev.Tokens, ms(ev.At))
			if ev.Finished {
				s += "!"
			}
			out = append(out, s)
		}
		checkCore(t, c)
	}
	t.Fatal("core does not come to rest")
	return nil
}

// checkCore verifies that blocks are conserved and counted right.
func checkCore(t interface {
	Helper()
	Fatalf(string, ...any)
}, c *Core,
) {
	t.Helper()
	refs := make([]int32, len(c.pool.blocks))
	for _, s := range c.running {
		if len(s.blocks) < ceilDiv(s.computed, c.cfg.BlockTokens) {
			t.Fatalf("sequence %d computed %d tokens in %d blocks", s.ID, s.computed, len(s.blocks))
		}
		for _, b := range s.blocks {
			refs[b]++
		}
	}
	free := 0
	for b := c.pool.head; b != none; b = c.pool.blocks[b].next {
		if refs[b] != 0 {
			t.Fatalf("block %d is free and used %d times", b, refs[b])
		}
		free++
	}
	used := 0
	for b, n := range refs {
		if c.pool.blocks[b].ref != n {
			t.Fatalf("block %d has %d references, used %d times", b, c.pool.blocks[b].ref, n)
		}
		if n > 0 {
			used++
		}
	}
	known := 0
	for i := range c.pool.blocks {
		if c.pool.blocks[i].cached {
			known++
		}
	}
	if known != c.pool.known || len(c.pool.cached) > known {
		t.Fatalf("%d blocks cached, counted %d, %d hashes", known, c.pool.known, len(c.pool.cached))
	}
	if free != c.pool.free || free+used != len(c.pool.blocks) || used != c.pool.used() {
		t.Fatalf("free %d (counted %d) + used %d of %d blocks", c.pool.free, free, used, len(c.pool.blocks))
	}
}

func cachedPrefix(c *Core, prompt []uint32) int {
	return c.CachedPrefix(HashChain(nil, prompt, c.cfg.BlockTokens, 0), len(prompt))
}

func mustAdd(t *testing.T, c *Core, at time.Duration, seqs ...*Seq) {
	t.Helper()
	for _, s := range seqs {
		if err := c.Add(at, s); err != nil {
			t.Fatal(err)
		}
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

// One request alone: 32 tokens prefill in 10 + 2 = 12 ms, then each decode step
// takes 10 + 1 = 11 ms.
func TestSingleRequest(t *testing.T) {
	c := handCore(nil)
	mustAdd(t, c, 5*msec, seq(1, ids(1, 32), 3))
	expect(t, run(t, c), "1:1@17", "1:2@28", "1:3@39!")
	if tot := c.Totals(); tot.PrefilledTokens != 32 || tot.GeneratedTokens != 3 || tot.HitTokens != 0 || tot.QueriedTokens != 32 {
		t.Fatalf("totals %+v", tot)
	}
}

// Two requests share 32 tokens of 48 and arrive together: both are in step 1,
// with budget 64 = 48 + 16, nothing is computed yet and nothing is hit. Step 1:
// 10 + 64/16 = 14 ms. The second has 32 left: step 2 takes 10 + 2 + 1 (the first
// decodes) = 13 ms. A third with the same prefix hits its two whole blocks.
func TestSharedPrefixArrivingTogetherIsNotAHit(t *testing.T) {
	c := handCore(nil)
	shared := ids(1, 32)
	a := seq(1, append(shared[:32:32], ids(2, 16)...), 2)
	b := seq(2, append(shared[:32:32], ids(3, 16)...), 1)
	mustAdd(t, c, 0, a, b)
	expect(t, run(t, c), "1:1@14", "1:2@27!", "2:1@27!")
	if a.CachedTokens() != 0 || b.CachedTokens() != 0 {
		t.Fatalf("cached %d and %d, want 0 and 0", a.CachedTokens(), b.CachedTokens())
	}
	// 48 - 32 = 16 fresh tokens: 10 + 1 = 11 ms.
	d := seq(4, append(shared[:32:32], ids(4, 16)...), 1)
	mustAdd(t, c, 27*msec, d)
	expect(t, run(t, c), "4:1@38!")
	if d.CachedTokens() != 32 {
		t.Fatalf("cached %d, want 32", d.CachedTokens())
	}
}

// A second request that arrives while the first is half through its prefill hits
// the chunk that is done and not the one in flight.
func TestHitOnlyWhatIsComputed(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.MaxBatchedTokens = 32 })
	p := ids(1, 64)
	a, b := seq(1, p, 1), seq(2, p, 1)
	mustAdd(t, c, 0, a)
	c.Step(0)              // chunk 1 of a: [0,32), 12 ms
	mustAdd(t, c, msec, b) // budget full in step 2 (a's second chunk), so b waits
	// Step 2: a [32,64) ends at 24 ms. Step 3: b hits 48 of 64 (the last block holds the last token).
	expect(t, run(t, c), "1:1@24!", "2:1@35!")
	if b.CachedTokens() != 48 {
		t.Fatalf("cached %d, want 48", b.CachedTokens())
	}
}

// The last prompt token is computed again even if all is cached: of 32 tokens 16
// can hit, of 33 tokens 32.
func TestLastTokenIsAlwaysComputed(t *testing.T) {
	for _, x := range []struct{ tokens, want int }{{32, 16}, {33, 32}, {31, 16}, {16, 0}, {17, 16}} {
		c := handCore(nil)
		p := ids(1, 40)[:x.tokens]
		a, b := seq(1, p, 1), seq(2, p, 1)
		mustAdd(t, c, 0, a)
		run(t, c)
		mustAdd(t, c, time.Second, b)
		run(t, c)
		if b.CachedTokens() != x.want {
			t.Errorf("%d tokens: cached %d, want %d", x.tokens, b.CachedTokens(), x.want)
		}
	}
}

// Eight blocks. Request 1 leaves four cached blocks (64 tokens). Request 2 needs
// six: the four never used ones (free since the start) and then the two freed
// first, which are request 1's tail. So its head of 32 tokens is still there.
func TestTailIsEvictedBeforeHead(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.Blocks = 8 })
	one := ids(1, 64)
	mustAdd(t, c, 0, seq(1, one, 1))
	run(t, c)
	if got := cachedPrefix(c, append(one[:64:64], 0)); got != 64 {
		t.Fatalf("cached %d, want 64", got)
	}
	mustAdd(t, c, time.Second, seq(2, ids(2, 96), 1))
	run(t, c)
	if got := cachedPrefix(c, append(one[:64:64], 0)); got != 32 {
		t.Fatalf("cached %d after eviction, want the head of 32", got)
	}
	if got := c.Totals().EvictedBlocks; got != 2 {
		t.Fatalf("evicted %d blocks, want 2", got)
	}
}

// A cached prefix that a running request uses is not evicted, though it is older
// than everything else.
func TestBlocksInUseAreNotEvicted(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.Blocks = 8 })
	one := ids(1, 48)
	long := seq(1, one, 20) // 3 blocks + output
	mustAdd(t, c, 0, long)
	c.Step(0)
	for i := range 5 { // others of 3 blocks each churn through the remaining five
		mustAdd(t, c, time.Duration(i)*10*msec, seq(uint64(10+i), ids(10+i, 48), 1))
	}
	run(t, c)
	if long.Preemptions() != 0 {
		t.Fatal("preempted")
	}
	again := seq(99, append(one[:48:48], 1), 1)
	mustAdd(t, c, time.Hour, again)
	run(t, c)
	if again.CachedTokens() != 48 {
		t.Fatalf("cached %d, want 48", again.CachedTokens())
	}
}

// 20 prompt tokens and 13 output tokens: the last output token is never computed,
// so 32 tokens = two whole blocks stay, and the next turn, which sends prompt,
// answer and more, hits both.
func TestOutputBlocksServeTheNextTurn(t *testing.T) {
	c := handCore(nil)
	a := seq(1, ids(1, 20), 13)
	mustAdd(t, c, 0, a)
	run(t, c)
	next := ids(1, 20)
	for i := range 13 {
		next = append(next, a.Output(i))
	}
	b := seq(2, append(next, ids(2, 7)...), 1)
	mustAdd(t, c, time.Second, b)
	run(t, c)
	if b.CachedTokens() != 32 {
		t.Fatalf("cached %d, want 32", b.CachedTokens())
	}
}

func TestAdapterAndSaltSplitTheCache(t *testing.T) {
	c := handCore(nil)
	p := ids(1, 33)
	add := func(adapter, salt string) int {
		s := seq(1, p, 1)
		s.Adapter, s.Seed = adapter, chainSeed(adapter, salt)
		mustAdd(t, c, c.clock, s)
		run(t, c)
		return s.CachedTokens()
	}
	for i, x := range []struct {
		adapter, salt string
		want          int
	}{{"", "", 0}, {"", "", 32}, {"a", "", 0}, {"a", "", 32}, {"", "a", 0}, {"a", "a", 0}, {"a", "a", 32}, {"", "", 32}} {
		if got := add(x.adapter, x.salt); got != x.want {
			t.Errorf("%d: adapter %q salt %q cached %d, want %d", i, x.adapter, x.salt, got, x.want)
		}
	}
}

// Four blocks: request 1 holds three (33 tokens), so request 2 with two blocks
// waits until 1 ends although there is budget, and request 3, which would fit,
// waits behind it.
// 1: prefill 10 + 33/16 = 12.0625 ms, decode 11 ms: ends at 23.0625.
// 2 (17 tokens) and 3 (16 tokens) then start together: 10 + 33/16 = 12.0625 ms.
func TestFullCacheQueuesInOrder(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.Blocks = 4 })
	mustAdd(t, c, 0, seq(1, ids(1, 33), 2))
	c.Step(0)
	mustAdd(t, c, msec, seq(2, ids(2, 17), 1), seq(3, ids(3, 16), 1))
	if l := c.Load(); l.Running != 1 || l.Waiting != 2 || l.UsedBlocks != 3 || l.RunningPrefillTokens != 33 || l.WaitingUncachedTokens != 33 {
		t.Fatalf("load %+v", l)
	}
	expect(t, run(t, c), "1:1@12.0625", "1:2@23.0625!", "2:1@35.125!", "3:1@35.125!")
}

// Four blocks, two requests of 16 tokens with 24 tokens to generate, which come to
// compute 16 + 23 = 39 tokens each: three blocks.
// Step 1 prefills both, 10 + 2 = 12 ms. Steps of 12 ms follow, all four blocks
// used from the second token on. Both have 17 tokens at 12 + 16*12 = 204 ms; to
// compute the 33rd, request 1 needs a third block and request 2, the younger,
// gives up its two. The tail of 2 was freed first, so 1 takes that one.
// 1 goes on alone, 11 ms per token: tokens 18-24 until 204 + 7*11 = 281 ms. 2
// needs ceil(33/16) = 3 blocks, of which its head is one, and waits for that.
// Then 33 - 16 = 17 tokens are computed again: 10 + 17/16 = 11.0625 ms, and six
// more tokens take 11 ms each: 281 + 11.0625 + 66 = 358.0625 ms.
func TestYoungestIsPreemptedAndRecomputed(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.Blocks = 4 })
	a, b := seq(1, ids(1, 16), 24), seq(2, ids(2, 16), 24)
	mustAdd(t, c, 0, a, b)
	got := run(t, c)
	if a.Preemptions() != 0 || b.Preemptions() != 1 || c.Totals().Preemptions != 1 {
		t.Fatalf("preemptions %d and %d", a.Preemptions(), b.Preemptions())
	}
	find := func(want string) {
		t.Helper()
		for _, g := range got {
			if g == want {
				return
			}
		}
		t.Errorf("no %s in %v", want, got)
	}
	find("2:17@204")
	find("1:24@281!")
	find("2:18@292.0625")
	find("2:24@358.0625!")
	if b.CachedTokens() != 0 {
		t.Fatalf("cached %d: only the first admission counts", b.CachedTokens())
	}
}

// A stream decodes at 11 ms per token. A prompt of 160 tokens arrives: budget 64,
// one token for the stream, so chunks of 63, 63 and 34 delay it:
// 10 + 1 + 63/16 = 14.9375 twice, then 10 + 1 + 34/16 = 13.125 ms.
// Stream: prefill 11 (16 tokens), then tokens at 22, 36.9375, 51.875, 65, 77 (two
// streams: 12 ms).
func TestChunkedPrefillSlowsDecode(t *testing.T) {
	c := handCore(nil)
	mustAdd(t, c, 0, seq(1, ids(1, 16), 6))
	mustAdd(t, c, 15*msec, seq(2, ids(2, 160), 2))
	expect(t, run(t, c), "1:1@11", "1:2@22", "1:3@36.9375", "1:4@51.875", "1:5@65", "2:1@65", "1:6@77!", "2:2@77!")
}

// Time per token grows with the batch: four streams of one block each take
// 10 + 4 = 14 ms per step, one takes 11.
func TestTimePerTokenGrowsWithBatch(t *testing.T) {
	c := handCore(nil)
	for i := range 4 {
		mustAdd(t, c, 0, seq(uint64(i+1), ids(i+1, 16), 2))
	}
	// 64 tokens prefill: 10 + 4 = 14; decode of four: 14.
	expect(t, run(t, c), "1:1@14", "2:1@14", "3:1@14", "4:1@14", "1:2@28!", "2:2@28!", "3:2@28!", "4:2@28!")
}

func TestBoundOnSequences(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.MaxSeqs = 1 })
	mustAdd(t, c, 0, seq(1, ids(1, 16), 1), seq(2, ids(2, 16), 1))
	expect(t, run(t, c), "1:1@11!", "2:1@22!")
}

// With room for one adapter, a request for another waits and one for the base
// model passes it.
func TestBoundOnAdapters(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.MaxAdapters = 1 })
	a, b, d := seq(1, ids(1, 16), 1), seq(2, ids(2, 16), 1), seq(3, ids(3, 16), 1)
	a.Adapter, b.Adapter = "x", "y"
	mustAdd(t, c, 0, a, b, d)
	c.Step(0)
	running, waiting := c.Adapters()
	if fmt.Sprint(running, waiting) != "[x] [y]" {
		t.Fatalf("adapters %v %v", running, waiting)
	}
	expect(t, run(t, c), "1:1@12!", "3:1@12!", "2:1@23!")
}

// A call that comes late changes nothing: the events are those of a timely one,
// and a request that arrived after a step's start is not in it.
func TestLateStepsDoNotSlowTheEngine(t *testing.T) {
	c := handCore(nil)
	mustAdd(t, c, 0, seq(1, ids(1, 16), 4))
	c.Step(0)
	mustAdd(t, c, 30*msec, seq(2, ids(2, 16), 1))
	var got []string
	for _, ev := range c.Step(time.Second) {
		got = append(got, fmt.Sprintf("%d:%d@%g", ev.Seq.ID, ev.Tokens, ms(ev.At)))
	}
	// 1: 11, 22, 33; 2 arrives at 30: step from 33 decodes 1 and prefills 2: 10 + 1 + 1 = 12.
	expect(t, got, "1:1@11", "1:2@22", "1:3@33", "1:4@45", "2:1@45")
}

func TestAbortFreesAtOnce(t *testing.T) {
	c := handCore(nil)
	a, b, w := seq(1, ids(1, 64), 50), seq(2, ids(2, 16), 1), seq(3, ids(3, 16), 1)
	mustAdd(t, c, 0, a)
	c.Step(0)
	mustAdd(t, c, 1, b, w)
	if !c.Abort(a) || c.Abort(a) || !c.Abort(w) {
		t.Fatal("abort does not report what was alive")
	}
	if l := c.Load(); l.UsedBlocks != 0 || l.Running != 0 || l.Waiting != 1 {
		t.Fatalf("load after abort %+v", l)
	}
	// The step in flight (10 + 4 ms) ends without an event for 1 and without its blocks.
	expect(t, run(t, c), "2:1@25!")
	if got := cachedPrefix(c, ids(1, 65)); got != 0 {
		t.Fatalf("cached %d tokens of an unfinished step", got)
	}
}
