package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},{"type":"text","text":"\ud83c"}]},
		  {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"c","name":"f","input":{"a":"\\\"" }}]},
		  {"role":"user","content":[{"type":"tool_result","tool_use_id":"c","is_error":true,"content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"url","url":"u"}}]}]}],"stream":true}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":"x"}],"tools":[{"name":"f","input_schema":{},"strict":true}],"tool_choice":{"type":"tool","name":"f"},"x":[1],"stop_sequences":["a"],"metadata":{"user_id":"u"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}}}`,
	} {
		f.Add([]byte(s), uint8(1))
	}
	engines := []state.EngineKind{state.EngineAuto, state.EngineVLLM, state.EngineSGLang, state.EngineLlamaCpp, state.EngineOpenAI}
	f.Fuzz(func(t *testing.T, body []byte, engine uint8) {
		out, asked, err := Request([]byte("x"), body, Options{Engine: engines[int(engine)%len(engines)]})
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Status != 400 || e.Message == "" || string(out) != "x" {
				t.Fatalf("%q: %v", out, err)
			}
			return
		}
		out = out[1:]
		chat, err := api.Parse(api.Chat, out)
		if err != nil && deep(body) { // what is nested as deep as may be lies a level deeper
			return
		}
		if err != nil || chat.Model != asked.Model || chat.Stream != asked.Stream || chat.MaxTokens < 1 || !json.Valid(out) {
			t.Fatalf("%s\nbecame %s\n%+v, %+v, %v", body, out, chat, asked, err)
		}
	})
}

// deep says whether a document may be nested nearly as deep as is allowed.
func deep(body []byte) bool {
	return bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) > 500
}

func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		`{"id":"i","choices":[{"message":{"content":"a","reasoning":"r","refusal":"n"},"finish_reason":"stop","stop_reason":"E"}],` + used + `}`,
		`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}},{"function":{"name":"f","arguments":"\ud83c{"}}]},"finish_reason":"tool_calls"}],"timings":{"prompt_n":1,"cache_n":2,"predicted_n":3}}`,
		`{"error":{"message":"m","code":400}}`,
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, thinking bool) {
		out, err := Response([]byte("x"), body, Asked{Model: "m", ID: "r", Thinking: thinking, Stops: []string{"E"}}, api.LlamaCpp)
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Status < 400 || e.Message == "" || string(out) != "x" {
				t.Fatalf("%q: %v", out, err)
			}
			return
		}
		var m message
		if err := json.Unmarshal(out[1:], &m); err != nil || m.ID == "" || m.Model != "m" || m.Type != "message" || m.Reason == "" || m.Content == nil {
			t.Fatalf("%s\nbecame %s: %v", body, out[1:], err)
		}
		if !deep(body) && !scanned(out[1:]) {
			t.Fatalf("%s\nbecame %s", body, out[1:])
		}
		for _, b := range m.Content {
			switch b.Type {
			case "text", "thinking":
				if b.Text == "" && b.Thinking == "" || b.Type == "thinking" && !thinking {
					t.Fatalf("%s\nholds %+v", out[1:], b)
				}
			case "tool_use":
				if b.Name == "" || b.ID == "" || !bytes.HasPrefix(bytes.TrimSpace(b.Input), []byte("{")) {
					t.Fatalf("%s\nholds %+v", out[1:], b)
				}
			default:
				t.Fatalf("%s\nholds %+v", out[1:], b)
			}
		}
	})
}

// scanned says whether a document holds by the rules of this repository.
func scanned(doc []byte) bool {
	r := api.ReadResponse(doc, api.Exclusive, nil)
	return r.Object && r.HasUsage
}

func FuzzStream(f *testing.F) {
	add := func(chunks ...string) {
		var b bytes.Buffer
		for _, c := range chunks {
			b.WriteString(c + "\n")
		}
		f.Add(b.Bytes(), true)
	}
	add(delta(`"content":"a"`), delta(`"reasoning":"r"`), finish("stop"), total, done)
	add(calls(0, call0), calls(1, call1), calls(1, arguments(`{`)), calls(0, arguments(`{}`)), calls(1, arguments(`}`)), done)
	add(calls(0, call0), delta(`"content":"a"`), calls(0, arguments(`{\"a\":\"\\\\\"}`)), `{"error":{"message":"m"}}`, done)
	f.Fuzz(func(t *testing.T, chunks []byte, thinking bool) {
		s := NewStream(Asked{Model: "m", ID: "r", Thinking: thinking}, api.Inclusive)
		var out []byte
		whole := false
		for chunk := range bytes.SplitSeq(chunks, []byte("\n")) {
			whole = whole || !s.Ended() && string(bytes.TrimSpace(chunk)) == done
			out = s.Event(out, chunk)
		}
		out = s.End(out, api.BadGateway("stream_broken"))
		if fault := checkStream(string(out)); fault != "" {
			t.Fatalf("%q: %s", out, fault)
		}
		if stopped := bytes.Contains(out, []byte("\nevent: message_stop\n")); stopped != (s.Failed() == nil) || stopped && !whole {
			t.Fatalf("%q: whole %v, %v", out, whole, s.Failed())
		}
	})
}

// message is a message as clients read it.
type message struct {
	ID, Type, Role, Model string
	Content               []content
	Reason                string  `json:"stop_reason"`
	Sequence              *string `json:"stop_sequence"`
	Usage                 map[string]int
}

type content struct {
	Type, Text, Thinking, ID, Name string
	Input                          json.RawMessage
}
