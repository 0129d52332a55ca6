package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// matched is how many prompt tokens a router thinks an engine holds of a chat.
func matched(t testing.TB, r *harness.Router, id state.ReplicaID, c harness.Chat) int {
	t.Helper()
	for _, x := range r.Explain(c.Body()).Candidates {
		if x.Replica == id {
			return x.MatchedTokens
		}
	}
	t.Fatalf("%s does not consider %s", r.Name, id)
	return 0
}

// An engine becomes another process at the same address. Within a reading and its
// way to the others no router takes it for a holder of what the old one held, while
// what was sent to the new one before anybody noticed counts.
func TestRestartInPlaceEmptiesTheSketch(t *testing.T) {
	t.Parallel()
	// noticed is how long it may take: the longest wait between two readings of an
	// idle engine, one reading, and the news.
	const noticed = 650 * time.Millisecond
	f := func(name string, kind enginesim.Kind, restart func(e *harness.Engine)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			cfg := harness.BubbleConfig{Routers: 3, Delay: time.Millisecond}
			cfg.Engine = enginesim.DefaultConfig()
			cfg.Engine.Kind = kind
			if kind == enginesim.LlamaCpp {
				cfg.Engine.MaxSeqs = 8
			}
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				e := b.Engine(0)
				old := chat(words("old", 3000), "Go on.", 20)
				for i := range 10 {
					ok(t, b.Chat(i%3, old))
				}
				torn := streamed(chat(words("torn", 3000), "Go on.", 100000))
				s := b.Open(0, torn.Body())
				for range 5 {
					s.Next()
				}
				time.Sleep(time.Second)
				for _, r := range b.Routers() {
					if n := matched(t, r, e.ID, old); n < 2500 {
						t.Fatalf("%s matches %d tokens before", r.Name, n)
					}
				}
				restart(e)
				began := time.Now()
				fresh := chat(words("fresh", 3000), "Go on.", 20)
				ok(t, b.Chat(1, fresh)) // nobody has noticed yet
				for s.Next() {
				}
				if s.OK() {
					t.Error("a stream outlived its engine")
				}
				time.Sleep(time.Until(began.Add(noticed)))
				for range 150 { // and for good
					for _, r := range b.Routers() {
						for what, c := range map[string]harness.Chat{"old": old, "torn": torn} {
							if n := matched(t, r, e.ID, c); n > 0 {
								t.Fatalf("%s matches %d tokens of the %s prompt %v after the restart", r.Name, n, what, time.Since(began))
							}
						}
						if n := matched(t, r, e.ID, fresh); n < 2500 {
							t.Fatalf("%s matches %d tokens of what the new process holds, %v after the restart", r.Name, n, time.Since(began))
						}
					}
					time.Sleep(20 * time.Millisecond)
				}
				for name, want := range map[string]bool{"old": false, "fresh": true} {
					c := old
					if name == "fresh" {
						c = fresh
					}
					u := ok(t, b.Chat(2, c)).Usage()
					if (u.PromptTokensDetails.CachedTokens > 2500) != want {
						t.Errorf("the engine had %d of %d tokens of the %s prompt", u.PromptTokensDetails.CachedTokens, u.PromptTokens, name)
					}
				}
			})
		})
	}
	at := func(e *harness.Engine) { e.Restart() }
	slow := func(e *harness.Engine) {
		e.Kill()
		time.Sleep(2 * time.Second)
		e.Start()
	}
	f("vllm, between two readings", enginesim.VLLM, at)
	f("vllm, in two seconds", enginesim.VLLM, slow)
	f("llama.cpp, between two readings", enginesim.LlamaCpp, at)
	f("sglang, in two seconds", enginesim.SGLang, slow)
}

// While another engine is lighter, only the cache speaks for the one that restarts:
// after it did, picks follow the load.
func TestPicksFollowTheLoadAfterARestart(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		prompt := chat(words("prefix", 6000), "Go on.", 20)
		first := ok(t, b.Chat(0, prompt))
		holder := b.Find(first.Replica)
		for i := range 9 {
			if r := ok(t, b.Chat(i%3, prompt)); r.Replica != holder.ID {
				t.Fatalf("request %d went to %s, the prefix is at %s", i, r.Replica, holder.ID)
			}
		}
		var streams []*harness.Stream
		for i := range 4 { // short prompts, long answers: at either engine
			s := b.Open(i%3, streamed(chat("Be brief.", words(fmt.Sprint("load", i), 50), 3000)).Body())
			s.Next()
			streams = append(streams, s)
		}
		if r := ok(t, b.Chat(1, prompt)); r.Replica != holder.ID || r.Matched() < 5000 {
			t.Fatalf("before the restart %s was picked for %d matched tokens", r.Replica, r.Matched())
		}
		holder.Restart()
		time.Sleep(650 * time.Millisecond)
		for i := range 3 {
			if n := matched(t, b.Router(i), holder.ID, prompt); n > 0 {
				t.Errorf("r%d still matches %d tokens", i, n)
			}
		}
		for _, s := range streams {
			s.Close()
		}
		b.Idle(2 * time.Second)
	})
}
