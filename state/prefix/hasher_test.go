package prefix

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

func chat(messages string) Input { return Input{Kind: Chat, Messages: []byte(messages)} }

func marks(t testing.TB, seed Seed, in Input) []Mark {
	t.Helper()
	var h Hasher
	m, err := h.Marks(nil, seed, in)
	if err != nil {
		t.Fatalf("marks of %.60q: %v", in.Messages, err)
	}
	return m
}

// end is the hash at the end of a prompt.
func end(t testing.TB, seed Seed, in Input) uint64 {
	t.Helper()
	m := marks(t, seed, in)
	if len(m) == 0 {
		return 0
	}
	return m[len(m)-1].Hash
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestPromptsThatEnginesSeeAlikeShareMarks(t *testing.T) {
	f := func(name, a, b string) {
		t.Helper()
		if end(t, Seed{}, chat(a)) != end(t, Seed{}, chat(b)) {
			t.Errorf("%s: %s and %s differ", name, a, b)
		}
	}
	f("escapes", `[{"role":"user","content":"\u00e9 \ud83c\udf0d \/ \u0041"}]`, `[{"role":"user","content":"é 🌍 / A"}]`)
	f("escaped keys", `[{"r\u006fle":"user","content":"a"}]`, `[{"role":"user","content":"a"}]`)
	f("field order and white space", `[ { "content" : "a" , "role" : "user" } ]`, `[{"role":"user","content":"a"}]`)
	f("one text part", `[{"role":"user","content":[{"type":"text","text":"a"}]}]`, `[{"role":"user","content":"a"}]`)
	f("content null, empty and absent", `[{"role":"assistant","content":null}]`, `[{"role":"assistant","content":""}]`)
	f("content absent and an empty list", `[{"role":"assistant"}]`, `[{"role":"assistant","content":[]}]`)
	f("ids of tool calls", `[{"role":"tool","tool_call_id":"a","content":"x"}]`, `[{"role":"tool","tool_call_id":"b","content":"x"}]`)
	f("unknown fields", `[{"role":"user","content":"x","metadata":{"at":1}}]`, `[{"role":"user","content":"x"}]`)
	f("the last of two keys counts", `[{"role":"user","content":"y","content":"x"}]`, `[{"role":"user","content":"x"}]`)
	f("image part member order", `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image\/png;base64,AA"}}]}]`,
		`[{"role":"user","content":[{"type":"image_url", "image_url":{"url":"data:image/png;base64,AA"}}]}]`)

	tools := func(raw string) uint64 { return end(t, Seed{}, Input{Kind: Chat, Tools: []byte(raw)}) }
	if tools(`[{"a":"\u00e9","b":[1, 2]}]`) != tools(`[ {"a": "é", "b":[1,2] } ]`) {
		t.Error("tools with other white space and escapes differ")
	}
	if end(t, Seed{}, Input{Kind: Chat, Tools: []byte(`null`), Messages: []byte(`[]`)}) != 0 {
		t.Error("an empty prompt has marks")
	}
}

func TestWhatSplitsAnEnginesCacheSplitsMarks(t *testing.T) {
	user := `[{"role":"user","content":"x"}]`
	seen := map[uint64]string{}
	add := func(name string, seed Seed, in Input) {
		t.Helper()
		h := end(t, seed, in)
		if before, ok := seen[h]; ok {
			t.Errorf("%s hashes like %s", name, before)
		}
		seen[h] = name
	}
	add("plain", Seed{}, chat(user))
	add("model", Seed{Model: "a"}, chat(user))
	add("adapter", Seed{Adapter: "a"}, chat(user))
	add("salt", Seed{CacheSalt: "a"}, chat(user))
	add("tenant", Seed{Tenant: "a"}, chat(user))
	add("model and adapter run together", Seed{Model: "aa"}, chat(user))
	add("model and adapter apart", Seed{Model: "a", Adapter: "a"}, chat(user))
	with := func(change func(*Input)) Input { in := chat(user); change(&in); return in }
	add("tools", Seed{}, with(func(in *Input) { in.Tools = []byte(`["x"]`) }))
	add("functions", Seed{}, with(func(in *Input) { in.Functions = []byte(`["x"]`) }))
	add("template", Seed{}, with(func(in *Input) { in.Template = []byte(`"x"`) }))
	add("template arguments", Seed{}, with(func(in *Input) { in.TemplateArgs = []byte(`{"x":1}`) }))
	add("documents", Seed{}, with(func(in *Input) { in.Documents = []byte(`["x"]`) }))
	add("reasoning effort", Seed{}, with(func(in *Input) { in.ReasoningEffort = []byte(`"high"`) }))
	for _, m := range []string{
		`[{"role":"user","content":"x "}]`,
		`[{"role":"userx","content":""}]`,
		`[{"role":"","content":"userx"}]`,
		`[{"role":"user","name":"x"}]`,
		`[{"role":"user","name":"x","content":"x"}]`,
		`[{"role":"user","refusal":"x"}]`,
		`[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"x"}]}]`,
		`[{"role":"user","content":"xx"}]`,
		`[{"role":"user","content":"x"},{"role":"user","content":"x"}]`,
		`[{"role":"user"},{"content":"x"}]`,
		`[{"role":"user","content":{"type":"text","text":"x"}}]`,
		`[{"role":"user","content":1}]`,
		`[{"role":"user","content":"1"}]`,
		`[{"role":"user","content":true}]`,
		`[{"role":"user","content":[1]}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"y"}}]}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}},{"type":"image_url","image_url":{"url":"y"}}]}]`,
		`[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"x"}}]}]`,
		`[{"role":"user","content":[{"type":"video_url","video_url":{"url":"x"}}]}]`,
		`[{"role":"user","content":[{"type":"file","file":{"file_data":"x"}}]}]`,
		`[{"role":"user","content":[{"type":"thinking","thinking":"x"}]}]`,
		`[{"role":"user","content":[{"type":"thinking","thinking":"\",\"y\":\"x"}]}]`,
		`[{"role":"user","content":[{"type":"thinking","thinking":"","y":"x"}]}]`,
		`[{"role":"user","content":[{"type":"thinking","thinking":"\\"}]}]`,
		`[{"role":"user","tool_calls":[{"function":{"name":"x"}}]}]`,
		`[{"role":"user","tool_calls":[{"function":{"name":"x","arguments":"x"}}]}]`,
		`[{"role":"user","tool_calls":[{"function":{"name":"xx","arguments":""}}]}]`,
		`[{"role":"user","tool_calls":[{"function":{"name":"x"}},{"function":{"name":"x"}}]}]`,
		`[{"role":"user","tool_calls":[{"function":{"arguments":"x"}}]}]`,
		`[{"role":"user","tool_calls":[{"function":{"name":"x","arguments":{"x":1}}}]}]`,
		`[{"role":"user","function_call":{"name":"x"}}]`,
		`[{"role":"user","content":"\ud83c"}]`,
		`[{"role":"user","content":"\udf0d"}]`,
		`[{"role":"user","content":"\ufffd"}]`,
		`[null]`, `[[]]`, `"x"`, `{"role":"user"}`,
	} {
		add(m, Seed{}, chat(m))
	}
	prompt := func(kind Kind, raw string) {
		add(fmt.Sprint(kind, raw), Seed{}, Input{Kind: kind, Prompt: []byte(raw)})
	}
	for _, kind := range []Kind{Completion, Embedding} {
		for _, raw := range []string{`"x"`, `"y"`, `[1]`, `[1,2]`, `[[1],[2,3,4]]`[:3] + `,7]]`, `[-1]`, `[1.5]`, `[4294967295]`, `[4294967296]`, `[true]`, `{"x":1}`} {
			prompt(kind, raw)
		}
	}
}

func TestBatchesAreMatchedByTheirFirstPromptAndCountedWhole(t *testing.T) {
	f := func(raw, like string, total Mark) {
		t.Helper()
		var h Hasher
		got, err := h.Marks(nil, Seed{}, Input{Kind: Completion, Prompt: []byte(raw)})
		if err != nil {
			t.Fatal(err)
		}
		if h.Total() != total {
			t.Errorf("%s: total %+v, want %+v", raw, h.Total(), total)
		}
		want := marks(t, Seed{}, Input{Kind: Completion, Prompt: []byte(like)})
		if len(got) != len(want) || Diverge(got, want) != len(want) {
			t.Errorf("%s: marks %v, want those of %s", raw, got, like)
		}
	}
	f(`"abc"`, `"abc"`, Mark{ASCII: 3})
	f(`["abc","é那","x"]`, `"abc"`, Mark{ASCII: 4, Wide: 5})
	f(`[1,2,3]`, `[1,2,3]`, Mark{Exact: 3})
	f(`[[1,2],[3,4,5]]`, `[1,2]`, Mark{Exact: 5})
	f(`["abc",[1,2],7]`, `"abc"`, Mark{ASCII: 3, Exact: 2})
	f(`[]`, `""`, Mark{})
	f(`""`, `""`, Mark{})
}

func TestDepthCountsTextAndNothingElse(t *testing.T) {
	got := marks(t, Seed{}, chat(`[{"role":"user","content":"abc é"},{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`))
	want := []Mark{{ASCII: 8, Wide: 2, Exact: messageTokens}, {ASCII: 17, Wide: 2, Exact: 2*messageTokens + imageTokens}}
	for i := range got {
		got[i].Hash = 0
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestMarksByPositionStandWhereTheSchemeSays(t *testing.T) {
	got := marks(t, Seed{}, Input{Kind: Completion, Prompt: []byte(quote(strings.Repeat("x", 100_000)))})
	const frame = 2 // the stream's bytes before the text
	at := 256
	for i, m := range got[:len(got)-1] {
		if m.Bytes() != at-frame {
			t.Fatalf("mark %d lies at %d, want %d", i, m.Bytes()+frame, at)
		}
		at += max(256, at/16)
	}
	if last := got[len(got)-1].Bytes(); last != 100_000 || at-frame <= last {
		t.Fatalf("the last mark lies at %d, the next by position would at %d", last, at)
	}
}

func TestManyTinyMessagesHaveBoundedMarks(t *testing.T) {
	body := []byte("[" + strings.Repeat(`{"role":"user","content":"x"},`, 200_000) + `{}]`)
	if got := marks(t, Seed{}, Input{Kind: Chat, Messages: body}); len(got) > 2500 {
		t.Fatalf("%d marks", len(got))
	}
}

func TestLargeImagesAreHashedByTheirBytes(t *testing.T) {
	image := func(last string) Input {
		return chat(`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("QUJD", 2<<20) + last + `"}}]}]`)
	}
	a, b := marks(t, Seed{}, image("QQ==")), marks(t, Seed{}, image("QR=="))
	if len(a) != 1 || Diverge(a, b) != 0 {
		t.Fatalf("%d marks, %d shared", len(a), Diverge(a, b))
	}
}

func TestMalformedInputIsAnErrorAndTheRestIsKept(t *testing.T) {
	good := `[{"role":"user","content":"x"}`
	var h Hasher
	got, err := h.Marks(nil, Seed{}, chat(good+`,{"role":}]`))
	var fault *scan.Error
	if !errors.As(err, &fault) || len(got) != 1 || got[0].Hash != end(t, Seed{}, chat(good+"]")) {
		t.Fatalf("got %v, %v", got, err)
	}
	for _, in := range []Input{{Kind: Chat, Tools: []byte(`[`)}, {Kind: Chat, Messages: []byte(`x`)}, {Kind: Completion, Prompt: []byte(`"x`)}, {Kind: Completion, Prompt: []byte(`[1,`)}} {
		if _, err := h.Marks(nil, Seed{}, in); !errors.As(err, &fault) {
			t.Fatalf("%+v: %v", in, err)
		}
	}
}

// text draws strings in which escapes, wide characters and long runs all happen.
func text() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 6).Draw(t, "pieces") {
			piece := rapid.SampledFrom([]string{"a", "line\n", `"q"`, "那个", "🌍", "é", "words and words and words and words and more ", "\\"}).Draw(t, "piece")
			b.WriteString(strings.Repeat(piece, rapid.IntRange(1, 90).Draw(t, "times")))
		}
		return b.String()
	})
}

func TestPromptsWithACommonPrefixShareItsMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shared := rapid.SliceOfN(text(), 0, 5).Draw(t, "shared")
		common := text().Draw(t, "common")
		build := func(tail string, more []string) Input {
			var b strings.Builder
			b.WriteString("[")
			for i, s := range shared {
				fmt.Fprintf(&b, `{"role":"user%d","content":%s},`, i, quote(s))
			}
			fmt.Fprintf(&b, `{"role":"user","content":%s}`, quote(common+tail))
			for _, s := range more {
				fmt.Fprintf(&b, `,{"role":"user","content":%s}`, quote(s))
			}
			return chat(b.String() + "]")
		}
		var h Hasher
		a, err := h.Marks(nil, Seed{}, build("1"+text().Draw(t, "a"), rapid.SliceOfN(text(), 0, 3).Draw(t, "after a")))
		if err != nil {
			t.Fatal(err)
		}
		b, err := h.Marks(nil, Seed{}, build("2"+text().Draw(t, "b"), rapid.SliceOfN(text(), 0, 3).Draw(t, "after b")))
		if err != nil {
			t.Fatal(err)
		}
		n := 4 + len(common)
		for i, s := range shared {
			n += len(fmt.Sprint("user", i)) + len(s)
		}
		for _, m := range [][]Mark{a, b} {
			for i := 1; i < len(m); i++ {
				if m[i].ASCII < m[i-1].ASCII || m[i].Wide < m[i-1].Wide || m[i].Exact < m[i-1].Exact || m[i].Bytes()+int(m[i].Exact) <= m[i-1].Bytes()+int(m[i-1].Exact) {
					t.Fatalf("marks do not grow: %v", m)
				}
			}
		}
		k := Diverge(a, b)
		matched := 0
		if k > 0 {
			matched = a[k-1].Bytes()
		}
		// The stream is longer than the text by its frames, eight bytes for each of a few messages.
		if position := n + 8*(len(shared)+1); matched > n || n-matched > max(firstMark, position>>spacingShift)+8*(len(shared)+1) {
			t.Fatalf("%d bytes matched of %d", matched, n)
		}
	})
}

