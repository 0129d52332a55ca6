package balance_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// prompt makes a pick of a prompt with a mark every 64 tokens, of which the first
// shared tokens are alike in all prompts of one name.
func prompt(name, own uint64, shared, tokens, held int) *balance.Pick {
	p := &balance.Pick{Pool: "chat", Prompt: tokens, Held: held}
	for at := 64; at <= tokens; at += 64 {
		h := uint64(at) * 0x9e3779b97f4a7c15
		if h ^= name << 40; at > shared {
			h ^= own * 0xbf58476d1ce4e5b9
		}
		p.Marks, p.Tokens = append(p.Marks, prefix.Mark{Hash: h}), append(p.Tokens, int32(at))
	}
	return p
}

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got-want) > by {
		t.Errorf("%s: %.3f, want %.3f", what, got, want)
	}
}

func TestSharingRatio(t *testing.T) {
	w := newWorld(t, 2)
	if b := w.pool(); b.Picks != 0 {
		t.Errorf("before any pick: %+v", b)
	}
	for range 30 {
		w.loop.Picked(prompt(1, 1, 0, 1000, 900))
		w.loop.Picked(prompt(1, 1, 0, 3000, 0))
	}
	w.loop.Picked(&balance.Pick{Pool: "nobody's", Prompt: 1e6})
	w.step(time.Second)
	near(t, "by tokens, not by prompts", w.pool().Sharing, 0.225, 1e-6)
	near(t, "picks", w.pool().Picks, 60, 1e-6)
	w.step(30 * time.Second)
	near(t, "picks of a half-life ago", w.pool().Picks, 30, 1e-6)
	for range 30 {
		w.loop.Picked(prompt(1, 1, 0, 2000, 5000)) // more than all of it is all of it
	}
	w.step(0)
	near(t, "the newer half counts", w.pool().Sharing, (0.225+1)/2, 1e-6)
	want := `
# HELP hearsay_sharing_ratio Share of prompt tokens that some replica already held when this router picked, smoothed with a half-life of 30 s; 0 before the first pick.
# TYPE hearsay_sharing_ratio gauge
hearsay_sharing_ratio{pool="chat"} 0.6125
`
	if err := testutil.GatherAndCompare(w.reg, strings.NewReader(want), "hearsay_sharing_ratio"); err != nil {
		t.Error(err)
	}
	w.store.SetPools(nil)
	w.step(time.Second)
	w.loop.Picked(prompt(1, 1, 0, 1000, 900))
	for _, name := range []string{"hearsay_sharing_ratio", "hearsay_hot_prefix_share"} {
		if n, _ := testutil.GatherAndCount(w.reg, name); n != 0 {
			t.Errorf("%s: %d series of a pool that is gone", name, n)
		}
	}
}

func TestHotPrefixes(t *testing.T) {
	w := newWorld(t, 2)
	// Of a thousand prompts, 60 % share 2048 tokens, 20 % another 512, the rest nothing;
	// half of the first share 4096 besides.
	for i := range uint64(1000) {
		switch own := 1000 + i; {
		case i%5 == 4:
			w.loop.Picked(prompt(own, own, 0, 3000, 0))
		case i%5 == 3:
			w.loop.Picked(prompt(2, own, 512, 3000, 0))
		default:
			w.loop.Picked(prompt(1, own, 2048, 3000, 0))
		}
	}
	w.step(time.Second)
	hot := w.pool().Hot
	if len(hot) != 2 {
		t.Fatalf("%+v, want two: those before them on the same way are not told apart", hot)
	}
	near(t, "the first one's share", hot[0].Share, 0.6, 0.04)
	near(t, "the second one's share", hot[1].Share, 0.2, 0.04)
	if hot[0].Tokens != 2048 || hot[1].Tokens != 512 || hot[0].Holders != -1 {
		t.Errorf("depths and holders: %+v", hot)
	}
	near(t, "the metric", testutil.ToFloat64(gauge{w, "hearsay_hot_prefix_share"}), 0.6, 0.04)

	// Others take its place within minutes.
	own := uint64(5000)
	for range 90 {
		for i := range uint64(10) {
			own += i
			w.loop.Picked(prompt(7, own, 256, 1000, 0))
		}
		w.step(time.Second)
	}
	if hot = w.pool().Hot; len(hot) == 0 || hot[0].Tokens != 256 || hot[0].Share < 0.85 {
		t.Errorf("after 90 s of other traffic: %+v", hot)
	}
	for range 40 {
		w.step(10 * time.Second)
	}
	if hot = w.pool().Hot; len(hot) != 0 {
		t.Errorf("minutes after the last request: %+v", hot)
	}
}

