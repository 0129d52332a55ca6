package enginesim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// An Anthropic request renders to the token ids of the equal chat completion.
func TestMessagesRenderAsChats(t *testing.T) {
	image := strings.Repeat("iVBORw0K", 50)
	f := func(name, message, chat string) {
		t.Helper()
		for _, kind := range []Kind{VLLM, SGLang} {
			e := New(kindConfig(kind))
			a, err := e.Prompts(messagesPath, []byte(`{"model":"m","max_tokens":1,`+message+`}`))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			b, err := e.Prompts(chatPath, []byte(`{"model":"m",`+chat+`}`))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !slices.Equal(a[0].Tokens, b[0].Tokens) || !slices.Equal(a[0].Hashes, b[0].Hashes) {
				t.Errorf("%s on %s: message %v, chat %v", name, kind, a[0].Tokens, b[0].Tokens)
			}
		}
	}
	const hi = `{"role":"user","content":"hi"}`
	f("text", `"messages":[`+hi+`]`, `"messages":[`+hi+`]`)
	f("blocks", `"messages":[{"role":"user","content":[{"type":"text","text":"one","cache_control":{"type":"ephemeral"}},{"type":"text","text":"two"}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]`)
	f("system", `"system":"Be terse.","messages":[`+hi+`]`, `"messages":[{"role":"system","content":"Be terse."},`+hi+`]`)
	f("system blocks", `"messages":[`+hi+`],"system":[{"type":"text","text":"Be terse."},{"type":"text","text":"And kind.","cache_control":{"type":"ephemeral"}}]`,
		`"messages":[{"role":"system","content":[{"type":"text","text":"Be terse."},{"type":"text","text":"And kind."}]},`+hi+`]`)
	f("no system", `"system":"","messages":[`+hi+`]`, `"messages":[`+hi+`]`)
	f("empty system", `"system":[],"messages":[`+hi+`]`, `"messages":[`+hi+`]`)
	f("null system", `"system":null,"messages":[`+hi+`]`, `"messages":[`+hi+`]`)
	f("system in the midst", `"messages":[`+hi+`,{"role":"system","content":"Be terse."}]`, `"messages":[`+hi+`,{"role":"system","content":"Be terse."}]`)
	f("history", `"messages":[`+hi+`,{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"text","text":"yes"}]},`+hi+`]`,
		`"messages":[`+hi+`,{"role":"assistant","content":"yes","reasoning_content":"hm"},`+hi+`]`)
	f("tools", `"messages":[`+hi+`],"tools":[
		{"name":"weather","description":"of \"a\" place","input_schema":{"type": "object", "properties": {"place":{"type":"string"}}},"cache_control":{"type":"ephemeral"}},
		{"input_schema":{"type":"object"},"name":"time"}]`,
		`"messages":[`+hi+`],"tools":[
		{"type":"function","function":{"name":"weather","description":"of \"a\" place","parameters":{"type":"object","properties":{"place":{"type":"string"}}}}},
		{"type":"function","function":{"name":"time","parameters":{"type":"object"}}}]`)
	f("no tools", `"messages":[`+hi+`],"tools":[]`, `"messages":[`+hi+`],"tools":[]`)
	f("call and result", `"messages":[`+hi+`,
		{"role":"assistant","content":[{"type":"text","text":"wait"},{"type":"tool_use","id":"toolu_1","name":"weather","input":{"text":"a: b, \"c\"","n":[1,2]}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"rain"},{"type":"text","text":"and now?"}]}]`,
		`"messages":[`+hi+`,
		{"role":"assistant","content":"wait","tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"weather","arguments":"{\"text\": \"a: b, \\\"c\\\"\", \"n\": [1, 2]}"}}]},
		{"role":"tool","tool_call_id":"toolu_1","content":"rain"},{"role":"user","content":"and now?"}]`)
	f("two calls, results alone", `"messages":[`+hi+`,
		{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"a","input":{}},{"type":"tool_use","id":"2","name":"b"}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"tool_result","tool_use_id":"2","is_error":true,"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]}]`,
		`"messages":[`+hi+`,
		{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"a","arguments":"{}"}},{"function":{"name":"b","arguments":"{}"}}]},
		{"role":"tool","content":""},{"role":"tool","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]`)
	f("image", `"messages":[{"role":"user","content":[{"type":"image","cache_control":{"type":"ephemeral"},"source":{"type":"base64","media_type":"image/png","data":"`+image+`"}},{"type":"text","text":"what?"}]}]`,
		`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+image+`"}},{"type":"text","text":"what?"}]}]`)
	f("image by URL", `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png","detail":"low"}}]}]`)
	f("document of text", `"messages":[{"role":"user","content":[{"type":"document","title":"t","source":{"type":"text","media_type":"text/plain","data":"long"}},{"type":"text","text":"sum up"}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"long"},{"type":"text","text":"sum up"}]}]`)
}

// What may not change a prompt doesn't, and what has to does.
func TestMessagesThatDiffer(t *testing.T) {
	ids := func(kind Kind, body string) []uint32 {
		p, err := New(kindConfig(kind)).Prompts(messagesPath, []byte(`{"model":"m","max_tokens":1,`+body+`}`))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return p[0].Tokens
	}
	const user = `{"role":"user","content":[{"type":"text","text":"hi"},%s]}`
	plain := func(block string) string { return `"messages":[` + fmt.Sprintf(user, block) + `]` }
	different := []string{
		`{"type":"text","text":"x"}`,
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`,
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AB=="}}`,
		`{"type":"image","source":{"type":"file","file_id":"f1"}}`,
		`{"type":"image","source":{"type":"file","file_id":"f2"}}`,
		`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="}}`,
		`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"page"}]}}`,
		`{"type":"search_result","title":"t","cache_control":{"type":"ephemeral"}}`,
	}
	for i, a := range different {
		for k, b := range different {
			if equal := slices.Equal(ids(SGLang, plain(a)), ids(SGLang, plain(b))); equal != (i == k) {
				t.Errorf("%s and %s: equal %v", a, b, equal)
			}
		}
	}
	marked, bare := `{"type":"search_result","title":"t","cache_control":{"type":"ephemeral"}}`, `{"type":"search_result","title":"t"}`
	if !slices.Equal(ids(SGLang, plain(marked)), ids(SGLang, plain(bare))) {
		t.Error("cache_control is part of the prompt")
	}
	header := func(hash string) string {
		return `"system":[{"type":"text","text":"x-anthropic-billing-header: ` + hash + `"},{"type":"text","text":"Be terse."}],"messages":[{"role":"user","content":"hi"}]`
	}
	if !slices.Equal(ids(VLLM, header("a")), ids(VLLM, header("b"))) || slices.Equal(ids(SGLang, header("a")), ids(SGLang, header("b"))) {
		t.Error("vLLM leaves the billing header out, SGLang does not")
	}
}

// A cache filled through one API serves the other.
func TestCacheServesBothAPIs(t *testing.T) {
	long := strings.Repeat("all work and no play ", 40)
	f := func(kind Kind, first, second string) {
		t.Helper()
		bubble(t, kindConfig(kind), func(t *testing.T, s *sim) {
			body := map[string]string{
				messagesPath: `{"model":"m","max_tokens":1,"system":"` + long + `","messages":[{"role":"user","content":"hi"}]}`,
				chatPath:     `{"model":"m","max_tokens":1,"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"hi"}]}`,
			}
			for _, path := range []string{first, second} {
				if status, b := s.post(path, body[path]); status != 200 {
					t.Fatalf("%s: %d %s", path, status, b)
				}
			}
			rec := s.Record().Requests
			if rec[0].PromptTokens != rec[1].PromptTokens || rec[0].CachedTokens != 0 || rec[1].CachedTokens != rec[1].PromptTokens/16*16 {
				t.Errorf("%s, then %s: %d of %d tokens cached, then %d of %d", first, second, rec[0].CachedTokens, rec[0].PromptTokens, rec[1].CachedTokens, rec[1].PromptTokens)
			}
		})
	}
	for _, kind := range []Kind{VLLM, SGLang} {
		f(kind, messagesPath, chatPath)
		f(kind, chatPath, messagesPath)
	}
}

// An answer that comes back as history is found in the cache.
func TestMessageHistoryIsCached(t *testing.T) {
	bubble(t, kindConfig(Anthropic), func(t *testing.T, s *sim) {
		const ask = `{"role":"user","content":"tell me a long story"}`
		first := s.message(`{"model":"m","max_tokens":100,"messages":[` + ask + `]}`)
		text := first["content"].([]any)[0].(jsonObject)["text"].(string)
		next := s.message(`{"model":"m","max_tokens":1,"messages":[` + ask + `,{"role":"assistant","content":[{"type":"text","text":"` + text + `"}]},{"role":"user","content":"on"}]}`)
		u := next["usage"].(jsonObject)
		if all := s.Record().Requests[0].PromptTokens + 99; u["cache_read_input_tokens"] != float64(all/16*16) {
			t.Errorf("%v, want the whole blocks of %d tokens", u, all)
		}
	})
}

// What usage says of the cache when a prompt comes for the first time and again, by kind.
func TestMessageUsage(t *testing.T) {
	long := strings.Repeat("all work and no play ", 40)
	marked := (len(AppendTokens(nil, "system"+long)) + 2) / 16 * 16
	f := func(kind Kind, hide bool, block, top string, want func(prompt, whole float64) (first, again jsonObject)) {
		t.Helper()
		cfg := kindConfig(kind)
		cfg.HideCachedTokens = hide
		bubble(t, cfg, func(t *testing.T, s *sim) {
			body := `{"model":"m","max_tokens":2,` + top + `"system":[{"type":"text","text":"` + long + `"` + block + `}],"messages":[{"role":"user","content":"hi"}]}`
			got := []jsonObject{s.message(body)["usage"].(jsonObject), s.message(body)["usage"].(jsonObject)}
			start := s.messageEvents(body)[0]["message"].(jsonObject)["usage"].(jsonObject)
			prompt := s.Record().Requests[0].PromptTokens
			first, again := want(float64(prompt), float64(prompt/16*16))
			for i, want := range []jsonObject{first, again, again} {
				u := append(got, start)[i]
				for _, k := range []string{"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"} {
					if u[k] != want[k] {
						t.Errorf("%s, hidden %v, %s%s: request %d: %s is %v, want %v", kind, hide, block, top, i, k, u[k], want[k])
					}
				}
			}
		})
	}
	usage := func(input, read, created float64) jsonObject {
		return jsonObject{"input_tokens": input, "cache_read_input_tokens": read, "cache_creation_input_tokens": created}
	}
	const mark = `"cache_control":{"type":"ephemeral"}`
	f(VLLM, false, "", "", func(p, w float64) (a, b jsonObject) { return usage(p, 0, 0), usage(p-w, w, 0) })
	f(VLLM, false, ","+mark, "", func(p, w float64) (a, b jsonObject) { return usage(p, 0, 0), usage(p-w, w, 0) })
	unknown := func(p, _ float64) (a, b jsonObject) {
		return jsonObject{"input_tokens": p}, jsonObject{"input_tokens": p}
	}
	f(VLLM, true, "", "", unknown)
	f(SGLang, true, "", "", unknown)
	f(SGLang, false, "", "", func(p, w float64) (a, b jsonObject) {
		return jsonObject{"input_tokens": p}, jsonObject{"input_tokens": p - w, "cache_read_input_tokens": w}
	})
	f(Anthropic, true, "", "", func(p, w float64) (a, b jsonObject) { return usage(p, 0, 0), usage(p-w, w, 0) })
	f(Anthropic, false, ","+mark, "", func(p, w float64) (a, b jsonObject) {
		return usage(p-float64(marked), 0, float64(marked)), usage(p-w, w, 0)
	})
	f(Anthropic, false, "", mark+",", func(p, w float64) (a, b jsonObject) { return usage(p-w, 0, w), usage(p-w, w, 0) })
}
