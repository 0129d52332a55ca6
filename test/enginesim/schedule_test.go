package enginesim

import (
	"slices"
	"testing"
	"time"
)

// As above, with a third request of one block that has waited since 100 ms. From
// 204 ms on it would fit beside request 1, but the preempted one is ahead of it.
// At 281 ms both start: 17 + 16 tokens, 10 + 33/16 = 12.0625 ms.
func TestPreemptedGoesToTheHeadOfTheQueue(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.Blocks = 4 })
	mustAdd(t, c, 0, seq(1, ids(1, 16), 24), seq(2, ids(2, 16), 24))
	mustAdd(t, c, 100*msec, seq(3, ids(3, 16), 1))
	got := run(t, c)
	for _, want := range []string{"1:24@281!", "2:18@293.0625", "3:1@293.0625!"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %v", want, got)
		}
	}
}

// A step that preempts admits nothing, though the first chunk of the preempted
// prompt would fit.
func TestNoAdmissionInAStepThatPreempts(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.Blocks = 11 })
	b := seq(2, ids(2, 144), 30)
	mustAdd(t, c, 0, seq(1, ids(1, 16), 40), b)
	for b.Preemptions() == 0 {
		at, ok := c.Next()
		if !ok {
			t.Fatal("nothing was preempted")
		}
		c.Step(at)
		c.ClearCache() // else the chunk would come with all its cached blocks
	}
	if len(c.batch) != 1 || len(c.waiting) != 1 || c.pool.free < 8 {
		t.Fatalf("%d in the batch, %d waiting, %d blocks free", len(c.batch), len(c.waiting), c.pool.free)
	}
	at, _ := c.Next()
	c.Step(at)
	if len(c.batch) != 2 {
		t.Fatalf("%d in the next batch, want 2", len(c.batch))
	}
}

// spy remembers what it was asked; every step takes 1 ms.
type spy struct{ loads *[]StepLoad }

func (s spy) StepTime(l StepLoad) time.Duration {
	*s.loads = append(*s.loads, l)
	return msec
}

// A stream with 16 prompt tokens, and from 2 ms on a prompt of 100 tokens beside
// it, in chunks of 63 and 37: what each step computes and attends to.
func TestStepLoads(t *testing.T) {
	var got []StepLoad
	c := handCore(func(cfg *CoreConfig) { cfg.Timing = spy{&got} })
	mustAdd(t, c, 0, seq(1, ids(1, 16), 5))
	mustAdd(t, c, 2*msec, seq(2, ids(2, 100), 2))
	run(t, c)
	want := []StepLoad{
		{PrefillTokens: 16},
		{DecodeStreams: 1, DecodeContext: 16},
		{PrefillTokens: 63, DecodeStreams: 1, DecodeContext: 17},
		{PrefillTokens: 37, PrefillPairs: 37 * 63, DecodeStreams: 1, DecodeContext: 18},
		{DecodeStreams: 2, DecodeContext: 19 + 100},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// A follow-up attends to the 96 tokens it found in the cache.
	got = nil
	mustAdd(t, c, time.Second, seq(3, append(ids(2, 100), ids(4, 10)...), 1))
	run(t, c)
	if want := []StepLoad{{PrefillTokens: 14, PrefillPairs: 14 * 96}}; !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTooLargeIsRefused(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.Blocks = 2 })
	if err := c.Add(0, seq(1, ids(1, 16), 17)); err != nil {
		t.Fatal(err) // 16 + 16 computed tokens fit
	}
	run(t, c)
	if err := c.Add(0, seq(2, ids(1, 16), 18)); err == nil {
		t.Fatal("33 tokens accepted by a cache of 32")
	}
	if err := c.Add(0, seq(3, nil, 1)); err == nil {
		t.Fatal("empty prompt accepted")
	}
}

// Blocks that come from elsewhere need no prefill but the last token.
func TestRemotePrefill(t *testing.T) {
	c := handCore(nil)
	s := seq(1, ids(1, 160), 1)
	s.Remote = true
	mustAdd(t, c, 0, s)
	// One token of prefill: 10 + 1/16 ms.
	expect(t, run(t, c), "1:1@10.0625!")
	if got := cachedPrefix(c, ids(1, 161)); got != 160 || s.CachedTokens() != 0 {
		t.Fatalf("cached %d afterwards, %d reported", got, s.CachedTokens())
	}
}

func TestPauseIsNotMadeUpFor(t *testing.T) {
	c := handCore(nil)
	mustAdd(t, c, 0, seq(1, ids(1, 16), 2))
	c.Step(11 * msec)
	c.SetPaused(11*msec, true)
	c.Step(100 * msec) // the step in flight ends at 22
	c.SetPaused(100*msec, false)
	if at, ok := c.Next(); ok {
		t.Fatalf("next at %v of an idle core", at)
	}
	mustAdd(t, c, 100*msec, seq(2, ids(2, 16), 1))
	expect(t, run(t, c), "2:1@111!")
}

func TestSlowFactorAndSpeed(t *testing.T) {
	c := handCore(func(cfg *CoreConfig) { cfg.Speed = 10 })
	mustAdd(t, c, 0, seq(1, ids(1, 16), 2))
	c.Step(0)      // 11 / 10
	c.SetFactor(3) // the next: 11 * 3 / 10
	expect(t, run(t, c), "1:1@1.1", "1:2@4.4!")
}
