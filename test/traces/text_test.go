package traces

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// pieces counts tokens as a simulated engine does: a word with the space before or after it, at most 6 bytes each.
func pieces(text []byte) int {
	n := 0
	for _, w := range bytes.Fields(text) {
		n += (len(w) + 1 + 5) / 6
	}
	return n
}

func TestRunsAreDeterministicPrefixesOfLongerRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := Text{Seed: rapid.Uint64().Draw(t, "seed"), BytesPerToken: rapid.Float64Range(2, 8).Draw(t, "bytes per token")}
		id := rapid.Uint64().Draw(t, "id")
		long := rapid.IntRange(0, 700).Draw(t, "long")
		short := rapid.IntRange(0, long).Draw(t, "short")
		a, b := text.Append(nil, id, long), text.Append([]byte("x"), id, short)[1:]
		if len(a) != text.Bytes(long) || len(b) != text.Bytes(short) {
			t.Fatalf("%d and %d bytes, want %d and %d", len(a), len(b), text.Bytes(long), text.Bytes(short))
		}
		if !bytes.HasPrefix(a, b) {
			t.Fatalf("%q is no prefix of %q", b, a)
		}
		if long >= 40 && bytes.Equal(a, text.Append(nil, id+1, long)) {
			t.Fatal("two ids give one text")
		}
		if long >= 40 && bytes.Equal(a, Text{Seed: text.Seed + 1, BytesPerToken: text.BytesPerToken}.Append(nil, id, long)) {
			t.Fatal("two seeds give one text")
		}
		for _, c := range a {
			if c != ' ' && (c < 'A' || c > 'z') {
				t.Fatalf("byte %q needs thought in JSON", c)
			}
		}
	})
}

func TestBlocksHaveTheirTokens(t *testing.T) {
	f := func(bytesPerToken float64, tokens int, tolerance float64) {
		t.Helper()
		text := Text{BytesPerToken: bytesPerToken}
		for id := range uint64(200) {
			if got := pieces(text.Append(nil, id, tokens)); math.Abs(float64(got-tokens)) > tolerance*float64(tokens)+1 {
				t.Fatalf("run %d of %d tokens at %v bytes per token counts %d", id, tokens, bytesPerToken, got)
			}
		}
	}
	f(0, 512, 0.01)
	f(0, 16, 0.1)
	f(3.5, 512, 0.01)
	f(5, 512, 0.01)
}

func TestFirstTokensTellBlocksApart(t *testing.T) {
	seen := map[string]uint64{}
	for id := range uint64(20000) {
		head := string(Text{}.Append(nil, id, 16))
		if other, ok := seen[head]; ok {
			t.Fatalf("blocks %d and %d begin alike: %q", other, id, head)
		}
		seen[head] = id
	}
}

func TestRenderedPromptsAreJSON(t *testing.T) {
	talk := NewConversation()
	talk.Finish(0, "He said \"no\"\n\tand \\ left \x01 \u2028 \xff")
	r := &Request{
		Messages: []Message{
			{Role: "system", Parts: []Part{{ID: 1, Tokens: 30}, {ID: 2, Tokens: 5}}},
			{Role: "assistant", Parts: []Part{{ID: 3, Tokens: 9}}, Answer: 1},
			{Role: "assistant", Parts: []Part{{ID: 3, Tokens: 9}}, Answer: 2},
		},
		Tools:        []Part{{ID: 4, Tokens: 100}, {ID: 5, Tokens: 1}},
		Conversation: talk,
	}
	var messages []struct{ Role, Content string }
	if err := json.Unmarshal(r.AppendMessages(nil), &messages); err != nil {
		t.Fatal(err)
	}
	want := []string{
		string(Text{}.Append(Text{}.Append(nil, 1, 30), 2, 5)),
		"He said \"no\"\n\tand \\ left \x01 \u2028 \ufffd",
		string(Text{}.Append(nil, 3, 9)), // turn 2 has not answered: the stand-in
	}
	whole := ""
	for i, m := range messages {
		if m.Role != r.Messages[i].Role || m.Content != want[i] {
			t.Errorf("message %d is %q %q, want %q", i, m.Role, m.Content, want[i])
		}
		whole += want[i]
	}
	var prompt string
	if err := json.Unmarshal(r.AppendPrompt(nil), &prompt); err != nil {
		t.Fatal(err)
	}
	if prompt != whole {
		t.Errorf("prompt is %q, want %q", prompt, whole)
	}
	var tools []struct {
		Function struct{ Name, Description string }
	}
	if err := json.Unmarshal(r.AppendTools(nil), &tools); err != nil {
		t.Fatal(err)
	}
	if len(tools) != 2 || tools[0].Function.Name == tools[1].Function.Name || tools[0].Function.Description == "" {
		t.Errorf("tools are %+v", tools)
	}
	r.Conversation = nil
	if got := max(len(r.AppendMessages(nil)), len(r.AppendPrompt(nil))) + len(r.AppendTools(nil)); got > r.SizeBytes() {
		t.Errorf("%d bytes were appended, bound is %d", got, r.SizeBytes())
	}
}

func BenchmarkText(b *testing.B) {
	var buf []byte
	b.SetBytes(int64(Text{}.Bytes(MooncakeBlockTokens)))
	for i := range b.N {
		buf = Text{}.Append(buf[:0], uint64(i), MooncakeBlockTokens)
	}
}
