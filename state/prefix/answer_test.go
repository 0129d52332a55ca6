package prefix

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const question = `[{"role":"system","content":"be brief"},{"role":"user","content":"well?"}`

// answered is the marks of a chat's question and its answer, fed by answer.
func answered(t testing.TB, answer func(h *Hasher)) []Mark {
	t.Helper()
	var h Hasher
	m, err := h.Marks(nil, Seed{Model: "m"}, chat(question+"]"))
	if err != nil {
		t.Fatal(err)
	}
	h.BeginAnswer("assistant")
	answer(&h)
	return h.EndAnswer(m)
}

func TestAnswersHashAsTheNextTurnSendsThem(t *testing.T) {
	f := func(name, message string, answer func(h *Hasher)) {
		t.Helper()
		got := answered(t, answer)
		next := marks(t, Seed{Model: "m"}, chat(question+","+message+`,{"role":"user","content":"and then?"}]`))
		if Diverge(got, next) != len(got) || len(got) < 3 || len(next) != len(got)+1 {
			t.Errorf("%s: %v\nnext turn: %v", name, got, next)
		}
	}
	say := func(pieces ...string) func(*Hasher) {
		return func(h *Hasher) {
			for _, p := range pieces {
				h.AnswerText([]byte(p))
			}
		}
	}
	f("text", `{"role":"assistant","content":"it is so"}`, say("it", "", " is", " so"))
	f("no text", `{"role":"assistant","content":null}`, say())
	f("as a part", `{"role":"assistant","content":[{"type":"text","text":"so"}]}`, say("s", "o"))
	f("with reasoning sent back", `{"role":"assistant","reasoning_content":"hm","content":"so"}`, say("so"))
	f("a character in two halves", `{"role":"assistant","content":"a🌍b"}`, say("a\xED\xA0\xBC", "\xED\xBC\x8Db"))
	f("a lone high half, then text", `{"role":"assistant","content":"a\ud83cb"}`, say("a\xED\xA0\xBC", "b"))
	f("a lone high half at the end", `{"role":"assistant","content":"a\ud83c"}`, say("a\xED\xA0\xBC"))
	f("two high halves, then a low one", `{"role":"assistant","content":"\ud83c\ud83c\udf0d"}`, say("\xED\xA0\xBC", "\xED\xA0\xBC", "\xED\xBC\x8D"))
	f("long", `{"role":"assistant","content":"`+strings.Repeat("so long ", 500)+`"}`, say(strings.Repeat("so long ", 499), "so long "))
	f("tool calls", `{"role":"assistant","content":"wait","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"2","type":"function","function":{"name":"g","arguments":""}}]}`,
		func(h *Hasher) {
			h.AnswerText([]byte("wait"))
			h.AnswerCall([]byte("f"))
			h.AnswerArguments([]byte(`{"a"`))
			h.AnswerArguments([]byte(`:1}`))
			h.AnswerCall([]byte("g"))
		})
}

func TestAnswersInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := text().Draw(t, "answer")
		var h Hasher
		got, err := h.Marks(nil, Seed{Model: "m"}, chat(question+"]"))
		if err != nil {
			t.Fatal(err)
		}
		h.BeginAnswer("assistant")
		for rest := whole; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			h.AnswerText([]byte(rest[:n]))
			rest = rest[n:]
		}
		got = h.EndAnswer(got)
		next, err := h.Marks(nil, Seed{Model: "m"}, chat(question+`,{"role":"assistant","content":`+quote(whole)+`},{"role":"user"}]`))
		if err != nil {
			t.Fatal(err)
		}
		if Diverge(got, next) != len(got) || len(next) > len(got)+2 {
			t.Fatalf("answered %v\nnext turn %v", got, next)
		}
	})
}

func TestCompletionsGoOnWhereThePromptEnded(t *testing.T) {
	var h Hasher
	prompt, answer := strings.Repeat("once upon a time ", 30), strings.Repeat("there was a king ", 300)
	got, err := h.Marks(nil, Seed{}, Input{Kind: Completion, Prompt: []byte(quote(prompt))})
	if err != nil {
		t.Fatal(err)
	}
	h.BeginAnswer("")
	h.AnswerText([]byte(answer[:100]))
	h.AnswerText([]byte(answer[100:]))
	got = h.EndAnswer(got)
	known := map[uint64]bool{}
	for _, m := range got {
		known[m.Hash] = true
	}
	next := marks(t, Seed{}, Input{Kind: Completion, Prompt: []byte(quote(prompt + answer))})
	for i, m := range next {
		if !known[m.Hash] {
			t.Fatalf("mark %d of the next turn is not known", i)
		}
	}
}

func TestBrokenAnswersHaveNoMarks(t *testing.T) {
	for name, answer := range map[string]func(h *Hasher){
		"text after a tool call":     func(h *Hasher) { h.AnswerCall([]byte("f")); h.AnswerText([]byte("x")) },
		"arguments without a call":   func(h *Hasher) { h.AnswerText([]byte("x")); h.AnswerArguments([]byte("x")) },
		"given up":                   func(h *Hasher) { h.AnswerText([]byte("x")); h.BreakAnswer() },
		"given up, then more of it":  func(h *Hasher) { h.BreakAnswer(); h.AnswerText([]byte("x")) },
		"given up after long enough": func(h *Hasher) { h.AnswerText([]byte(strings.Repeat("x", 9999))); h.BreakAnswer() },
	} {
		if got := answered(t, answer); len(got) != 2 {
			t.Errorf("%s: %v", name, got)
		}
	}
	var h Hasher
	if got := h.EndAnswer(nil); got != nil {
		t.Errorf("no answer was begun: %v", got)
	}
}

func TestUsedHashersForgetTheirAnswer(t *testing.T) {
	var h Hasher
	want := fmt.Sprint(marks(t, Seed{}, chat(question+"]")))
	for range 2 {
		got, err := h.Marks(nil, Seed{}, chat(question+"]"))
		if err != nil || fmt.Sprint(got) != want {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
		h.BeginAnswer("assistant")
		h.AnswerText([]byte("left open \xED\xA0\xBC"))
	}
}