// A prefix that goes on is told by its deepest part.
func TestHotPrefixIsTheDeepest(t *testing.T) {
	w := newWorld(t, 1)
	for i := range uint64(100) {
		w.loop.Picked(prompt(1, i, 8192, 9000, 0))
	}
	w.step(time.Second)
	if hot := w.pool().Hot; len(hot) != 1 || hot[0].Tokens != 8192 || hot[0].Share != 1 {
		t.Errorf("%+v", hot)
	}
}

// holders is a sketch in which one mark is held by the first replica.
type holders struct{ mark uint64 }

func (h holders) Lookup(dst []sketch.Match, marks []prefix.Mark, _ []state.Slot, _ time.Time) {
	if len(marks) == 1 && marks[0].Hash == h.mark {
		dst[0].Live = 1
	}
}

func TestHoldersOfHotPrefixes(t *testing.T) {
	p := prompt(1, 1, 1024, 1024, 0)
	w := newWorld(t, 3)
	w.sketch(holders{p.Marks[len(p.Marks)-1].Hash})
	for range 40 {
		w.loop.Picked(p)
	}
	w.step(2 * time.Second)
	if hot := w.pool().Hot; len(hot) != 1 || hot[0].Holders != 1 {
		t.Errorf("%+v, want one holder", hot)
	}
	w.step(500 * time.Millisecond) // not looked up again, and not forgotten
	if hot := w.pool().Hot; len(hot) != 1 || hot[0].Holders != 1 {
		t.Errorf("%+v, want one holder", hot)
	}
}

// The policy auto changes its mind late and on evidence.
func TestAutoHasHysteresis(t *testing.T) {
	w := newWorld(t, 1)
	want := func(what string, loadOnly bool) {
		t.Helper()
		if b := w.pool(); b.LoadOnly != loadOnly {
			t.Errorf("%s: load only is %v, at sharing %.3f of %.0f picks", what, b.LoadOnly, b.Sharing, b.Picks)
		}
	}
	run := func(d time.Duration, held int) {
		for range int(d / time.Second) {
			for range 4 {
				w.loop.Picked(prompt(1, 1, 0, 1000, held))
			}
			w.step(time.Second)
		}
	}
	want("nothing is known", false)
	for range 4 {
		w.loop.Picked(prompt(1, 1, 0, 1000, 0))
	}
	w.step(time.Second)
	want("four picks are no evidence", false)
	run(20*time.Second, 0)
	want("nothing is shared", true)
	run(10*time.Second, 900)
	if w.pool().Sharing < 0.3 {
		t.Fatalf("sharing %.3f", w.pool().Sharing)
	}
	want("it changed its mind a moment ago", true)
	run(25*time.Second, 900)
	want("much is shared, and half a minute has passed", false)
	run(10*time.Minute, 80)
	want("between the thresholds, from above", false)
	run(10*time.Minute, 20)
	want("below both", true)
	run(10*time.Minute, 80)
	want("between the thresholds, from below", true)
	run(10*time.Minute, 150)
	want("above both", false)
}

func TestPickedAllocatesNothing(t *testing.T) {
	w := newWorld(t, 1)
	p := prompt(1, 1, 4096, 32000, 0)
	if n := testing.AllocsPerRun(100, func() { w.loop.Picked(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPicked(b *testing.B) {
	w := newWorld(&testing.T{}, 1)
	var list []*balance.Pick
	for i := range uint64(64) {
		list = append(list, prompt(i%8, i, 2048, 32000, 0))
	}
	for i := 0; b.Loop(); i++ {
		w.loop.Picked(list[i%len(list)])
	}
}
