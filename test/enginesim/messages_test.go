package enginesim

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// anthropicHeader is what Anthropic wants with every request; engines ignore it.
var anthropicHeader = []string{"x-api-key", "k", "anthropic-version", "2023-06-01"}

// messageKinds are the kinds that have the Messages API.
var messageKinds = []Kind{VLLM, SGLang, Anthropic}

func kindConfig(kind Kind) Config {
	cfg := simpleConfig()
	cfg.Kind = kind
	return cfg
}

// jsonObject is a decoded object.
type jsonObject = map[string]any

// message posts to /v1/messages and returns the answer's fields.
func (s *sim) message(body string) jsonObject {
	s.t.Helper()
	status, b := s.post(messagesPath, body, anthropicHeader...)
	if status != 200 {
		s.t.Fatalf("%s: status %d: %s", body, status, b)
	}
	return fields(s.t, b)
}

func fields(t *testing.T, b string) jsonObject {
	t.Helper()
	var m jsonObject
	if err := json.Unmarshal([]byte(b), &m); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return m
}

// messageEvents posts a streamed request and returns its events' data. Each event's name
// has to be its type, and nothing but events may come.
func (s *sim) messageEvents(body string) []jsonObject {
	s.t.Helper()
	_, b := s.post(messagesPath, strings.TrimSuffix(body, "}")+`,"stream":true}`, anthropicHeader...)
	var out []jsonObject
	for e := range strings.SplitSeq(strings.TrimSuffix(b, "\n\n"), "\n\n") {
		head, data, ok := strings.Cut(e, "\ndata: ")
		name, named := strings.CutPrefix(head, "event: ")
		if !ok || !named || strings.Contains(data, "\n") {
			s.t.Fatalf("no event: %q in %s", e, b)
		}
		m := fields(s.t, data)
		if m["type"] != name {
			s.t.Errorf("event %q of type %v", name, m["type"])
		}
		out = append(out, m)
	}
	return out
}

const hiMessage = `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`

// same fails the test with the fields in which two objects differ.
func same(t *testing.T, what string, got, want jsonObject) {
	t.Helper()
	for k := range maps.Keys(want) {
		if _, ok := got[k]; !ok {
			t.Errorf("%s: no field %q", what, k)
		}
	}
	for k, g := range got {
		if w, ok := want[k]; !ok || !reflect.DeepEqual(g, w) {
			t.Errorf("%s: field %q is %v, want %v", what, k, g, w)
		}
	}
}

// Every field of a whole message, by kind.
func TestMessageFields(t *testing.T) {
	f := func(kind Kind, id string, more, usage jsonObject) {
		t.Helper()
		bubble(t, kindConfig(kind), func(t *testing.T, s *sim) {
			got := s.message(hiMessage)
			if !strings.HasPrefix(got["id"].(string), id) {
				t.Errorf("%s: id %v", kind, got["id"])
			}
			text := got["content"].([]any)[0].(jsonObject)["text"].(string)
			if kind != Anthropic {
				if chat := s.ask(chatPath, hiMessage).Choices[0].Message.Content; chat != text {
					t.Errorf("%s: %q, as chat completion %q", kind, text, chat)
				}
			}
			want := jsonObject{
				"id": got["id"], "type": "message", "role": "assistant", "model": "m", "stop_reason": "max_tokens", "stop_sequence": nil,
				"content": []any{jsonObject{"type": "text", "text": text}}, "usage": usage,
			}
			maps.Copy(want, more)
			same(t, string(kind), got, want)
		})
	}
	f(VLLM, "chatcmpl-", nil, jsonObject{"input_tokens": 9., "output_tokens": 3., "cache_read_input_tokens": 0., "cache_creation_input_tokens": 0.})
	f(SGLang, "msg_", nil, jsonObject{"input_tokens": 9., "output_tokens": 3.})
	f(Anthropic, "msg_", jsonObject{"stop_details": nil}, jsonObject{
		"input_tokens": 9., "output_tokens": 3., "cache_read_input_tokens": 0., "cache_creation_input_tokens": 0.,
		"cache_creation": jsonObject{"ephemeral_5m_input_tokens": 0., "ephemeral_1h_input_tokens": 0.},
		"service_tier":   "standard", "inference_geo": "not_available",
	})
}

