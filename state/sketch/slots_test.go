package sketch

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// slotCache is an exact model of an engine with slots: blocks of the sequence each
// served last, and when.
type slotCache struct {
	seqs [][]uint64
	used []int
	n    int
}

func (c *slotCache) serve(prompt, whole []uint64, promptTokens int) (cached int) {
	c.n++
	best, most, oldest := -1, 0, 0
	for i, s := range c.seqs {
		same := 0
		for same < len(s) && same < len(prompt) && s[same] == prompt[same] && (same+1)*blockTokens < promptTokens {
			same++
		}
		if same > most && float64(same) > slotShare*float64(len(prompt)) {
			best, most = i, same
		}
		if c.used[i] < c.used[oldest] {
			oldest = i
		}
	}
	if best < 0 {
		best, most = oldest, 0
		for most < len(c.seqs[best]) && most < len(prompt) && c.seqs[best][most] == prompt[most] {
			most++ // what it shares by chance is kept
		}
	}
	c.seqs[best], c.used[best] = slices.Clone(whole), c.n
	return most * blockTokens
}

func TestPredictionAgainstExactSlots(t *testing.T) {
	t.Parallel()
	counts := []int{1, 4, 8, 16}
	if underRace {
		counts = counts[1:2]
	}
	for _, slots := range counts {
		for _, routers := range []int{1, 3} {
			if routers > slots {
				continue // one slot, retaken before the news of it is there
			}
			exact := &slotCache{seqs: make([][]uint64, slots), used: make([]int, slots)}
			tr := trial{
				seed: 1, routers: routers, given: float64(slots) * 8192, slots: slots, bias: 1, requests: 600,
				next: (&chats{rng: rand.New(rand.NewPCG(uint64(slots), 1))}).next, serve: exact.serve, answering: 350 * time.Millisecond,
			}
			c := tr.run()
			t.Logf("%d slots, %d routers: hit %.2f, error median %.3f, mean %.3f", slots, routers, c.hit, c.median, c.mean)
			if c.median > 0.05 || routers == 1 && c.mean > 0.05 {
				t.Errorf("%d slots, %d routers: median error %.3f, mean %.3f", slots, routers, c.median, c.mean)
			}
		}
	}
}

// hostCache is slots with an LRU cache of whole sequences beside them, as llama.cpp's
// --cache-ram is: what a slot gives up goes there, and comes back when more of a prompt
// is there than in the best slot.
type hostCache struct {
	slotCache
	kept   [][]uint64 // the latest first
	blocks int        // bound
}

func sharedBlocks(s, prompt []uint64) (same int) {
	for same < len(s) && same < len(prompt) && s[same] == prompt[same] {
		same++
	}
	return same
}

func (c *hostCache) serve(prompt, whole []uint64, promptTokens int) int {
	before := slices.Clone(c.seqs)
	cached := c.slotCache.serve(prompt, whole, promptTokens)
	most, at := cached/blockTokens, -1
	for i, s := range c.kept {
		if n := min(sharedBlocks(s, prompt), (promptTokens-1)/blockTokens); n > most {
			most, at = n, i
		}
	}
	if at >= 0 {
		c.kept = slices.Delete(c.kept, at, at+1)
	}
	for i, s := range before {
		if c.used[i] == c.n && len(s) > 0 && 2*sharedBlocks(s, whole) < len(s) {
			c.kept = slices.Insert(c.kept, 0, s)
		}
	}
	for sum, i := 0, 0; i < len(c.kept); i++ {
		if sum += len(c.kept[i]); sum > c.blocks {
			c.kept = c.kept[:i]
		}
	}
	return most * blockTokens
}

// What an engine keeps beside its slots, and tells nobody, is learned by all routers;
// and that nothing is kept there is not unlearned by chance.
func TestWhatIsKeptBesideSlotsIsLearned(t *testing.T) {
	t.Parallel()
	f := func(name string, tokens int, most float64) {
		t.Helper()
		for _, routers := range []int{1, 3} {
			exact := &hostCache{slotCache: slotCache{seqs: make([][]uint64, 4), used: make([]int, 4)}, blocks: tokens / blockTokens}
			tr := trial{
				seed: 1, routers: routers, given: 4 * 8192, slots: 4, bias: 1, requests: 600,
				next: (&chats{rng: rand.New(rand.NewPCG(4, 1))}).next, serve: exact.serve, answering: 350 * time.Millisecond,
			}
			c := tr.run()
			t.Logf("%s, %d routers: hit %.2f, error median %.3f, mean %.3f", name, routers, c.hit, c.median, c.mean)
			if c.median > 0.05 || c.mean > most {
				t.Errorf("%s, %d routers: median error %.3f, mean %.3f", name, routers, c.median, c.mean)
			}
		}
	}
	f("nothing", 0, 0.2)  // as without learning: what three routers do at once is told late
	f("some", 1<<16, 0.2) // without learning 0.44 and 0.48
	if !underRace {
		f("much", 1<<20, 0.2) // without learning 0.46 and 0.50
	}
}

func TestASlotKeepsItsLastPromptHoweverOld(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
	for _, i := range []*Index{x, y} {
		i.SetSlots("a", 2, 1000, CapacityEngine) // tokens do not matter
	}
	var c uint64
	told := func(x *Index) {
		w.now = w.now.Add(time.Second)
		ops := drain(x, &c)
		slices.Reverse(ops)
		for _, op := range append(ops, ops...) {
			y.Apply(op, w.now)
		}
	}
	want := func(name string, stem, own, live int) {
		t.Helper()
		m, _ := prompt(stem, 4, own, 4)
		for k, i := range []*Index{x, y} {
			if got := w.look(i, "a", m); got.Live != live {
				t.Errorf("%s, router %d: %d marks live, want %d", name, k+1, got.Live, live)
			}
			check(t, i)
		}
	}
	use := func(stem, own int) {
		m, d := prompt(stem, 4, own, 4)
		w.now = w.now.Add(time.Second)
		p := x.Place("a", m, d, w.now)
		p.First(w.now)
		w.now = w.now.Add(time.Second)
		p.End(w.now)
		told(x)
	}
	use(1, 1)
	use(2, 1)
	want("the first of two", 1, 1, 8)
	for i := range 20 {
		use(2, 2+i) // shares half with the second slot: stays there
	}
	want("the first, long ago", 1, 1, 8)
	want("overwritten beyond what is shared", 2, 1, 4)
	want("the last in its slot", 2, 21, 8)
	use(3, 1) // like neither: the slot unused for longest
	want("pushed out", 1, 1, 0)
	want("beside it", 2, 21, 8)
	want("the new one", 3, 1, 8)

	var file bytes.Buffer
	if err := x.Save(&file); err != nil {
		t.Fatal(err)
	}
	z := w.index(3, Bounds{})
	if err := z.Load(&file); err != nil {
		t.Fatal(err)
	}
	z.SetSlots("a", 2, 1000, CapacityEngine) // known a moment later
	x, y = z, z
	want("after a restart", 1, 1, 0)
	want("after a restart", 2, 21, 8)
	want("after a restart", 3, 1, 8)
	z.Clear("a", z.clock.Stamp(w.now))
	want("cleared", 3, 1, 0)
	z.SetSlots("a", 0, 1000, CapacityEngine)
	if got := z.find("a").liveFrom.Load(); got == liveForever || len(z.find("a").book.held) != 0 {
		t.Error("no slots any more")
	}
	check(t, z)
}
