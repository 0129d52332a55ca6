package scenario

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// waves sends cold prompts, 20 within 100 ms and the next 20 when those are answered,
// over all routers, and counts where they went.
func waves(t *testing.T, b *harness.Bubble, n int) map[state.ReplicaID]int {
	t.Helper()
	got := map[state.ReplicaID]int{}
	var mu sync.Mutex
	for w := 0; w < n; w += 20 {
		var wg sync.WaitGroup
		for i := w; i < min(n, w+20); i++ {
			wg.Go(func() {
				time.Sleep(time.Duration(i-w) * 5 * time.Millisecond)
				r := b.Chat(i%len(b.Routers()), streamed(harness.Chat{
					Messages: []harness.Message{{Role: "user", Content: words(fmt.Sprint("cold", i), 1500)}}, MaxTokens: 20,
				}))
				if !r.OK() {
					t.Errorf("request %d: %v", i, r)
					return
				}
				mu.Lock()
				got[r.Replica]++
				mu.Unlock()
			})
		}
		wg.Wait()
	}
	return got
}

// Prompts that nobody knows go where load is low, not where little is known: a slow
// replica of which nothing is remembered does not attract them.
func TestColdPromptsFollowSpeed(t *testing.T) {
	t.Parallel()
	cfg := harness.BubbleConfig{Routers: 3, Engines: 3, Delay: time.Millisecond, EachEngine: func(i int, c *enginesim.Config) {
		if i == 0 {
			c.Speed = 0.125
		}
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		for i := range 20 { // e1 and e2 hold much, e0 nothing
			ok(t, b.Chat(i%3, streamed(chat(words(fmt.Sprint("known", i), 2000), "Go on.", 5))))
		}
		b.Idle(10 * time.Second)
		got := waves(t, b, 60)
		t.Logf("60 cold prompts: %v", got)
		slow := got[b.Engine(0).ID]
		for _, e := range b.Engines()[1:] {
			if n := got[e.ID]; n > 40 || n <= 2*slow {
				t.Errorf("%s, which is fast, got %d; the slow one %d", e.ID, n, slow)
			}
		}
	})
}

// With everything equal it is chance that decides, not the order of names.
func TestColdPromptsAmongEquals(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 3, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		first := map[state.ReplicaID]int{}
		for i := range 30 {
			r := ok(t, b.Chat(i%3, streamed(chat("", fmt.Sprint("alone ", i), 2))))
			first[r.Replica]++
			b.Idle(time.Second)
		}
		t.Logf("30 alone: %v", first)
		if len(first) < 3 {
			t.Errorf("30 requests to idle equals went to %v", first)
		}
		got := waves(t, b, 60)
		t.Logf("60 cold prompts: %v", got)
		for _, e := range b.Engines() {
			if n := got[e.ID]; n < 12 || n > 28 {
				t.Errorf("%s got %d of 60", e.ID, n)
			}
		}
	})
}