// Every event of a stream and every field of it, by kind; together they are the whole
// answer.
func TestMessageEvents(t *testing.T) {
	f := func(kind Kind, startUsage, endUsage jsonObject, ping bool) {
		t.Helper()
		bubble(t, kindConfig(kind), func(t *testing.T, s *sim) {
			text := s.message(hiMessage)["content"].([]any)[0].(jsonObject)["text"].(string)
			got := s.messageEvents(hiMessage)
			start := jsonObject{
				"type": "message", "role": "assistant", "model": "m", "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": startUsage,
			}
			if id := got[0]["message"].(jsonObject)["id"]; id != nil {
				start["id"] = id
			}
			if kind == Anthropic {
				start["stop_details"] = nil
			}
			want := []jsonObject{
				{"type": "message_start", "message": start},
				{"type": "content_block_start", "index": 0., "content_block": jsonObject{"type": "text", "text": ""}},
			}
			if ping {
				want = append(want, jsonObject{"type": "ping"})
			}
			for i, word := range strings.Fields(text) {
				if i > 0 {
					word = " " + word
				}
				want = append(want, jsonObject{"type": "content_block_delta", "index": 0., "delta": jsonObject{"type": "text_delta", "text": word}})
			}
			want = append(
				want, jsonObject{"type": "content_block_stop", "index": 0.},
				jsonObject{"type": "message_delta", "delta": jsonObject{"stop_reason": "max_tokens", "stop_sequence": nil}, "usage": endUsage},
				jsonObject{"type": "message_stop"},
			)
			if len(got) != len(want) {
				t.Fatalf("%s: %d events, want %d: %v", kind, len(got), len(want), got)
			}
			for i := range want {
				same(t, fmt.Sprintf("%s: event %d", kind, i), got[i], want[i])
			}
			if rec := s.Record(); rec.Requests[1].Events != len(want) || rec.Requests[1].Outcome != OutcomeFinished {
				t.Errorf("%s: record %+v", kind, rec.Requests[1])
			}
		})
	}
	cached := jsonObject{"input_tokens": 9., "output_tokens": 3., "cache_read_input_tokens": 0., "cache_creation_input_tokens": 0.}
	start := func(output float64, more jsonObject) jsonObject {
		m := maps.Clone(cached)
		m["output_tokens"] = output
		maps.Copy(m, more)
		return m
	}
	f(VLLM, start(0, nil), cached, false)
	f(SGLang, jsonObject{"input_tokens": 9., "output_tokens": 0.}, jsonObject{"output_tokens": 3.}, false)
	f(Anthropic, start(1, jsonObject{
		"cache_creation": jsonObject{"ephemeral_5m_input_tokens": 0., "ephemeral_1h_input_tokens": 0.},
		"service_tier":   "standard", "inference_geo": "not_available",
	}), cached, true)
}

// Thoughts are half of an answer, and no more than their budget; no text begins with a
// space.
func TestThinkingBudget(t *testing.T) {
	bubble(t, kindConfig(VLLM), func(t *testing.T, s *sim) {
		f := func(thinking string, thoughts, words int) {
			t.Helper()
			m := s.message(strings.Replace(hiMessage, `"max_tokens":3`, `"max_tokens":100,"thinking":`+thinking, 1))
			content := m["content"].([]any)
			thought, text := content[0].(jsonObject)["thinking"].(string), content[1].(jsonObject)["text"].(string)
			if len(strings.Split(thought, " ")) != thoughts || len(strings.Split(text, " ")) != words || thought[0] == ' ' || text[0] == ' ' {
				t.Errorf("%s: %v", thinking, content)
			}
		}
		f(`{"type":"adaptive"}`, 50, 50)
		f(`{"type":"enabled","budget_tokens":70}`, 50, 50)
		f(`{"type":"enabled","budget_tokens":10}`, 10, 90)
	})
}

