package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/state/prefix"
)

func TestUsageOfTheFamilies(t *testing.T) {
	f := func(family Family, raw string, want Usage) {
		t.Helper()
		got, ok := ParseUsage([]byte(raw), family)
		if got != want || ok != (want.Source == Reported) {
			t.Errorf("%s: got %+v, %v, want %+v", raw, got, ok, want)
		}
	}
	f(Inclusive, `{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}`, Usage{InputTotal: 9, Output: 3, Source: Reported})
	f(Inclusive, `{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}`,
		Usage{InputTotal: 9, InputCached: 4, CachedKnown: true, Output: 3, Reasoning: 2, Source: Reported})
	f(Inclusive, `{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}`, Usage{InputTotal: 9, CachedKnown: true, Output: 3, Source: Reported})
	f(Inclusive, `{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":null}`, Usage{InputTotal: 9, Output: 3, Source: Reported})
	f(Inclusive, `{"input_tokens":9,"output_tokens":3,"input_tokens_details":{"cached_tokens":4},"output_tokens_details":{"reasoning_tokens":1}}`,
		Usage{InputTotal: 9, InputCached: 4, CachedKnown: true, Output: 3, Reasoning: 1, Source: Reported})
	f(Inclusive, `{"prompt_tokens":9,"completion_tokens":3,"prompt_cache_hit_tokens":5,"prompt_cache_miss_tokens":4}`, Usage{InputTotal: 9, InputCached: 5, CachedKnown: true, Output: 3, Source: Reported})
	f(Inclusive, `{"prompt_tokens":7,"total_tokens":7}`, Usage{InputTotal: 7, Source: Reported})
	f(Inclusive, `{"prompt_tokens":5,"total_tokens":7}`, Usage{InputTotal: 5, Output: 2, Source: Reported})
	f(Inclusive, `{"prompt_tokens":9.0,"completion_tokens":3.0}`, Usage{InputTotal: 9, Output: 3, Source: Reported})
	f(Inclusive, `{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":99}}`, Usage{InputTotal: 3, InputCached: 3, CachedKnown: true, Output: 1, Source: Reported})
	f(Exclusive, `{"input_tokens":9,"cache_read_input_tokens":1,"cache_creation_input_tokens":0,"output_tokens":15}`, Usage{InputTotal: 10, InputCached: 1, CachedKnown: true, Output: 15, Source: Reported})
	f(Exclusive, `{"input_tokens":4522,"cache_creation_input_tokens":4511,"output_tokens":5}`, Usage{InputTotal: 9033, CacheWrite: 4511, Output: 5, Source: Reported})
	for _, odd := range []string{``, `null`, `{}`, `[]`, `"x"`, `{"prompt_tokens":"9"}`, `{"prompt_tokens":-1,"completion_tokens":null}`, `{"prompt_tokens":1e3}`, `{"prompt_tokens":99999999999}`, `{"prompt_tokens":9`} {
		f(Inclusive, odd, Usage{})
	}
}

func TestUsageToldInTwoPartsIsNeverAddedUp(t *testing.T) {
	f := func(start, last string, want Usage) {
		t.Helper()
		if got, ok := ParseStreamUsage([]byte(start), []byte(last), Exclusive); got != want || ok != (want.Source == Reported) {
			t.Errorf("%s, %s: got %+v", start, last, got)
		}
	}
	f(`{"input_tokens":9,"cache_read_input_tokens":1,"cache_creation_input_tokens":0,"output_tokens":1}`, `{"output_tokens":15,"cache_read_input_tokens":1}`,
		Usage{InputTotal: 10, InputCached: 1, CachedKnown: true, Output: 15, Source: Reported})
	f(``, `{"input_tokens":4522,"cache_creation_input_tokens":4511,"output_tokens":5}`, Usage{InputTotal: 9033, CacheWrite: 4511, Output: 5, Source: Reported})
	f(`{"input_tokens":9,"output_tokens":1}`, ``, Usage{InputTotal: 9, Output: 1, Source: Reported})
	f(`{"input_tokens":9,"output_tokens":1}`, `{"output_tokens":5`, Usage{InputTotal: 9, Output: 1, Source: Reported})
	f(``, ``, Usage{})
}

func TestTimingsOfLlamaCpp(t *testing.T) {
	got, ok := ParseTimings([]byte(`{"cache_n":10,"prompt_n":5,"prompt_ms":1.5,"predicted_n":7}`))
	if want := (Usage{InputTotal: 15, InputCached: 10, CachedKnown: true, Output: 7, Source: Reported}); !ok || got != want {
		t.Fatalf("got %+v", got)
	}
	for _, odd := range []string{``, `{}`, `{"prompt_n":1}`, `[]`, `{"prompt_n":1,"predicted_n":1`} {
		if got, ok := ParseTimings([]byte(odd)); ok {
			t.Fatalf("%s: %+v", odd, got)
		}
	}
	r := ReadResponse([]byte(`{"choices":[{}],"usage":{"prompt_tokens":5,"completion_tokens":7},"timings":{"cache_n":10,"prompt_n":5,"predicted_n":7}}`), LlamaCpp, nil)
	if !r.HasUsage || r.Usage.InputTotal != 15 {
		t.Fatalf("got %+v", r)
	}
}

