package messages

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// feed gives a stream its payloads and returns what it wrote. The last payload may be "end", a body that ends in order
// without [DONE], or "cut", one that breaks.
func feed(s *Stream, payloads ...string) string {
	var out []byte
	for _, p := range payloads {
		switch p {
		case "end":
			out = s.End(out, nil)
		case "cut":
			out = s.End(out, api.BadGateway("stream_broken"))
		default:
			out = s.Event(out, []byte(p))
		}
	}
	return string(out)
}

// delta is a chunk whose first choice has this delta.
func delta(members string) string {
	return `{"id":"i","object":"chat.completion.chunk","choices":[{"index":0,"delta":{` + members + `},"logprobs":null,"finish_reason":null}]}`
}

func finish(reason string) string {
	return `{"id":"i","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `","stop_reason":null}]}`
}

const (
	done  = "[DONE]"
	total = `{"id":"i","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}`
	start = `{"type":"message_start","message":{"id":"i","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}}`
	stop  = `{"type":"message_stop"}`
)

// stopped is the event before the last one.
func stopped(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":3}}`
}

func begun(i int, block string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{%s}}`, i, block)
}

func piece(i int, kind, member, text string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"%s","%s":"%s"}}`, i, kind, member, text)
}

func said(i int, text string) string  { return piece(i, "text_delta", "text", text) }
func input(i int, text string) string { return piece(i, "input_json_delta", "partial_json", text) }
func ended(i int) string              { return fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i) }

func calls(i int, rest string) string {
	return delta(fmt.Sprintf(`"tool_calls":[{"index":%d,%s}]`, i, rest))
}

const (
	isText  = `"type":"text","text":""`
	isCall0 = `"type":"tool_use","id":"c0","name":"f","input":{}`
	isCall1 = `"type":"tool_use","id":"c1","name":"g","input":{}`
	call0   = `"id":"c0","type":"function","function":{"name":"f","arguments":""}`
	call1   = `"id":"c1","type":"function","function":{"name":"g","arguments":""}`
)

func arguments(text string) string { return `"function":{"arguments":"` + text + `"}` }