// The events of a call: Anthropic pings, and sends the first part of the input empty.
func TestToolUseEvents(t *testing.T) {
	for _, kind := range messageKinds {
		bubble(t, kindConfig(kind), func(t *testing.T, s *sim) {
			events := s.messageEvents(strings.TrimSuffix(hiMessage, "}") + `,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}}`)
			var got []string
			for _, e := range events {
				what := e["type"].(string)
				switch d := e["delta"].(type) {
				case jsonObject:
					if part, ok := d["partial_json"].(string); ok {
						what = part
					}
				default:
					if b, ok := e["content_block"].(jsonObject); ok {
						if id, _ := b["id"].(string); id == "" || b["name"] != "f" || len(b["input"].(jsonObject)) != 0 {
							t.Errorf("%s: %v", kind, e)
						}
					}
				}
				got = append(got, what)
			}
			words := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(strings.Join(got[2:len(got)-3], ""), "ping"), `"}`))[1:]
			want := []string{"message_start", "content_block_start", `{"text": ` + words[0], " " + words[1], " " + words[2] + `"}`, "content_block_stop", "message_delta", "message_stop"}
			if kind == Anthropic {
				want = slices.Insert(want, 2, "ping", "")
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", kind, got, want)
			}
		})
	}
}

// joined is what a stream says: the blocks with their deltas in place, as a whole answer
// has them, and its last delta and usage.
func joined(t *testing.T, events []jsonObject) (content []any, delta, usage jsonObject) {
	t.Helper()
	open := false
	for _, e := range events {
		block := jsonObject{}
		if i, ok := e["index"].(float64); ok {
			if e["type"] == "content_block_start" {
				if open {
					t.Fatalf("a block begins in a block: %v", events)
				}
				open, content = true, append(content, e["content_block"])
			}
			if !open || int(i) != len(content)-1 {
				t.Fatalf("%v, of %d blocks: %v", e, len(content), events)
			}
			block = content[int(i)].(jsonObject)
		}
		switch e["type"] {
		case "content_block_delta":
			d := e["delta"].(jsonObject)
			for from, to := range map[string]string{"text": "text", "thinking": "thinking", "signature": "signature", "partial_json": "json"} {
				if part, ok := d[from].(string); ok {
					old, _ := block[to].(string)
					block[to] = old + part
				}
			}
		case "content_block_stop":
			open = false
			if j, ok := block["json"].(string); ok {
				block["input"] = fields(t, j)
				delete(block, "json")
			}
		case "message_delta":
			delta, usage = e["delta"].(jsonObject), e["usage"].(jsonObject)
		}
	}
	return content, delta, usage
}

