package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// agentPrompt is a chat whose system prompt begins with that text.
func agentPrompt(begin, question string) string {
	var manual strings.Builder
	for i := range 200 {
		fmt.Fprintf(&manual, "Rule %d: %d is not %d. ", i, i*7919, i*104729)
	}
	b, _ := json.Marshal(map[string]any{"model": "llama", "messages": []map[string]string{
		{"role": "system", "content": begin + manual.String()}, {"role": "user", "content": question},
	}})
	return string(b)
}

func keepsPrompts(cfg *Config, _ *poolSpec) { cfg.Core.Prompts = true }

func TestPartingsOfRecentPrompts(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(says(jsonAnswer(200, good))), keepsPrompts)
		core := g.srv.Core()
		chat := func(body string) {
			t.Helper()
			if r := g.chat(body); r.StatusCode != 200 {
				t.Fatalf("status %v: %s", r.StatusCode, r.body)
			}
		}
		for i := range 5 {
			chat(agentPrompt("The time is "+time.Now().UTC().Format("15:04:05")+". ", fmt.Sprint("Question ", i)))
			chat(agentPrompt("", "not kept: a second has not passed"))
			time.Sleep(3 * time.Second)
		}
		list := core.Partings("chat")
		if len(list) != 10 {
			t.Fatalf("%d partings of 5 prompts: %+v", len(list), list)
		}
		for _, p := range list {
			if p.Path != "messages[0].content" || p.Byte != 12 || p.Value != prefix.ValueTime || p.Again < p.Prompt*9/10 {
				t.Errorf("%+v", p)
			}
		}
		if core.Partings("other") != nil {
			t.Error("partings of a pool that is not there")
		}

		// What is too large, and what is no prompt, is not kept; nor more than a few.
		chat(agentPrompt(strings.Repeat("x", keptBytes), "too large"))
		time.Sleep(2 * time.Second)
		if r := g.do(post("/v1/rerank", `{"model":"llama","query":"q","documents":["a"]}`)); r.StatusCode != 200 {
			t.Fatalf("status %v", r.StatusCode)
		}
		if n := len(core.prompts.of("chat", core.store.View(), time.Now())); n != 5 {
			t.Errorf("%d bodies are kept, want 5", n)
		}
		for i := range 20 {
			time.Sleep(2 * time.Second)
			chat(agentPrompt("", fmt.Sprint("Question ", i)))
		}
		if n := len(core.prompts.of("chat", core.store.View(), time.Now())); n != keptPrompts {
			t.Errorf("%d bodies are kept, want %d", n, keptPrompts)
		}
		if n := len(core.Partings("chat")); n != maxPairs {
			t.Errorf("%d pairs were compared, want %d", n, maxPairs)
		}
		time.Sleep(keptFor)
		if list := core.Partings("chat"); len(list) != 0 {
			t.Errorf("of prompts of ten minutes ago: %+v", list)
		}
		spec := g.store.View().Pools[0].Spec
		g.store.SetPools(nil)
		core.Partings("chat")
		if len(core.prompts.pools) != 0 {
			t.Error("bodies of a pool that is gone are kept")
		}
		g.store.SetPools([]poolSpec{spec})
	})
}

func TestNothingIsKeptUnlessWanted(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(says(jsonAnswer(200, good))))
		for i := range 3 {
			g.chat(agentPrompt("", fmt.Sprint(i)))
			time.Sleep(2 * time.Second)
		}
		if c := g.srv.Core(); c.prompts != nil || c.Partings("chat") != nil {
			t.Errorf("%+v", c.prompts)
		}
	})
}

// A request is told of once, whatever becomes of it, and an explanation not at all.
func TestPickedHearsOfEachRequestOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		var n, marks atomic.Int64
		fails := func(_ *engine, in *incoming) bool {
			_ = in.write(jsonAnswer(500, `{}`))
			return true
		}
		g := newRig(t, w, handlers(fails, says(jsonAnswer(200, good))), func(cfg *Config, _ *poolSpec) {
			cfg.Core.Picked = func(pool string, c *routing.Choice, m []prefix.Mark, tokens []int32) {
				if pool != "chat" || c.PromptTokens == 0 || len(m) != len(tokens) {
					t.Errorf("%s: %+v", pool, c)
				}
				n.Add(1)
				marks.Add(int64(len(m)))
			}
		})
		body := agentPrompt("", "Hello")
		if r := g.chat(body); r.StatusCode != 200 {
			t.Fatalf("status %v", r.StatusCode)
		}
		if _, err := g.srv.Core().Explain(t.Context(), "/v1/chat/completions", []byte(body)); err != nil {
			t.Fatal(err)
		}
		if n.Load() != 1 || marks.Load() == 0 {
			t.Errorf("told of %d picks with %d marks", n.Load(), marks.Load())
		}
	})
}