func TestHashingAllocatesNothing(t *testing.T) {
	var h Hasher
	in := chat(`[{"role":"user","content":"` + strings.Repeat(`some words\n\u00e9 `, 4000) + `"},{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"` +
		strings.Repeat("A", 9000) + `"}}]},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}]`)
	in.Tools = []byte(`[{"name":"f","description":"\"x\""}]`)
	var dst, answer []Mark
	piece := []byte(strings.Repeat("piece ", 100))
	if n := testing.AllocsPerRun(50, func() {
		var err error
		if dst, err = h.Marks(dst[:0], Seed{Model: "m", CacheSalt: "s"}, in); err != nil {
			t.Fatal(err)
		}
		h.BeginAnswer("assistant")
		for range 20 {
			h.AnswerText(piece)
		}
		answer = h.EndAnswer(answer[:0])
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func FuzzMarks(f *testing.F) {
	for _, s := range []string{
		`[{"role":"user","content":"x"}]`, `[{"role":"user","content":[{"type":"text","text":"\ud83c"},{"type":"image_url"},"x",1,null]}]`,
		`[{"tool_calls":[{"function":{"name":1,"arguments":{}}},{},1,{"function":1}],"function_call":[]}]`, `[1,[2],"x",-1,1.5]`, `{"a":"\"\\"}`, `[`, `"`,
	} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(1))
	}
	for _, s := range []string{
		`"x"`, `[{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"x"}]},{"type":"function_call","name":"f","arguments":"{}"},{"type":"function_call_output","output":"x"},{"type":"reasoning"},{"type":"x","id":"1"}]`,
		`[{"role":"user","content":[{"type":"tool_use","name":"f","input":{"a":"\ud83c\udf0d"}},{"type":"tool_result","content":[{"type":"document","source":{"type":"content","content":[{"type":"image","cache_control":{}}]}}]}]}]`,
		`[{"role":"user","content":[{"type":"tool_use","name":"f","input":{ "a" : "` + strings.Repeat(`x \"y\"\n\u4e00 `, 20) + `" }}]}]`,
		`[` + strings.Repeat("123, 7 ,", 40) + `0]`, `{"a":"\ud83c\ud83c\u0022"}`, `[{"cache_control":1,"x":{"cache_control":2}}]`,
	} {
		f.Add([]byte(s), uint8(3))
		f.Add([]byte(s), uint8(4))
	}
	f.Fuzz(func(t *testing.T, raw []byte, kind uint8) {
		var h Hasher
		in := Input{Kind: Kind(kind%5 + 1), Tools: raw, Messages: raw, Prompt: raw, System: raw, Instructions: raw, Previous: raw}
		first, err := h.Marks(nil, Seed{Model: "m"}, in)
		if c := scan.New(raw); len(raw) > 0 {
			c.Skip()
			if (c.End() == nil) != (err == nil) {
				t.Fatalf("hasher says %v, cursor %v", err, c.Err())
			}
		}
		slow := Hasher{probe: &probe{}} // which takes everything piece by piece
		if want, _ := slow.Marks(nil, Seed{Model: "m"}, in); fmt.Sprint(first) != fmt.Sprint(want) {
			t.Fatalf("marks %v, piece by piece %v", first, want)
		}
		answer := func(h *Hasher) []Mark {
			h.AnswerText(raw)
			h.BeginAnswer("assistant")
			h.AnswerText(raw)
			h.AnswerCall(raw)
			h.AnswerArguments(raw)
			h.AnswerPart()
			h.AnswerItem(raw)
			return h.EndAnswer(nil)
		}
		if got, want := answer(&h), answer(&slow); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("an answer's marks %v, piece by piece %v", got, want)
		}
		again, _ := h.Marks(nil, Seed{Model: "m"}, in)
		if fmt.Sprint(first) != fmt.Sprint(again) {
			t.Fatal("a used hasher makes other marks")
		}
		in.Checked = true
		if known, _ := h.Marks(nil, Seed{Model: "m"}, in); err == nil && fmt.Sprint(first) != fmt.Sprint(known) {
			t.Fatal("values that are not checked again have other marks")
		}
		in.Checked = false
		var compact bytes.Buffer
		if err == nil && json.Compact(&compact, raw) == nil {
			c := compact.Bytes()
			in.Tools, in.Messages, in.Prompt, in.System, in.Instructions, in.Previous = c, c, c, c, c, c
			if other, _ := h.Marks(nil, Seed{Model: "m"}, in); fmt.Sprint(first) != fmt.Sprint(other) {
				t.Fatal("white space between tokens changes the marks")
			}
		}
	})
}

// BenchmarkMark is the cost of one mark: Sum64 on a stream that has begun.
func BenchmarkMark(b *testing.B) {
	var h Hasher
	in := chat(`[{"role":"user","content":"` + strings.Repeat("x", 5000) + `"}]`)
	if _, err := h.Marks(nil, Seed{}, in); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		h.x.Sum64()
	}
}