// A stream says what a whole answer says, whatever is asked for and however many tokens an
// event has; and the reason it stops for is right.
func TestMessageStreamedAndWhole(t *testing.T) {
	const tools = `"tools":[{"name":"weather","input_schema":{"type":"object"}},{"name":"ti\"me","input_schema":{}}]`
	f := func(t *testing.T, s *sim, more, reason string, blocks ...string) {
		t.Helper()
		body := `{"model":"m","messages":[{"role":"user","content":"hi there"}],` + more + `}`
		whole, events := s.message(body), s.messageEvents(body)
		content, delta, usage := joined(t, events)
		if !reflect.DeepEqual(drop(content), drop(whole["content"].([]any))) || delta["stop_reason"] != whole["stop_reason"] || delta["stop_sequence"] != whole["stop_sequence"] {
			t.Errorf("%s: streamed %v %v, whole %v", more, content, delta, whole)
		}
		if usage["output_tokens"] != whole["usage"].(jsonObject)["output_tokens"] {
			t.Errorf("%s: streamed %v, whole %v", more, usage, whole["usage"])
		}
		var kinds []string
		for _, b := range content {
			kinds = append(kinds, b.(jsonObject)["type"].(string))
		}
		if !slices.Equal(kinds, blocks) || whole["stop_reason"] != reason {
			t.Errorf("%s: blocks %q, reason %v, want %q, %s: %v", more, kinds, whole["stop_reason"], blocks, reason, whole)
		}
	}
	for _, kind := range messageKinds {
		for _, interval := range []int{1, 4, 100} {
			cfg := kindConfig(kind)
			cfg.StreamInterval = interval
			bubble(t, cfg, func(t *testing.T, s *sim) {
				f(t, s, `"max_tokens":9`, "max_tokens", "text")
				f(t, s, `"max_tokens":9,`+tools, "max_tokens", "text")
				f(t, s, `"max_tokens":9,`+tools+`,"tool_choice":{"type":"auto"}`, "max_tokens", "text")
				f(t, s, `"max_tokens":9,`+tools+`,"tool_choice":{"type":"none"}`, "max_tokens", "text")
				f(t, s, `"max_tokens":9,`+tools+`,"tool_choice":{"type":"any"}`, "tool_use", "tool_use")
				f(t, s, `"max_tokens":9,`+tools+`,"tool_choice":{"type":"tool","name":"ti\"me"}`, "tool_use", "tool_use")
				f(t, s, `"max_tokens":1,`+tools+`,"tool_choice":{"type":"any"}`, "tool_use", "tool_use")
				f(t, s, `"max_tokens":1100,"thinking":{"type":"enabled","budget_tokens":1024}`, "max_tokens", "thinking", "text")
				f(t, s, `"max_tokens":20,"thinking":{"type":"adaptive"}`, "max_tokens", "thinking", "text")
				f(t, s, `"max_tokens":20,"thinking":{"type":"disabled"}`, "max_tokens", "text")
				f(t, s, `"max_tokens":500,"stop_sequences":["qq","e"]`, "stop_sequence", "text")
				f(t, s, `"max_tokens":500,"stop_sequences":["qq"]`, "max_tokens", "text")
				f(t, s, `"max_tokens":500,"stop_sequences":["e"],"thinking":{"type":"adaptive"}`, "stop_sequence", "thinking", "text")
			})
			cfg.DrawUnderLimit, cfg.MeanOutput = true, 3
			bubble(t, cfg, func(t *testing.T, s *sim) { f(t, s, `"max_tokens":1000`, "end_turn", "text") })
		}
	}
}

// drop leaves out what differs between two answers: ids and signatures, which have to be
// there.
func drop(content []any) []any {
	var out []any
	for _, b := range content {
		b := maps.Clone(b.(jsonObject))
		for _, k := range []string{"id", "signature"} {
			if v, ok := b[k].(string); ok && v != "" {
				b[k] = "set"
			}
		}
		out = append(out, b)
	}
	return out
}

// A stop sequence ends the text before it, wherever pieces begin, and the tokens behind it
// are not generated.
func TestStopSequences(t *testing.T) {
	bubble(t, kindConfig(Anthropic), func(t *testing.T, s *sim) {
		ask := func(stop string) (text string, tokens float64, m jsonObject) {
			b, _ := json.Marshal(stop)
			m = s.message(`{"model":"m","max_tokens":200,"messages":[{"role":"user","content":"go on"}],"stop_sequences":["no such text",` + string(b) + `]}`)
			if c := m["content"].([]any); len(c) > 0 {
				text = c[0].(jsonObject)["text"].(string)
			}
			return text, m["usage"].(jsonObject)["output_tokens"].(float64), m
		}
		all, _, _ := ask("also no such text")
		words := strings.Fields(all)
		for _, stop := range []string{words[0], all[:1], words[50], words[20] + " " + words[21], all[100:130], all[len(all)-4:]} {
			want, _, _ := strings.Cut(all, stop)
			text, tokens, m := ask(stop)
			if text != want || m["stop_reason"] != "stop_sequence" || m["stop_sequence"] != stop {
				t.Errorf("%q: text %q, want %q, in %v", stop, text, want, m)
			}
			if most := len(strings.Fields(want + stop)); int(tokens) != most {
				t.Errorf("%q: %v tokens, want %d", stop, tokens, most)
			}
		}
	})
}
