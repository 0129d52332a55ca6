package enginesim

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// All tokens of a text but the last are those of any longer text.
func TestTokensArePrefixStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.SampledFrom([]rune("ab Z_09  \n\t..-({é中😀")), 0, 60, -1).Draw(t, "text")
		cut := rapid.IntRange(0, len(s)).Draw(t, "cut")
		for !utf8.ValidString(s[:cut]) {
			cut--
		}
		whole, head := AppendTokens(nil, s), AppendTokens(nil, s[:cut])
		if n := len(head) - 1; n > 0 && (len(whole) < n || !slices.Equal(head[:n], whole[:n])) {
			t.Fatalf("%q cut at %d: %v is no prefix of %v", s, cut, head[:n], whole)
		}
	})
}

func TestBytesPerToken(t *testing.T) {
	for name, x := range map[string]struct {
		text   string
		lo, hi float64
	}{
		"english": {strings.Repeat("The quick brown fox jumps over the lazy dog, while considering international relations. ", 50), 3.7, 4.8},
		"code":    {strings.Repeat("func (p *pool) take(b int32) error { return fmt.Errorf(\"x: %w\", err) }\n", 50), 2, 4},
		"accents": {strings.Repeat("éàüöñ", 100), 1.5, 2.1},
		"chinese": {strings.Repeat("天地玄黄宇宙洪荒", 50), 1.4, 2},
		"emoji":   {strings.Repeat("😀🎉", 50), 1.5, 2.1},
	} {
		if got := float64(len(x.text)) / float64(len(AppendTokens(nil, x.text))); got < x.lo || got > x.hi {
			t.Errorf("%s: %.2f bytes per token, want %v to %v", name, got, x.lo, x.hi)
		}
	}
}

// What a generator says, tokenised, has the ids it was generated with.
func TestGeneratedTextHasTheTokensItWasGeneratedWith(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{seed: rapid.Uint64().Draw(t, "seed"), tokens: rapid.IntRange(1, 60).Draw(t, "tokens"), eos: rapid.Bool().Draw(t, "eos"), spaced: rapid.Bool().Draw(t, "spaced")}
		var text []byte
		var want []uint32
		for i := range g.tokens {
			text = g.appendPiece(text, i)
			if id := g.id(i); id != markEnd {
				want = append(want, id)
			}
		}
		if got := AppendTokens(nil, string(text)); !slices.Equal(got, want) {
			t.Fatalf("%q is %v, generated %v", text, got, want)
		}
	})
}

func chatIDs(t *testing.T, body string) []uint32 {
	t.Helper()
	r := gjson.Parse(body)
	got, err := appendChat(nil, r.Get("messages"), r.Get("tools"), 10)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTemplate(t *testing.T) {
	const user = `{"role":"user","content":"hi there"}`
	base := chatIDs(t, `{"messages":[`+user+`]}`)
	same := map[string]string{
		"text part":       `{"messages":[{"role":"user","content":[{"type":"text","text":"hi there"}]}]}`,
		"escapes":         `{"messages":[{"content":"hi \u0074here","role":"user"}]}`,
		"empty tools":     `{"tools":[],"messages":[` + user + `]}`,
		"unknown fields":  `{"x":1,"messages":[{"role":"user","content":"hi there","y":2}]}`,
		"white space":     "{ \"messages\" : [ {\n\"role\":\"user\", \"content\":\"hi there\"} ] }",
		"hidden thoughts": `{"messages":[{"role":"user","content":"hi there","reasoning_content":"hm"}]}`,
	}
	for name, body := range same {
		if got := chatIDs(t, body); !slices.Equal(got, base) {
			t.Errorf("%s: %v, want %v", name, got, base)
		}
	}
	differ := map[string]string{
		"role":       `{"messages":[{"role":"system","content":"hi there"}]}`,
		"name":       `{"messages":[{"role":"user","name":"bob","content":"hi there"}]}`,
		"tools":      `{"tools":[{"type":"function","function":{"name":"f"}}],"messages":[` + user + `]}`,
		"tool calls": `{"messages":[{"role":"user","content":"hi there","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}`,
		"image":      `{"messages":[{"role":"user","content":[{"type":"text","text":"hi there"},{"type":"image_url","image_url":{"url":"data:x"}}]}]}`,
		"other img":  `{"messages":[{"role":"user","content":[{"type":"text","text":"hi there"},{"type":"image_url","image_url":{"url":"data:y"}}]}]}`,
	}
	seen := map[string]string{}
	for name, body := range differ {
		got := chatIDs(t, body)
		key := strings.Join(strings.Fields(string(encode(got))), "")
		if slices.Equal(got, base) || seen[key] != "" {
			t.Errorf("%s renders as the plain message or as %s", name, seen[key])
		}
		seen[key] = name
	}
	// A follow-up begins with everything before the assistant's header and that header.
	next := chatIDs(t, `{"messages":[`+user+`,{"role":"assistant","content":"yes"},`+user+`]}`)
	if !slices.Equal(next[:len(base)], base) {
		t.Errorf("follow-up %v does not begin with %v", next, base)
	}
}

func encode(ids []uint32) []byte {
	var b []byte
	for _, id := range ids {
		b = append(b, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	}
	return b
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":3}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}],"tools":[{}],"n":2}`,
		`{"prompt":[[1,2],[3]],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"prompt":["a","b"],"max_tokens":null,"cache_salt":"s"}`, `{"input":"x","encoding_format":"base64"}`, `{"n":1e9}`, `{"prompt":[4294967296]}`, "\ufeff{}", `[]`, ``,
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"base64","data":""}}]}]}]}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{"a":["\\\"",1]}}]}],"stop_sequences":["a"],"thinking":{"type":"adaptive"}}`,
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{}]}}]}],"tools":[{"name":1,"cache_control":{}}],"tool_choice":{"type":"any"}}`,
	} {
		f.Add([]byte(s))
	}
	cfg := DefaultConfig()
	cfg.Model = "m"
	e := New(cfg)
	cfg.Kind = Anthropic
	a := New(cfg)
	f.Fuzz(func(t *testing.T, body []byte) {
		_ = checkVersion2026(body)
		for _, ep := range []endpoint{e.chat(), e.completion(), e.embedding(), e.messages(), a.messages()} {
			c, _, err := e.prepare(ep, &RequestRecord{}, body)
			if err != nil {
				if err.status < 400 || err.status > 499 {
					t.Fatalf("status %d", err.status)
				}
				continue
			}
			for i, s := range c.seqs {
				if len(s.Prompt) == 0 || len(s.Prompt)+s.MaxOutput > cfg.contextLen() || c.gens[i].tokens < 1 || !utf8.Valid(body) {
					t.Fatalf("sequence of %d + %d tokens", len(s.Prompt), s.MaxOutput)
				}
			}
		}
	})
}
