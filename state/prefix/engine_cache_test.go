package prefix

import (
	"strings"
	"testing"
)

// What splits an engine's cache, in every family that carries it. A holder is known for the first prompt; the others
// may share nothing behind what is different, and the first one again shares all.
func TestWhatSplitsAnEnginesCacheMatchesNobodyElsesPrompt(t *testing.T) {
	long := strings.Repeat("the same text for all of them ", 40)
	type family struct {
		name          string
		first         Input
		image, system func(*Input)
	}
	content := func(kind, image string) string {
		return `[{"type":"` + kind + `","text":"` + long + `"},` + image + `,{"type":"` + kind + `","text":"` + long + `"}]`
	}
	picture := func(data string) string {
		return `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}`
	}
	source := func(data string) string {
		return `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}`
	}
	input := func(data string) string {
		return `{"type":"input_image","image_url":"data:image/png;base64,` + data + `"}`
	}
	list := func(system, content string) []byte {
		return []byte(`[{"role":"system","content":"` + system + `"},{"role":"user","content":` + content + `}]`)
	}
	user := func(content string) []byte { return []byte(`[{"role":"user","content":` + content + `}]`) }
	tools, other := []byte(`[{"type":"function","name":"f"}]`), []byte(`[{"type":"function","name":"g"}]`)

	for _, f := range []family{
		{
			name:   "chat",
			first:  Input{Kind: Chat, Tools: tools, Messages: list("be brief", content("text", picture("AAAA")))},
			image:  func(in *Input) { in.Messages = list("be brief", content("text", picture("AAAB"))) },
			system: func(in *Input) { in.Messages = list("be long", content("text", picture("AAAA"))) },
		},
		{
			name:   "responses",
			first:  Input{Kind: Responses, Tools: tools, Instructions: []byte(`"be brief"`), Prompt: user(content("input_text", input("AAAA")))},
			image:  func(in *Input) { in.Prompt = user(content("input_text", input("AAAB"))) },
			system: func(in *Input) { in.Instructions = []byte(`"be long"`) },
		},
		{
			name:   "messages",
			first:  Input{Kind: Messages, Tools: tools, System: []byte(`"be brief"`), Messages: user(content("text", source("AAAA")))},
			image:  func(in *Input) { in.Messages = user(content("text", source("AAAB"))) },
			system: func(in *Input) { in.System = []byte(`"be long"`) },
		},
	} {
		seed := Seed{Model: "llama", CacheSalt: "t1"}
		known := marks(t, seed, f.first)
		shares := func(situation string, seed Seed, change func(*Input), want func(shared Mark) bool) {
			t.Helper()
			in := f.first
			if change != nil {
				change(&in)
			}
			var shared Mark
			if n := Diverge(known, marks(t, seed, in)); n > 0 {
				shared = known[n-1]
			}
			if !want(shared) {
				t.Errorf("%s, %s: %+v is matched", f.name, situation, shared)
			}
		}
		nothing := func(m Mark) bool { return m == Mark{} }
		onlyTools := func(m Mark) bool { return m.Bytes() <= len(tools) }
		shares("another salt", Seed{Model: "llama", CacheSalt: "t2"}, nil, nothing)
		shares("no salt", Seed{Model: "llama"}, nil, nothing)
		shares("an adapter", Seed{Model: "llama", Adapter: "adapter-x", CacheSalt: "t1"}, nil, nothing)
		shares("another adapter", Seed{Model: "llama", Adapter: "adapter-y", CacheSalt: "t1"}, nil, nothing)
		shares("an adapter served as a model", Seed{Model: "adapter-x", CacheSalt: "t1"}, nil, nothing)
		shares("a salt named like an adapter", Seed{Model: "llama", Adapter: "t1"}, nil, nothing)
		shares("another tenant where tenants are kept apart", Seed{Model: "llama", CacheSalt: "t1", Tenant: "b"}, nil, nothing)
		shares("other tools", seed, func(in *Input) { in.Tools = other }, nothing)
		shares("no tools", seed, func(in *Input) { in.Tools = nil }, nothing)
		shares("another first system message", seed, f.system, onlyTools)
		shares("another image in the middle", seed, f.image, func(m Mark) bool {
			return m.Bytes() > len(long)/2 && m.Bytes() < len(long)+100 && m.Exact < imageTokens
		})
		shares("the same again", seed, nil, func(m Mark) bool { return m == known[len(known)-1] })
	}
}

func TestTwoAdaptersOfOneModelShareNoMarkWithEachOtherOrTheBase(t *testing.T) {
	for _, in := range []Input{chat(question + "]"), {Kind: Completion, Prompt: []byte(`"x"`)}, {Kind: Completion, Prompt: []byte(`[1,2]`)}, {Kind: Embedding, Prompt: []byte(`"x"`)}, responses(`"x"`), messages(question + "]")} {
		seen := map[uint64]string{}
		for _, adapter := range []string{"", "a", "b", "ab"} {
			for _, m := range marks(t, Seed{Model: "m", Adapter: adapter}, in) {
				if before, ok := seen[m.Hash]; ok {
					t.Errorf("kind %d: adapters %q and %q share a mark", in.Kind, before, adapter)
				}
				seen[m.Hash] = adapter
			}
		}
	}
}
