package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/gateway"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Prompts of keyed tenants warm with their tenant's salt. Nobody is billed for them, no
// key is under way meanwhile, and nothing is learned of them as of a client's.
func TestTenantsPromptsThatWarmAreNotBilled(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		var g *rig
		free := true // no key is under way while a prompt is
		warmed := func(_ *engine, in *incoming) bool {
			time.Sleep(time.Second)
			free = free && g.metric("hearsay_key_inflight") == 0
			return in.write(jsonAnswer(200, good)) == nil
		}
		sk := &lateSketch{}
		g = newRig(t, w, handlers(says(jsonAnswer(200, good)), warmed),
			gated(gateway.Key{Name: "a", Tenant: "a", MaxParallel: 1}, gateway.Key{Name: "b", Tenant: "b", MaxParallel: 1}),
			func(cfg *Config, spec *poolSpec) {
				cfg.Core.Prewarm, spec.Prewarm, spec.Isolation = sk, 4, isolateTenants
			})
		sk.g = g
		p := g.srv.Prewarm()
		one, two := agentPrompt("", "One"), agentPrompt("", "Two")
		hot := []state.HotPrefix{sharedBy(t, g, "a", one, two), sharedBy(t, g, "b", one, two)}
		g.weigh("e2", hot...)
		for _, key := range []string{"a", "b"} {
			time.Sleep(time.Second)
			if r := g.chat(one, bearer(key)); r.StatusCode != 200 {
				t.Fatalf("%s: %d %s", key, r.StatusCode, r.body)
			}
		}
		billed := []string{"hearsay_requests_total", "hearsay_tokens_total", "hearsay_usage_records_total", "hearsay_predicted_cached_tokens_total", "hearsay_reported_cached_tokens_total"}
		before := map[string]float64{}
		for _, name := range billed {
			before[name] = g.metric(name)
		}
		if before["hearsay_tokens_total"] == 0 || before["hearsay_usage_records_total"] != 2 {
			t.Fatalf("the clients' own requests are counted as %v", before)
		}
		g.readBy("r1", "e2")
		for p.Step(t.Context(), time.Now()) {
			p.wg.Wait()
			g.readBy("r1", "e2")
		}
		got := g.engines[1].got()
		if len(got) != 2 || !strings.Contains(got[0], saltOf("a")) || !strings.Contains(got[1], saltOf("b")) {
			t.Errorf("it got %.200q, want a prompt of each tenant with its salt", got)
		}
		for _, name := range billed {
			if n := g.metric(name); n != before[name] {
				t.Errorf("%s is %v, was %v before anything was warmed", name, n, before[name])
			}
		}
		if n := g.metric("hearsay_prewarm_requests_total", "result", "served"); n != 2 || !free {
			t.Errorf("%v prompts are counted, keys stayed free: %v", n, free)
		}
		for _, h := range g.engines[1].heads {
			if v := h.Get("Authorization"); v != "" {
				t.Errorf("it was sent a client's key: %q", v)
			}
		}
		c := marksOf(t, g, "c", one)
		var match [1]sketch.Match
		g.index.Lookup(match[:], c, []state.Slot{g.store.View().Replica("e2").Slot}, time.Now())
		if match[0].Live != 0 {
			t.Error("another tenant's prompt is taken to be there")
		}
	})
}
