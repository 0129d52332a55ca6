package whatif

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// conversation is the first n requests of the bundled trace, at 0.8 of its rate.
func conversation(t testing.TB, n int) *Workload {
	t.Helper()
	src, err := traces.Open(traces.MooncakeConversation, traces.OpenConfig{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	w, err := NewWorkload("conversation", traces.Head(traces.Scale(src, 0.8), n), n/5)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func compared(t testing.TB, w *Workload, lists ...string) map[string]Figures {
	t.Helper()
	variants, err := Variants(DefaultConfig(), lists)
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := Compare(t.Context(), variants, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]Figures{}
	for _, o := range outcomes {
		by[o.Name] = o.Figures
		t.Logf("%s: %+v", o.Name, o.Figures)
		if o.Figures.Failed > 0 {
			t.Errorf("%s: %d requests failed", o.Name, o.Figures.Failed)
		}
	}
	return by
}

// What is known of a policy in real clusters shows.
func TestTTFTHitsMoreThanRoundRobin(t *testing.T) {
	by := compared(t, conversation(t, 400), "policy=ttft,round_robin")
	ttft, turns := by["policy=ttft"], by["policy=round_robin"]
	if ttft.HitRate < turns.HitRate+0.02 || ttft.TTFTMean > turns.TTFTMean*8/10 {
		t.Errorf("ttft hits %.3f in %v, round robin %.3f in %v", ttft.HitRate, ttft.TTFTMean, turns.HitRate, turns.TTFTMean)
	}
}

// A run follows from its configuration, workload and seed to the last digit.
func TestSameSeedSameTable(t *testing.T) {
	w := conversation(t, 150)
	table := func(seed uint64) string {
		cfg := DefaultConfig()
		cfg.Seed = seed
		variants, err := Variants(cfg, []string{"policy=ttft,random"})
		if err != nil {
			t.Fatal(err)
		}
		outcomes, err := Compare(t.Context(), variants, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		Write(&b, "", outcomes)
		return b.String()
	}
	one := table(1)
	if again := table(1); again != one {
		t.Errorf("seed 1 gave\n%s\nand then\n%s", one, again)
	}
	if table(2) == one {
		t.Error("the seed changes nothing")
	}
}

// Turns of a chat wait for the answers they reply to, and find them cached.
func TestChatsAreCached(t *testing.T) {
	src, err := traces.Agents(traces.AgentsConfig{Seed: 1, Sessions: 20, RealAnswers: true, Turns: traces.Range{Min: 2, Max: 4}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWorkload("agents", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	by := compared(t, w, "policy=ttft", "routers=1,3", "delay=10ms,60s")
	near, far := by["policy=ttft routers=3 delay=10ms"], by["policy=ttft routers=3 delay=60s"]
	if near.HitRate < 0.7 || near.HitRate < by["policy=ttft routers=1 delay=10ms"].HitRate-0.05 {
		t.Errorf("three routers hit %.3f", near.HitRate)
	}
	if far.HitRate > near.HitRate-0.05 {
		t.Errorf("routers that hear of each other after 60 s hit %.3f, after 10 ms %.3f", far.HitRate, near.HitRate)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, DefaultConfig(), conversation(t, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestVariants(t *testing.T) {
	good := func(want int, lists ...string) []Variant {
		t.Helper()
		v, err := Variants(DefaultConfig(), lists)
		if err != nil || len(v) != want {
			t.Errorf("%q: %d variants, %v", lists, len(v), err)
		}
		return v
	}
	bad := func(says string, lists ...string) {
		t.Helper()
		if _, err := Variants(DefaultConfig(), lists); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", lists, err, says)
		}
	}
	v := good(6, "policy=ttft,random", "kv_tokens=16_000,32000,64000")
	if x := v[4]; x.Name != "policy=random kv_tokens=32000" || x.Policy != routing.Random || x.KVTokens != 32_000 {
		t.Errorf("got %+v", x)
	}
	if x := good(1, "delay=5ms")[0]; x.Delay != 5*time.Millisecond || x.Policy != routing.TTFT {
		t.Errorf("got %+v", x)
	}
	bad("is not setting=value", "policy")
	bad("is not setting=value", "policy=")
	bad("unknown setting", "colour=red")
	bad("given twice", "policy=ttft", "policy=random")
	bad("unknown \"best\"", "policy=best")
	bad("copy_weight", "copy_weight=much")
	bad("kv_tokens", "kv_tokens=7")
	bad("out of range", "copy_weight=0.5")
	bad("combinations", "routers=1,2,3,4,5,6,7,8,9", "replicas=1,2,3,4,5,6,7,8")
}
