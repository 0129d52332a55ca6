package messages

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// TestAnAnswerIsTheSameInPieces cuts a completion into chunks, with the calls' pieces in any order, and compares the
// message a client makes of the events with the one of the whole answer.
func TestAnAnswerIsTheSameInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("a\"\\\n é😀")), 0, 12, -1)
		thinking, content := text.Draw(t, "thinking"), text.Draw(t, "content")
		var inputs []string
		for range rapid.IntRange(0, 4).Draw(t, "calls") {
			in := map[string]any{}
			for _, k := range rapid.SliceOfN(text, 0, 3).Draw(t, "keys") {
				in[k] = []any{text.Draw(t, "value"), map[string]any{}}
			}
			raw, _ := json.Marshal(in)
			inputs = append(inputs, string(raw))
		}
		reason := rapid.SampledFrom([]string{"stop", "length", "content_filter", "tool_calls"}).Draw(t, "finish")
		asked := Asked{Model: "m", Thinking: rapid.Bool().Draw(t, "shown")}

		chunks := append(pieces(t, "reasoning", thinking), pieces(t, "content", content)...)
		chunks = append(chunks, interleaved(t, inputs)...)
		chunks = append(chunks, finish(reason), total, done)
		s := NewStream(asked, api.Inclusive)
		out := feed(s, chunks...)
		if fault := checkStream(out); fault != "" {
			t.Fatalf("%s: %s", out, fault)
		}

		var list []string
		for i, in := range inputs {
			list = append(list, fmt.Sprintf(`{"id":"c%d","function":{"name":"f%d","arguments":%s}}`, i, i, quoted(in)))
		}
		body := fmt.Sprintf(`{"id":"i","choices":[{"message":{"content":%s,"reasoning":%s,"tool_calls":[%s]},"finish_reason":"%s"}],%s`,
			quoted(content), quoted(thinking), strings.Join(list, ","), reason, strings.TrimPrefix(total, `{"id":"i","choices":[],`))
		whole, err := Response(nil, []byte(body), asked, api.Inclusive)
		if err != nil {
			t.Fatal(err)
		}
		var want message
		if err := json.Unmarshal(whole, &want); err != nil {
			t.Fatal(err)
		}
		if got := assembled(t, out); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nis %+v\nwant %+v", out, got, want)
		}
	})
}

func quoted(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

// pieces cuts a text into deltas at characters.
func pieces(t *rapid.T, member, text string) (chunks []string) {
	for runes := []rune(text); len(runes) > 0; {
		n := rapid.IntRange(1, len(runes)).Draw(t, "piece")
		chunks = append(chunks, delta(`"`+member+`":`+quoted(string(runes[:n]))))
		runes = runes[n:]
	}
	return chunks
}

// interleaved cuts arguments into pieces and mixes those of calls that have begun; calls begin in order.
func interleaved(t *rapid.T, inputs []string) (chunks []string) {
	rest := make([][]rune, len(inputs))
	for begun := 0; ; {
		var left []int
		for i := range begun {
			if len(rest[i]) > 0 {
				left = append(left, i)
			}
		}
		switch {
		case begun < len(inputs) && (len(left) == 0 || rapid.Bool().Draw(t, "another")):
			chunks = append(chunks, calls(begun, fmt.Sprintf(`"id":"c%d","function":{"name":"f%d","arguments":""}`, begun, begun)))
			rest[begun] = []rune(inputs[begun])
			begun++
		case len(left) == 0:
			return chunks
		default:
			i := rapid.SampledFrom(left).Draw(t, "call")
			n := rapid.IntRange(1, len(rest[i])).Draw(t, "piece")
			chunks = append(chunks, calls(i, `"function":{"arguments":`+quoted(string(rest[i][:n]))+`}`))
			rest[i] = rest[i][n:]
		}
	}
}

// assembled is the message that a client makes of a stream.
func assembled(t *rapid.T, out string) (m message) {
	list, fault := events(out)
	if fault != "" {
		t.Fatal(fault)
	}
	m.Content = []content{}
	var input string
	for _, e := range list {
		switch e.Type {
		case "message_start":
			m.ID, m.Type, m.Role, m.Model = e.Message.ID, e.Message.Type, e.Message.Role, e.Message.Model
		case "content_block_start":
			m.Content, input = append(m.Content, content{Type: e.Block.Type, ID: e.Block.ID, Name: e.Block.Name}), ""
		case "content_block_delta":
			last := &m.Content[*e.Index]
			last.Text += e.Delta.Text
			last.Thinking += e.Delta.Thinking
			if input += e.Delta.Partial; input != "" {
				last.Input = json.RawMessage(input)
			}
		case "message_delta":
			m.Reason, m.Sequence, m.Usage = e.Delta.Reason, e.Delta.Sequence, e.Usage
		}
	}
	return m
}
