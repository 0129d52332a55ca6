package routing_test

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// auto picks as ttft until the balance loop says that little is shared, and then as
// ttft_load.
func TestAutoFollowsTheBalanceLoop(t *testing.T) {
	w := newWorld(t, 3, routing.Auto)
	w.hold(1, 4096)
	w.load(1, state.Load{InFlight: 1, Prefill: 1, UncachedTokens: 1500})
	pick := func(loadOnly bool) *routing.Choice {
		w.store.SetWeights(&state.Weights{At: w.now, Pools: map[string]state.PoolBalance{"chat": {LoadOnly: loadOnly}}})
		return w.one(w.prompt(4200))
	}
	c := pick(false)
	if c.Policy != routing.TTFT || c.Replica.ID != id(1) || c.Reason != routing.ReasonWarm {
		t.Errorf("much is shared: %s by %s, %s", c.Replica.ID, c.Policy, c.Reason)
	}
	c = pick(true)
	if c.Policy != routing.TTFTLoad || c.Replica.ID == id(1) || c.Reason != routing.ReasonLoad {
		t.Errorf("little is shared: %s by %s, %s", c.Replica.ID, c.Policy, c.Reason)
	}
	// What is held stays known, or the share could not be measured any more; and a cold
	// replica's score is the same as before.
	if k := c.Candidates[1]; k.Matched != 4096 || k.Score <= k.Terms.Score() {
		t.Errorf("the holder: %d tokens, score %.1f of terms %.1f", k.Matched, k.Score, k.Terms.Score())
	}
	if k := c.Candidates[0]; k.Score != k.Terms.Score() {
		t.Errorf("one that holds nothing: score %.1f of terms %.1f", k.Score, k.Terms.Score())
	}
	for policy, want := range map[string]string{
		"": routing.TTFT, "of the next release": routing.TTFT, routing.Session: routing.Session, routing.TTFTLoad: routing.TTFTLoad, routing.Auto: routing.TTFTLoad,
	} {
		if got := routing.Effective(policy, state.PoolBalance{LoadOnly: true}); got != want {
			t.Errorf("policy %q is %s, want %s", policy, got, want)
		}
	}
}

// alike sends n prompts, of which a share begins with one of six prefixes.
func (s *sim) alike(n int, rate, share float64) {
	at := 0.0
	for i := range n {
		at += s.rnd.ExpFloat64() / rate
		q := &simRequest{chat: 1000 + i, tokens: 1000 + s.rnd.IntN(4000), output: 50 + s.rnd.IntN(200)}
		if s.rnd.Float64() < share {
			q.shareName, q.shared = 1+s.rnd.IntN(6), 1200
			q.tokens += 1200
		}
		s.after(time.Duration(at*1e9), func() { s.send(q) })
	}
	s.run()
}

// What auto falls back to where little is shared: by predicted times, not by counts.
func TestLoadByTimeBeatsLoadByCount(t *testing.T) {
	for _, share := range []float64{0, 0.2} {
		for _, rate := range []float64{6, 11} {
			mean, hit := map[string]float64{}, map[string]float64{}
			for _, name := range []string{routing.TTFT, routing.TTFTLoad, routing.LeastOutstanding} {
				for seed := range uint64(3) {
					s := newSim(t, 8, name, seed)
					s.alike(1000, rate, share)
					mean[name] += s.meanTTFT() / 3
					hit[name] += s.hits / s.tokens / 3
				}
			}
			t.Logf("%.0f %% share, %v/s: mean TTFT ms %v, hit rate %v", 100*share, rate, mean, hit)
			if a, b := mean[routing.TTFTLoad], mean[routing.LeastOutstanding]; a > 0.9*b {
				t.Errorf("%.0f %% share, %v/s: ttft_load %.0f ms, least_outstanding %.0f ms", 100*share, rate, a, b)
			}
			if a, b := mean[routing.TTFTLoad], mean[routing.TTFT]; a > 1.15*b {
				t.Errorf("%.0f %% share, %v/s: ttft_load %.0f ms, ttft %.0f ms: too much to give up", 100*share, rate, a, b)
			}
		}
	}
}
