package messages

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

// conversation draws messages as a client has them, each without the marks that it moves from turn to turn.
func conversation(t *rapid.T, n int) []string {
	word := rapid.SampledFrom([]string{`a`, `\n`, `b\"c`, `é`, `\ud83d\ude00`, `\\`, ` `})
	content := func(label string) string { return strings.Join(rapid.SliceOfN(word, 1, 5).Draw(t, label), "") }
	block := func(kinds ...string) string {
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "text":
			return `{"type":"text","text":"` + content("text") + `"@}`
		case "image":
			return `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + content("data") + `"}@}`
		case "call":
			return `{"type":"tool_use","id":"` + content("id") + `","name":"f","input":{"x": "` + content("input") + `"}@}`
		case "thinking":
			return `{"type":"thinking","thinking":"` + content("thinking") + `","signature":"s"}`
		}
		return `{"type":"tool_result","tool_use_id":"` + content("id") + `","content":[{"type":"text","text":"` + content("result") + `"}]@}`
	}
	var list []string
	for range n {
		role, kinds := "user", []string{"text", "image", "result"}
		if rapid.Bool().Draw(t, "assistant") {
			role, kinds = "assistant", []string{"text", "call", "thinking"}
		}
		var blocks []string
		for range rapid.IntRange(0, 4).Draw(t, "blocks") {
			blocks = append(blocks, block(kinds...))
		}
		list = append(list, `{"role":"`+role+`","content":[`+strings.Join(blocks, ",")+`]}`)
	}
	return list
}

// spoken is the body for a turn of a conversation: with the mark for the cache in its last message alone.
func spoken(system string, list []string) []byte {
	clean := make([]string, len(list))
	for i, m := range list {
		mark := ""
		if i == len(list)-1 {
			mark = `,"cache_control":{"type":"ephemeral"}`
		}
		clean[i] = strings.ReplaceAll(m, "@", mark)
	}
	return fmt.Appendf(nil, `{"max_tokens":%d,"system":%s,"messages":[%s],"model":"m"}`, len(list), system, strings.Join(clean, ","))
}

func TestOneConversationsTurnsBeginAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := conversation(t, rapid.IntRange(2, 6).Draw(t, "messages"))
		system := rapid.SampledFrom([]string{`"s"`, `[{"type":"text","text":"s"}]`}).Draw(t, "system")
		opts := Options{Engine: rapid.SampledFrom([]state.EngineKind{state.EngineVLLM, state.EngineOpenAI}).Draw(t, "engine")}
		shared := rapid.IntRange(1, len(list)-1).Draw(t, "shared")
		first, _, err := Request(nil, spoken(system, list[:shared]), opts)
		if err != nil {
			t.Fatal(err)
		}
		// A later turn, whose system prompt is written in the other way.
		whole, _, err := Request(nil, spoken(`[{"type":"text","text":"x-anthropic-billing-header: 7"},{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]`, list), opts)
		if err != nil {
			t.Fatal(err)
		}
		end := bytes.LastIndex(first, []byte(`],"continue_final_message"`))
		if end < 0 {
			end = bytes.LastIndex(first, []byte(`],"max_`))
		}
		if end < 0 || !bytes.HasPrefix(whole, first[:end]) {
			t.Fatalf("does not begin alike:\n%s\n%s", first, whole)
		}
	})
}

func TestOneTextIsAString(t *testing.T) {
	one, _ := request2(t, `{"role":"user","content":"hi"}`)
	two, _ := request2(t, `{"content":[{"cache_control":null,"text":"hi","type":"t\u0065xt"}],"role":"user"}`)
	if one != two {
		t.Errorf("%s\n%s", one, two)
	}
}

func request2(t *testing.T, message string) (string, Asked) {
	t.Helper()
	return request(t, `{"model":"m","max_tokens":1,"messages":[`+message+`]}`, state.EngineVLLM)
}
