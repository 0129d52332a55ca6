package scenario

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// What splits an engine's cache splits what routers think it holds: of requests
// that look alike only the identical one is taken for a match, on any router.
func TestWhatSplitsTheCacheIsNoMatch(t *testing.T) {
	t.Parallel()
	type object map[string]any
	image := func(fill string) object {
		data := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 3000)))
		return object{"type": "image_url", "image_url": object{"url": "data:image/png;base64," + data}}
	}
	tool := func(name string) []object {
		return []object{{"type": "function", "function": object{"name": name, "description": words(name, 400), "parameters": object{"type": "object"}}}}
	}
	body := func(change func(o object)) []byte {
		o := object{
			"model": harness.Model, "max_tokens": 4, "cache_salt": "t1", "tools": tool("look_up"),
			"messages": []object{
				{"role": "system", "content": words("split", 1500)},
				{"role": "user", "content": []any{image("a"), object{"type": "text", "text": words("question", 1500)}}},
			},
		}
		if change != nil {
			change(o)
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	messages := func(system string, part object, text string) []object {
		return []object{
			{"role": "system", "content": system},
			{"role": "user", "content": []any{part, object{"type": "text", "text": text}}},
		}
	}
	harness.InBubble(t, harness.BubbleConfig{Routers: 2, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		home := ok(t, b.Do(0, body(nil))).Replica
		b.Settle(200 * time.Millisecond)
		whole := b.Router(1).Explain(body(nil))
		if whole.Replica != home || whole.MatchedTokens < whole.PromptTokens*9/10 {
			t.Fatalf("the same again: %d of %d tokens matched at %s, not all at %s", whole.MatchedTokens, whole.PromptTokens, whole.Replica, home)
		}
		f := func(name string, most int, change func(o object)) {
			t.Helper()
			for i, r := range b.Routers() {
				for _, c := range r.Explain(body(change)).Candidates {
					if c.MatchedTokens > most {
						t.Errorf("%s: router %d thinks %s holds %d tokens, at most %d can be right", name, i, c.Replica, c.MatchedTokens, most)
					}
				}
			}
		}
		// Tools and the system message come first, so nothing of what follows is left;
		// up to the image the prompt is the same.
		head := whole.PromptTokens * 2 / 3
		f("another salt", 0, func(o object) { o["cache_salt"] = "t2" })
		f("no salt", 0, func(o object) { delete(o, "cache_salt") })
		f("other tools", 64, func(o object) { o["tools"] = tool("look_down") })
		f("no tools", 0, func(o object) { delete(o, "tools") })
		f("another system message", whole.PromptTokens/3, func(o object) {
			o["messages"] = messages(words("splat", 1500), image("a"), words("question", 1500))
		})
		f("another image", head, func(o object) { o["messages"] = messages(words("split", 1500), image("b"), words("question", 1500)) })
		before := metrics(t, b.Router(1)).sum("hearsay_predicted_cached_tokens_total")
		ok(t, b.Do(1, body(func(o object) { o["cache_salt"] = "t2" })))
		ok(t, b.Do(1, body(func(o object) { o["tools"] = tool("look_down"); o["cache_salt"] = "t3" })))
		if after := metrics(t, b.Router(1)).sum("hearsay_predicted_cached_tokens_total"); after != before {
			t.Errorf("%v tokens reported as hits that were none", after-before)
		}
		if again := ok(t, b.Do(1, body(nil))); again.Replica != home {
			t.Errorf("the same again went to %s, not to %s", again.Replica, home)
		}
	})
}
