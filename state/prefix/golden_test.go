package prefix

import (
	"fmt"
	"strings"
	"testing"
)

func TestMarksAreTheSameInEveryRelease(t *testing.T) {
	seed := Seed{Model: "m", Adapter: "a", CacheSalt: "s", Tenant: "t"}
	f := func(name string, in Input, want string) {
		t.Helper()
		if got := fmt.Sprintf("%x", marks(t, seed, in)); got != want {
			t.Errorf("%s: marks changed without a new SchemeVersion: %s", name, got)
		}
	}
	in := chat(`[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"what is it?"},` +
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]},{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}]`)
	in.Tools = []byte(`[{"type":"function"}]`)
	f("chat", in, `[{db3d6e1d0cc99d33 15 0 0} {893bc58568ffe252 23 0 4} {ef15f571ee470135 32 0 328} {db4f4646ea22f031 3e 0 32c}]`)
	f("completion", Input{Kind: Completion, Prompt: []byte(quote(strings.Repeat("那 \n\"x", 100)))}, `[{276bcffda6cba254 90 6e 0} {eb13b62a9e524e2c 123 db 0} {29122b749d1dc84b 190 12c 0}]`)
	f("token ids", Input{Kind: Completion, Prompt: []byte(`[1,2,3]`)}, `[{bc59cebaad53708e 0 0 3}]`)
	f("embedding", Input{Kind: Embedding, Prompt: []byte(`["x"]`)}, `[{61f85095702a0d23 1 0 0}]`)
	in = responses(`[{"role":"user","content":[{"type":"input_text","text":"what is it?"},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]},` +
		`{"type":"function_call","name":"f","arguments":"{}"},{"type":"function_call_output","output":"x"},{"type":"web_search_call","id":"1","action":{"query":"x"}}]`)
	in.Previous, in.Instructions, in.Tools = []byte(`"resp_1"`), []byte(`"be brief"`), []byte(`[{"type":"function"}]`)
	f("responses", in, `[{de76d0addc4725a9 15 0 0} {b7a4c4a47f459068 23 0 4} {5058a423172202ca 32 0 328} {f1325e282711154 35 0 32c} {906a5b66f21eebd0 36 0 330} {91bc8894acd8e9b7 67 0 334}]`)
	in = messages(`[{"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image","source":{"data":"AA=="}},{"type":"document","source":{"type":"text","data":"x"},"title":"t"}]},` +
		`{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{"a":"\""}}]},{"role":"user","content":[{"type":"tool_result","content":"x","is_error":true}]}]`)
	in.System, in.Tools, in.Thinking = []byte(`[{"type":"text","text":"be brief","cache_control":{}}]`), []byte(`[{"name":"f","cache_control":{}}]`), []byte(`{"type":"enabled"}`)
	f("messages", in, `[{391c73f01736e688 e 0 0} {a33f49a139f19125 1c 0 0} {cc1190cf803f041c 1c 0 4} {49478c376bc5a152 41 0 328} {c333f56d3dc60264 54 1 32c} {696353c3f2ba4113 59 1 330}]`)
}

func TestTokenIDsInARowAndOneByOneAreTheSame(t *testing.T) {
	f := func(name, list string) {
		t.Helper()
		in := Input{Kind: Completion, Prompt: []byte(list)}
		slow := Hasher{probe: &probe{}}
		want, err := slow.Marks(nil, Seed{}, in)
		if err != nil {
			t.Fatal(err)
		}
		var fast Hasher
		got, err := fast.Marks(nil, Seed{}, in)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || fast.Total() != slow.Total() {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	long := strings.Repeat("128000, 7,198 ,", 700)
	f("many", "["+long+"1]")
	f("a list of lists", "[["+long+"1], ["+long+"2]]")
	f("odd ones in between", "["+strings.Repeat("1,2,3,-4,5.5,9999999999,\"x\",4294967295,1000000000,", 90)+"0]")
	f("one", "[1]")
	f("none", "[]")
}