// recorder writes down what a sink is told.
type recorder struct{ strings.Builder }

func (r *recorder) AnswerText(p []byte)      { r.WriteString(string(p)) }
func (r *recorder) AnswerCall(p []byte)      { fmt.Fprintf(r, "<%s>", p) }
func (r *recorder) AnswerArguments(p []byte) { r.WriteString(string(p)) }
func (r *recorder) BreakAnswer()             { r.WriteString("!") }

func TestWholeResponses(t *testing.T) {
	f := func(body string, want Response, answer string) {
		t.Helper()
		var sink recorder
		got := ReadResponse([]byte(body), Inclusive, &sink)
		text := strings.TrimPrefix(body, "\ufeff")
		want.Object = json.Valid([]byte(text)) && text[0] == '{'
		want.Text = got.Text // tested below
		if got != want || sink.String() != answer {
			t.Errorf("%s\n got %+v %q\nwant %+v %q", body, got, sink.String(), want, answer)
		}
	}
	used := Usage{InputTotal: 1, Output: 2, Source: Reported}
	f(`{"choices":[{"index":0,"message":{"role":"assistant","content":"a\u00e9"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
		Response{Usage: used, HasUsage: true, Choices: 1, Finish: "stop"}, "aé")
	f(`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}},{"function":{"name":"g","arguments":""}}]},"finish_reason":"tool_calls"}]}`,
		Response{Choices: 1, Finish: "tool_calls"}, `<f>{"a":1}<g>`)
	f(`{"choices":[{"text":"once","finish_reason":"length"}]}`, Response{Choices: 1, Finish: "length"}, "once")
	f(`{"choices":[{"message":{"content":"a"}},{"message":{"content":"b"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, Response{Usage: used, HasUsage: true, Choices: 2}, "a!")
	f(`{"data":[{"embedding":[0.1]},{"embedding":"AAA="}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
		Response{Usage: Usage{InputTotal: 1, Source: Reported}, HasUsage: true, Choices: 2}, "!")
	f(`{"choices":[{"message":{"content":[{"type":"text"}]}}]}`, Response{Choices: 1}, "!")
	f(`{"choices":[{"message":{"content":"","refusal":"no"}}]}`, Response{Choices: 1}, "!")
	f(`{"choices":[{"message":{"function_call":{"name":"f"}}}]}`, Response{Choices: 1}, "!")
	f(`{"error":{"message":"x"}}`, Response{Error: true}, "!")
	f(`{"object":"error","message":"x"}`, Response{Error: true}, "!")
	f(`{"error":null,"usage":{"prompt_tokens":"odd"},"choices":7}`, Response{}, "!")
	f("\ufeff"+`{"choices":[{"text":"marked"}]}`, Response{Choices: 1}, "marked")
	f(`{"choices":[{"message":{"content":"cut`, Response{}, "!")
	f(``, Response{}, "!")
	f(`{} {}`, Response{}, "!")
	f(`[]`, Response{}, "!")
	f(`<html>`, Response{}, "!")
}

func TestLengthOfAnAnswersText(t *testing.T) {
	for body, want := range map[string]int{
		`{"choices":[{"message":{"content":"a\u00e9"}},{"message":{"content":"bc"}}]}`: 9,
		`{"choices":[{"text":"once"}]}`:               4,
		`{"choices":[{"message":{"content":null}}]}`:  0,
		`{"content":[{"type":"text","text":"four"}]}`: 29,
		`{"data":[{"embedding":"AAA="}]}`:             0,
	} {
		if got := ReadResponse([]byte(body), Inclusive, nil); got.Text != want {
			t.Errorf("%s: %d bytes of text, want %d", body, got.Text, want)
		}
	}
}

func TestStreamedDeltas(t *testing.T) {
	f := func(answer string, chunks ...string) {
		t.Helper()
		var sink recorder
		var d Deltas
		for _, c := range chunks {
			d.Read([]byte(c), &sink)
		}
		if sink.String() != answer {
			t.Errorf("%s: got %q, want %q", chunks, sink.String(), answer)
		}
	}
	choice := func(delta string) string {
		return `{"choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
	}
	f("hi there", choice(`{"role":"assistant","content":""}`), choice(`{"content":"hi "}`), choice(`{"content":"th\u0065re"}`), choice(`{}`), `{"choices":[],"usage":{}}`)
	f(`<f>{"a":1}<g>{}`, choice(`{"content":null,"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":""}}]}`),
		choice(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}`), choice(`{"tool_calls":[{"index":0,"function":{"name":null,"arguments":":1}"}}]}`),
		choice(`{"tool_calls":[{"index":1,"function":{"name":"g","arguments":"{}"}}]}`))
	f("<f>1!", choice(`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"1"}}]}`), choice(`{"tool_calls":[{"index":2,"function":{"name":"g"}}]}`))
	f("<f><g>!", choice(`{"tool_calls":[{"index":0,"function":{"name":"f"}},{"index":1,"function":{"name":"g"}}]}`), choice(`{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}`))
	f("!", choice(`{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}`))
	f("!", choice(`{"tool_calls":[1]}`))
	f("a!", `{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`)
	f("!", `{"choices":[{`)
	f("!", `x`)
	f("onceupon", `{"choices":[{"index":0,"text":"once"}]}`, `{"choices":[{"index":0,"text":"upon"}]}`)
	f("", `{"error":{"message":"x"}}`)
}

// The next turn of a chat must meet the marks its answer left, whichever way the answer came.
func TestRelayedAnswersMeetTheNextTurn(t *testing.T) {
	hasher := func(messages string) (*prefix.Hasher, []prefix.Mark) {
		h := new(prefix.Hasher)
		m, err := h.Marks(nil, prefix.Seed{Model: "m"}, prefix.Input{Kind: prefix.Chat, Messages: []byte("[" + messages + "]")})
		if err != nil {
			t.Fatal(err)
		}
		return h, m
	}
	const user = `{"role":"user","content":"q"}`
	const message = `{"role":"assistant","content":"see \ud83c\udf0d \ud83c","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":\"\\u00e9\"}"}}]}`
	_, next := hasher(user + "," + message)

	h, whole := hasher(user)
	h.BeginAnswer("assistant")
	ReadResponse([]byte(`{"choices":[{"index":0,"message":`+message+`}]}`), Inclusive, h)
	if whole = h.EndAnswer(whole); len(whole) != 2 || prefix.Diverge(whole, next) != 2 {
		t.Errorf("whole: %v, next turn %v", whole, next)
	}

	h, streamed := hasher(user)
	h.BeginAnswer("assistant")
	var d Deltas
	for _, delta := range []string{
		`{"role":"assistant","content":""}`, `{"content":"see \ud83c"}`, `{"content":"\udf0d "}`, `{"content":"\ud83c"}`,
		`{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":""}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}`, `{"tool_calls":[{"index":0,"function":{"arguments":"\"\\u00e9\"}"}}]}`, `{}`,
	} {
		d.Read([]byte(`{"choices":[{"index":0,"delta":`+delta+`}]}`), h)
	}
	if streamed = h.EndAnswer(streamed); len(streamed) != 2 || prefix.Diverge(streamed, next) != 2 {
		t.Errorf("streamed: %v, next turn %v", streamed, next)
	}
}

func TestReadingDeltasAllocatesNothing(t *testing.T) {
	chunk := []byte(`{"choices":[{"index":0,"delta":{"content":"some \n text","tool_calls":null},"finish_reason":null}]}`)
	h := new(prefix.Hasher)
	if _, err := h.Marks(nil, prefix.Seed{}, prefix.Input{Kind: prefix.Chat}); err != nil {
		t.Fatal(err)
	}
	h.BeginAnswer("assistant")
	var d Deltas
	if n := testing.AllocsPerRun(100, func() { d.Read(chunk, h) }); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}}],"usage":{"prompt_tokens":1}}`,
		`{"choices":[{"message":{"content":"\ud83c"}}],"timings":{"prompt_n":1,"predicted_n":2}}`, `{"error":{"code":"x","message":1}}`, `{"detail":[1]}`, `[`, `{"usage":[],"data":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for family := Inclusive; family <= Exclusive; family++ {
			r := ReadResponse(body, family, new(recorder))
			if u, ok := ParseUsage(body, family); u.InputTotal < 0 || u.InputCached > u.InputTotal || u.Output < 0 || ok != (u.Source == Reported) {
				t.Fatalf("%+v", u)
			}
			if r.HasUsage && r.Usage.InputCached > r.Usage.InputTotal {
				t.Fatalf("%+v", r)
			}
		}
		ParseTimings(body)
		if e, ok := ReadError(body); ok {
			if status := e.ForClient().Status; status < 400 || status > 599 {
				t.Fatalf("%+v", e)
			}
		}
		h := new(prefix.Hasher)
		h.BeginAnswer("assistant")
		var d Deltas
		d.Read(body, h)
		h.EndAnswer(nil)
	})
}