func TestStream(t *testing.T) {
	asked := Asked{Model: "m"}
	f := func(in []string, want ...string) {
		t.Helper()
		out := feed(NewStream(asked, api.Inclusive), in...)
		if fault := checkStream(out); fault != "" {
			t.Errorf("%s: %s", out, fault)
		}
		var got []string
		for event := range strings.SplitSeq(strings.TrimSuffix(out, "\n\n"), "\n\n") {
			_, data, _ := strings.Cut(event, "\ndata: ")
			got = append(got, data)
		}
		for i := range max(len(got), len(want)) {
			g, w := "nothing", "nothing"
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			if g != w {
				t.Errorf("%s\nevent %d\n got %s\nwant %s", strings.Join(in, "\n"), i, g, w)
				return
			}
		}
	}
	f([]string{delta(`"role":"assistant","content":""`), delta(`"content":"h\u00e9"`), delta(`"content":" \ud83c"`), finish("stop"), total, done},
		start, begun(0, isText), said(0, `h\u00e9`), said(0, ` \ud83c`), ended(0), stopped("end_turn"), stop)
	f([]string{delta(`"content":null`), finish("length"), total, delta(""), done, delta(`"content":"late"`)}, start, stopped("max_tokens"), stop)

	// Usage that comes early, in every chunk, or never.
	f([]string{`{"id":"i","choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`, finish("stop"), total, total, done},
		strings.Replace(start, `"input_tokens":0`, `"input_tokens":9`, 1)[:len(start)-len(`"output_tokens":0}}}`)]+`"output_tokens":1}}}`,
		begun(0, isText), said(0, "a"), ended(0), stopped("end_turn"), stop)
	f([]string{delta(`"content":"a"`), finish("stop"), done}, start, begun(0, isText), said(0, "a"), ended(0),
		`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":0,"output_tokens":0}}`, stop)

	// Calls one after the other: each begins at once, and ends when the next one begins.
	f([]string{delta(`"content":"so"`), calls(0, call0), calls(0, arguments(`{\"a\":`)), calls(0, arguments(`\"}\"}`)), calls(1, call1), calls(1, arguments(`{\"b\":1}`)), finish("tool_calls"), total, done},
		start, begun(0, isText), said(0, "so"), ended(0), begun(1, isCall0), input(1, `{\"a\":`), input(1, `\"}\"}`), ended(1), begun(2, isCall1), input(2, `{\"b\":1}`), ended(2), stopped("tool_use"), stop)

	// Calls in turns, in one chunk, too: what is of the second waits until the first is whole.
	f([]string{
		calls(0, call0), delta(`"tool_calls":[{"index":0,` + arguments(`{\"a\"`) + `},{"index":1,` + call1 + `}]`), calls(1, arguments(`{`)), calls(0, arguments(`:1`)), calls(1, arguments(`}`)),
		delta(`"tool_calls":[{"index":1,` + arguments(` `) + `},{"index":0,` + arguments(`}`) + `}]`), calls(1, arguments(` `)), finish("stop"), total, done,
	}, start, begun(0, isCall0), input(0, `{\"a\"`), input(0, `:1`), input(0, `}`), ended(0), begun(1, isCall1), input(1, `{} `), input(1, ` `), ended(1), stopped("tool_use"), stop)

	// Text behind a call that is not whole waits, too.
	f([]string{calls(0, call0), calls(0, arguments(`{`)), delta(`"content":"x"`), calls(0, arguments(`}`)), delta(`"content":"y"`), finish("tool_calls"), total, done},
		start, begun(0, isCall0), input(0, `{`), input(0, `}`), ended(0), begun(1, isText), said(1, `x`), said(1, `y`), ended(1), stopped("tool_use"), stop)

	// Arguments that are nothing, a placeholder, or cut off.
	f([]string{calls(0, call0), calls(1, call1), finish("tool_calls"), total, done},
		start, begun(0, isCall0), input(0, `{}`), ended(0), begun(1, isCall1), input(1, `{}`), ended(1), stopped("tool_use"), stop)
	f([]string{calls(0, strings.Replace(call0, `""`, `"{}"`, 1)), calls(0, arguments(`{\"a\":1}`)), finish("tool_calls"), total, done},
		start, begun(0, isCall0), input(0, `{\"a\":1}`), ended(0), stopped("tool_use"), stop)
	f([]string{calls(0, call0), calls(0, arguments(`{\"a`)), finish("length"), total, done}, start, begun(0, isCall0), input(0, `{\"a`), ended(0), stopped("max_tokens"), stop)

	// A placeholder is no end, nor is what is no object: the next call waits.
	f([]string{calls(0, strings.Replace(call0, `""`, `"{}"`, 1)), calls(0, arguments(` `)), calls(0, arguments(`{\"a\":`)), calls(1, call1), calls(0, arguments(`1}`)), finish("tool_calls"), total, done},
		start, begun(0, isCall0), input(0, `{\"a\":`), input(0, `1}`), ended(0), begun(1, isCall1), input(1, `{}`), ended(1), stopped("tool_use"), stop)
	f([]string{calls(0, call0), calls(0, arguments(`[1]`)), calls(1, call1), calls(0, arguments(`,2`)), finish("tool_calls"), total, done},
		start, begun(0, isCall0), input(0, `[1]`), input(0, `,2`), ended(0), begun(1, isCall1), input(1, `{}`), ended(1), stopped("tool_use"), stop)

	// Names that come late, ids that never come, numbers that are all the same or none.
	f([]string{calls(0, `"id":"c0"`), calls(0, arguments(`{`)), calls(0, `"function":{"name":"f","arguments":"}"}`), finish("tool_calls"), total, done},
		start, begun(0, isCall0), input(0, `{}`), ended(0), stopped("tool_use"), stop)
	f([]string{calls(3, `"function":{"name":"f","arguments":"{ }"}`), finish("tool_calls"), total, done},
		start, begun(0, `"type":"tool_use","id":"toolu_i_0","name":"f","input":{}`), input(0, `{ }`), ended(0), stopped("tool_use"), stop)
	f([]string{calls(0, call0), calls(0, arguments(`{ }`)), calls(0, call1), calls(0, arguments(`{  }`)), finish("tool_calls"), total, done},
		start, begun(0, isCall0), input(0, `{ }`), ended(0), begun(1, isCall1), input(1, `{  }`), ended(1), stopped("tool_use"), stop)
	f([]string{delta(`"tool_calls":[{"id":"c0","function":{"name":"f","arguments":"{ }"}},{"id":"c1","function":{"name":"g","arguments":"{  }"}}]`), finish("tool_calls"), total, done},
		start, begun(0, isCall0), input(0, `{ }`), ended(0), begun(1, isCall1), input(1, `{  }`), ended(1), stopped("tool_use"), stop)

	f([]string{delta(`"tool_calls":[{"function":{"name":"f","arguments":"{ }"}}]`), delta(`"tool_calls":[{"function":{"name":"g","arguments":"{  }"}}]`), finish("tool_calls"), total, done},
		start, begun(0, `"type":"tool_use","id":"toolu_i_0","name":"f","input":{}`), input(0, `{ }`), ended(0),
		begun(1, `"type":"tool_use","id":"toolu_i_1","name":"g","input":{}`), input(1, `{  }`), ended(1), stopped("tool_use"), stop)

	// Endings.
	f([]string{`{"id":"i","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`, total, "end"}, start, begun(0, isText), said(0, "a"), ended(0), stopped("end_turn"), stop)
	f([]string{delta(`"refusal":"no"`), finish("stop"), total, done}, start, begun(0, isText), said(0, "no"), ended(0), stopped("refusal"), stop)
	asked.Stops = []string{"END"}
	f([]string{delta(`"content":"a"`), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":"END"}]}`, total, done}, start, begun(0, isText), said(0, "a"), ended(0),
		strings.Replace(stopped("stop_sequence"), `"stop_sequence":null`, `"stop_sequence":"END"`, 1), stop)

	// Thinking, shown and not, and other choices.
	f([]string{delta(`"reasoning_content":"hm"`), delta(`"content":"a"`), `{"choices":[{"index":1,"delta":{"content":"b"}}]}`, finish("stop"), total, done},
		start, begun(0, isText), said(0, "a"), ended(0), stopped("end_turn"), stop)
	asked.Thinking = true
	f([]string{delta(`"reasoning":"h","reasoning_content":"h"`), delta(`"reasoning":"m"`), delta(`"content":"a"`), delta(`"reasoning":"oh"`), finish("stop"), total, done},
		start, begun(0, `"type":"thinking","thinking":"","signature":""`), piece(0, "thinking_delta", "thinking", "h"), piece(0, "thinking_delta", "thinking", "m"), piece(0, "signature_delta", "signature", "unsigned"), ended(0),
		begun(1, isText), said(1, "a"), ended(1),
		begun(2, `"type":"thinking","thinking":"","signature":""`), piece(2, "thinking_delta", "thinking", "oh"), piece(2, "signature_delta", "signature", "unsigned"), ended(2), stopped("end_turn"), stop)
}

func TestBrokenStreamsEndWithAnError(t *testing.T) {
	f := func(kind string, status int, in ...string) {
		t.Helper()
		s := NewStream(Asked{Model: "m", ID: "r1"}, api.Inclusive)
		out := feed(s, in...)
		if fault := checkStream(out); fault != "" {
			t.Errorf("%s: %s", out, fault)
		}
		last := out[strings.LastIndex(strings.TrimSuffix(out, "\n\n"), "\n\n")+1:]
		if strings.Contains(out, "message_stop") || !strings.Contains(last, "event: error\n") || !strings.Contains(last, `"type":"`+kind+`"`) {
			t.Errorf("%v: ended with %s", in, out)
		}
		if !s.Ended() || s.Failed() == nil || s.Failed().Status != status {
			t.Errorf("%v: ended %v, %+v", in, s.Ended(), s.Failed())
		}
		if more := feed(s, delta(`"content":"a"`), done, "end", "cut"); more != "" {
			t.Errorf("%v: went on with %s", in, more)
		}
	}
	text := delta(`"content":"a"`)
	f("api_error", 502, text, "cut")
	f("api_error", 502, text, "end")
	f("api_error", 502, text, finish("stop"), "cut")
	f("api_error", 502, "end")
	f("api_error", 502, done)
	f("api_error", 502, text, finish("abort"), done)
	f("api_error", 502, text, `{"id":`, done)
	f("api_error", 502, text, `"x"`)
	f("api_error", 502, text, `{"choices":[1]}`)
	f("api_error", 502, text, delta(`"content":["a"]`))
	f("api_error", 502, text, delta(`"tool_calls":["a"]`), delta(`"content":"b"`))
	f("api_error", 502, text, `{"error":{"message":"CUDA at 10.0.0.7","code":500}}`, done)
	f("invalid_request_error", 400, text, `{"error":{"message":"too long","type":"BadRequestError","code":400}}`, done)
	f("overloaded_error", 503, `{"object":"error","message":"full","code":503}`, done)
	f("api_error", 502, calls(0, `"id":"c0"`), finish("tool_calls"), done)
	// Arguments behind the end of those of a call that has ended.
	f("api_error", 502, calls(0, strings.Replace(call0, `""`, `"{ }"`, 1)), calls(1, call1), calls(0, arguments(`{}`)), done)
	f("api_error", 502, calls(0, `"id":"`+strings.Repeat("x", maxName)+`"`))
}

func TestWhatWaitsIsBounded(t *testing.T) {
	s := NewStream(Asked{}, api.Inclusive)
	feed(s, calls(0, call0), calls(1, call1))
	chunk := calls(1, arguments(strings.Repeat("x", 1<<20)))
	n := 0
	for ; !s.Ended() && n < 10; n++ {
		feed(s, chunk)
	}
	if n != maxWaiting>>20+1 || s.Failed() == nil {
		t.Errorf("after %d MiB: %v", n, s.Failed())
	}
	s = NewStream(Asked{}, api.Inclusive)
	n = 0
	for ; !s.Ended() && n < 2*maxCalls; n++ {
		feed(s, calls(n, `"function":{"name":"f","arguments":"{ }"}`))
	}
	if n != maxCalls+1 {
		t.Errorf("after %d calls: %v", n, s.Failed())
	}
	// What has been written waits no more.
	s = NewStream(Asked{}, api.Inclusive)
	for i := range 10 {
		feed(s, calls(2*i, `"function":{"name":"f","arguments":"{"}`), calls(2*i+1, `"function":{"name":"f","arguments":"{\"`+strings.Repeat("x", 1<<20)+`\":1}"}`), calls(2*i, arguments("}")))
	}
	if out := feed(s, finish("tool_calls"), done); s.Failed() != nil {
		t.Errorf("%.100s: %v", out, s.Failed())
	}
}

func TestStreamsDoNotAllocate(t *testing.T) {
	s := NewStream(Asked{Model: "m", Thinking: true}, api.Inclusive)
	feed(s, delta(`"content":"a"`))
	chunk, dst := []byte(delta(`"content":"some \"text\""`)), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { s.Event(dst, chunk) }); n > 0 {
		t.Errorf("%v allocations for a chunk of text", n)
	}
	feed(s, calls(0, call0), calls(0, arguments(`{`)))
	chunk = []byte(calls(0, arguments(`\"a\":1,`)))
	if n := testing.AllocsPerRun(100, func() { s.Event(dst, chunk) }); n > 0 {
		t.Errorf("%v allocations for a chunk of arguments", n)
	}
}

