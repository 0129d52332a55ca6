package enginesim

import (
	"encoding/json"
	"strings"
	"testing"
)

// toolCall is a call as answers have it, whole or in parts.
type toolCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// A tool that has to be called is, in a stream in parts that make the same call.
func TestToolThatHasToBeCalled(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"weather"}},{"type":"function","function":{"name":"ti\"me"}}]`
	f := func(t *testing.T, s *sim, more, name string) {
		t.Helper()
		body := `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":6,` + more
		_, out := s.post(chatPath, body+"}")
		var whole struct {
			Choices []struct {
				Message struct {
					Content *string    `json:"content"`
					Calls   []toolCall `json:"tool_calls"`
				} `json:"message"`
				Finish string `json:"finish_reason"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(out), &whole); err != nil || len(whole.Choices) != 1 {
			t.Fatalf("%v in %s", err, out)
		}
		c := whole.Choices[0]
		if name == "" {
			if len(c.Message.Calls) != 0 || c.Message.Content == nil || c.Finish != "length" {
				t.Errorf("%s: %s", more, out)
			}
			return
		}
		var args struct{ Text string }
		if len(c.Message.Calls) != 1 || c.Message.Content != nil || c.Finish != "tool_calls" || c.Message.Calls[0].Function.Name != name ||
			json.Unmarshal([]byte(c.Message.Calls[0].Function.Arguments), &args) != nil || len(strings.Fields(args.Text)) != 6 {
			t.Fatalf("%s: %s", more, out)
		}
		_, out = s.post(chatPath, body+`,"stream":true}`)
		var got toolCall
		finish, parts := "", 0
		for line := range strings.SplitSeq(out, "\n\n") {
			data, ok := strings.CutPrefix(line, "data: {")
			if !ok {
				continue
			}
			var chunk struct {
				Choices []struct {
					Delta struct {
						Calls []toolCall `json:"tool_calls"`
					} `json:"delta"`
					Finish string `json:"finish_reason"`
				} `json:"choices"`
			}
			if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			for _, x := range chunk.Choices {
				finish += x.Finish
				for _, d := range x.Delta.Calls {
					parts++
					got.ID, got.Function.Name = got.ID+d.ID, got.Function.Name+d.Function.Name
					got.Function.Arguments += d.Function.Arguments
				}
			}
		}
		if parts != 6 || finish != "tool_calls" || got.ID == "" || got.Function != c.Message.Calls[0].Function {
			t.Errorf("%s: %d parts of %+v, the whole one %+v: %s", more, parts, got, c.Message.Calls[0], out)
		}
	}
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		f(t, s, tools+`,"tool_choice":"required"`, "weather")
		f(t, s, tools+`,"tool_choice":{"type":"function","function":{"name":"ti\"me"}}`, `ti"me`)
		f(t, s, tools+`,"tool_choice":"auto"`, "")
		f(t, s, tools+`,"tool_choice":"none"`, "")
		f(t, s, tools, "")
	})
}