// event is any event of a stream.
type event struct {
	Type    string
	Index   *int
	Message *struct {
		ID, Type, Role, Model string
		Content               []json.RawMessage
		Usage                 map[string]int
	}
	Block *struct {
		Type, Text, ID, Name string
		Input                map[string]any
	} `json:"content_block"`
	Delta *struct {
		Type, Text, Thinking, Signature string
		Partial                         string  `json:"partial_json"`
		Reason                          string  `json:"stop_reason"`
		Sequence                        *string `json:"stop_sequence"`
	}
	Usage map[string]int
	Error *struct{ Type, Message string }
}

// events reads a stream; it says what is wrong with the first event that is none.
func events(out string) (list []event, fault string) {
	for i := 0; out != ""; i++ {
		one, rest, ok := strings.Cut(out, "\n\n")
		name, data, two := strings.Cut(strings.TrimPrefix(one, "event: "), "\ndata: ")
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil || !ok || !two || e.Type != name || strings.ContainsAny(data, "\r\n") {
			return list, fmt.Sprintf("event %d is none: %q", i, one)
		}
		list, out = append(list, e), rest
	}
	return list, ""
}

// checkStream says what is wrong with the order of a stream's events, "" if nothing is. Every stream must have ended.
func checkStream(out string) string {
	list, fault := events(out)
	if fault != "" {
		return fault
	}
	kinds := map[string]string{"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
	open, blocks, state := "", 0, "new"
	for i, e := range list {
		ok := true
		switch e.Type {
		case "message_start":
			ok = state == "new" && e.Message.Type == "message" && e.Message.Role == "assistant" && len(e.Message.Content) == 0 && e.Message.Usage != nil
			state = "begun"
		case "content_block_start":
			ok = state == "begun" && open == "" && *e.Index == blocks && kinds[e.Block.Type] != ""
			ok = ok && (e.Block.Type != "tool_use" || e.Block.ID != "" && e.Block.Name != "" && e.Block.Input != nil)
			open = e.Block.Type
		case "content_block_delta":
			ok = open != "" && *e.Index == blocks && (e.Delta.Type == kinds[open] || open == "thinking" && e.Delta.Type == "signature_delta")
		case "content_block_stop":
			ok = open != "" && *e.Index == blocks
			open, blocks = "", blocks+1
		case "message_delta":
			ok = state == "begun" && open == "" && e.Delta.Reason != "" && e.Usage != nil && e.Usage["input_tokens"] >= 0
			state = "said"
		case "message_stop":
			ok = state == "said"
			state = "ended"
		case "error":
			ok = state != "ended" && e.Error.Type != "" && e.Error.Message != ""
			state = "ended"
		default:
			ok = false
		}
		if !ok || state == "ended" && i < len(list)-1 {
			return fmt.Sprintf("event %d of %s can't stand there", i, e.Type)
		}
	}
	if state != "ended" {
		return "it has no end"
	}
	return ""
}
