package prefix

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func responses(input string) Input { return Input{Kind: Responses, Prompt: []byte(input)} }

func messages(list string) Input { return Input{Kind: Messages, Messages: []byte(list)} }

// alike checks that two prompts have the same marks, depths included.
func alike(t *testing.T, name string, a, b Input) {
	t.Helper()
	if x, y := fmt.Sprint(marks(t, Seed{}, a)), fmt.Sprint(marks(t, Seed{}, b)); x != y {
		t.Errorf("%s: %s and %s", name, x, y)
	}
}

// apart collects prompts no two of which may end alike.
func apart(t *testing.T) func(name string, in Input) {
	seen := map[uint64]string{}
	return func(name string, in Input) {
		t.Helper()
		h := end(t, Seed{}, in)
		if before, ok := seen[h]; ok {
			t.Errorf("%s hashes like %s", name, before)
		}
		seen[h] = name
	}
}

func TestResponsesThatEnginesSeeAlikeShareMarks(t *testing.T) {
	f := func(name, a, b string) {
		t.Helper()
		alike(t, name, responses(a), responses(b))
	}
	f("a string and a message of the user", `"x"`, `[{"role":"user","content":"x"}]`)
	f("the short form of a message", `[{"type":"message","role":"user","content":"x"}]`, `[{"role":"user","content":[{"type":"input_text","text":"x"}]}]`)
	f("an answer as it was given", `[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[],"logprobs":[]}]}]`,
		`[{"role":"assistant","content":"x"}]`)
	f("escapes, order and white space", `[ {"content":[ {"text":"\u00e9","type":"input_text"} ], "role":"user"} ]`, `[{"role":"user","content":"é"}]`)
	f("ids of calls", `[{"type":"function_call","id":"fc_1","call_id":"1","name":"f","arguments":"{}","status":"completed"}]`, `[{"type":"function_call","call_id":"2","name":"f","arguments":"{}"}]`)
	f("ids of results", `[{"type":"function_call_output","call_id":"1","output":"x"}]`, `[{"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"x"}]}]`)
	f("reasoning", `[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"xyz"},{"role":"user","content":"x"}]`, `"x"`)
	f("ids of searches", `[{"type":"web_search_call","id":"1","status":"completed","action":{"query":"x"}}]`, `[{"type":"web_search_call","action":{"query":"x"}}]`)

	in := responses(`"x"`)
	in.Previous, in.Conversation, in.Instructions, in.Reference, in.Tools = []byte(`null`), []byte(`null`), []byte(`null`), []byte(`null`), []byte(`null`)
	alike(t, "null settings", in, responses(`"x"`))
	in = responses(`"x"`)
	in.Instructions = []byte(`"be brief"`)
	alike(t, "instructions and a system message", in, responses(`[{"role":"system","content":"be brief"},{"role":"user","content":"x"}]`))
}

func TestResponsesThatDifferHaveOtherMarks(t *testing.T) {
	f := apart(t)
	for _, s := range []string{
		`"x"`, `"y"`, `"xx"`, `[{"role":"user","content":"x"},{"role":"user","content":"x"}]`, `[{"role":"assistant","content":"x"}]`,
		`[{"type":"function_call","name":"x","arguments":""}]`, `[{"type":"function_call","name":"","arguments":"x"}]`,
		`[{"type":"custom_tool_call","name":"x","input":""}]`, `[{"type":"function_call_output","output":"x"}]`, `[{"type":"function_call_output","output":""}]`,
		`[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}]`,
		`[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AQ=="}]}]`,
		`[{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}]`,
		`[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]`,
		`[{"role":"user","content":[{"type":"input_file","file_data":"AA=="}]}]`,
		`[{"type":"function_call_output","output":[{"type":"input_image","file_id":"file-1"}]}]`,
		`[{"type":"item_reference","id":"msg_1"}]`, `[{"type":"item_reference","id":"msg_2"}]`,
		`[{"type":"web_search_call","action":{"query":"x"}}]`, `[{"type":"web_search_call","action":{"query":"y"}}]`,
		`[{"type":"image_generation_call","result":"` + strings.Repeat("A", inlineBytes) + `"}]`,
		`[{"type":"image_generation_call","result":"` + strings.Repeat("A", inlineBytes) + `B"}]`,
		`[1]`, `{"x":1}`, `[{}]`, `[{"role":"user","content":[{"type":"refusal","refusal":"x"}]}]`,
	} {
		f(s, responses(s))
	}
	with := func(name string, change func(*Input)) { in := responses(`"x"`); change(&in); f(name, in) }
	with("instructions", func(in *Input) { in.Instructions = []byte(`"x"`) })
	with("other instructions", func(in *Input) { in.Instructions = []byte(`"y"`) })
	with("tools", func(in *Input) { in.Tools = []byte(`[{"type":"function","name":"x"}]`) })
	with("other tools", func(in *Input) { in.Tools = []byte(`[{"type":"function","name":"y"}]`) })
	with("effort", func(in *Input) { in.ReasoningEffort = []byte(`"low"`) })
	with("a template kept elsewhere", func(in *Input) { in.Reference = []byte(`{"id":"x"}`) })
	with("after a response", func(in *Input) { in.Previous = []byte(`"x"`) })
	with("after another response", func(in *Input) { in.Previous = []byte(`"y"`) })
	with("in a conversation", func(in *Input) { in.Conversation = []byte(`"x"`) })
	with("in a conversation by object", func(in *Input) { in.Conversation = []byte(`{"id":"x"}`) })
	chat := chat(`[{"role":"user","content":"x"}]`)
	f("the same as a chat", chat)
}

func TestMessagesThatEnginesSeeAlikeShareMarks(t *testing.T) {
	f := func(name, a, b string) {
		t.Helper()
		alike(t, name, messages(a), messages(b))
	}
	const control = `,"cache_control":{"type":"ephemeral","ttl":"1h"}`
	f("one text block", `[{"role":"user","content":[{"type":"text","text":"x"}]}]`, `[{"content":"x","role":"user"}]`)
	f("escapes", `[{"role":"user","content":"\u00e9"}]`, `[{"role":"user","content":"é"}]`)
	f("citations of a text", `[{"role":"user","content":[{"type":"text","text":"x","citations":[{}]}]}]`, `[{"role":"user","content":"x"}]`)
	f("thinking of earlier turns", `[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"text","text":"x"}]}]`, `[{"role":"assistant","content":"x"}]`)
	f("ids of tool use", `[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"a": 1}}]}]`, `[{"role":"assistant","content":[{"type":"tool_use","id":"2","input":{"a":1},"name":"f"}]}]`)
	f("no input and an empty one", `[{"role":"assistant","content":[{"type":"tool_use","name":"f"}]}]`, `[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}]`)
	f("a tool's text", `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x","is_error":false}]}]`, `[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"x"`+control+`}]}]}]`)
	for _, block := range []string{
		`{"type":"text","text":"x"%s}`, `{"type":"image"%s,"source":{"type":"base64","media_type":"image/png","data":"AA=="}}`,
		`{"type":"document","source":{"type":"text","data":"x"}%s}`, `{"type":"document","source":{"type":"base64","data":"AA=="}%s}`,
		`{"type":"tool_use","name":"f","input":{"a":1}%s}`, `{"type":"tool_result","content":[{"type":"image","source":{}%[1]s}]%[1]s}`,
		`{"type":"search_result","title":"x"%s}`,
	} {
		plain := strings.ReplaceAll(strings.ReplaceAll(block, "%s", ""), "%[1]s", "")
		f("cache_control", `[{"role":"user","content":[`+strings.ReplaceAll(strings.ReplaceAll(block, "%s", control), "%[1]s", control)+`]}]`, `[{"role":"user","content":[`+plain+`]}]`)
	}

	with := func(system, tools string) Input {
		in := messages(`[{"role":"user","content":"x"}]`)
		in.System, in.Tools = []byte(system), []byte(tools)
		return in
	}
	alike(t, "system as a block", with(`"x"`, ``), with(`[{"type":"text","text":"x"`+control+`}]`, ``))
	alike(t, "which request it is", with(`[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},{"type":"text","text":"x"}]`, ``), with(`[{"type":"text","text":"x-anthropic-billing-header: cch=2;"},{"text":"x","type":"text"}]`, ``))
	alike(t, "null", with(`null`, `null`), with(``, ``))
	alike(t, "tools without cache_control", with(``, `[{"name":"f"},{"name":"g", "cache_control":{"type":"ephemeral"},"input_schema":{"a":1}}]`), with(``, ` [{"name":"f" },{"name":"g","input_schema":{"a":1}}]`))
	alike(t, "no tools", with(``, `[]`), with(``, ``))
}

func TestMessagesThatDifferHaveOtherMarks(t *testing.T) {
	f := apart(t)
	for _, s := range []string{
		`{"type":"text","text":"x"}`, `{"type":"text","text":"y"}`, `{"type":"text","text":"x"},{"type":"text","text":"x"}`, `{"type":"text"}`, `"xx"`, `1`,
		`{"type":"image","source":{"type":"base64","data":"AA=="}}`, `{"type":"image","source":{"type":"base64","data":"AQ=="}}`, `{"type":"image","source":{"type":"url","url":"AA=="}}`,
		`{"type":"document","source":{"type":"base64","data":"AA=="}}`, `{"type":"document","source":{"type":"text","data":"x"}}`, `{"type":"document","source":{"type":"text","data":"x"},"title":"x"}`,
		`{"type":"document","source":{"type":"text","data":"x"},"context":"x"}`, `{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}}`,
		`{"type":"tool_use","name":"f","input":{}}`, `{"type":"tool_use","name":"f","input":{"a":"\"}"}}`, `{"type":"tool_use","name":"f","input":{"a":""}}`, `{"type":"tool_use","name":"g","input":{}}`,
		`{"type":"tool_use","name":"f","input":["a","b"]}`, `{"type":"tool_use","name":"f","input":["a\u0022,\u0022b"]}`,
		`{"type":"tool_result","content":"x"}`, `{"type":"tool_result","content":"x","is_error":true}`, `{"type":"tool_result","content":[{"type":"image","source":{}}]}`,
		`{"type":"tool_result","content":[{"type":"tool_result","content":"x"}]}`,
		`{"type":"server_tool_use","name":"f"}`, `{"type":"server_tool_use","name":"g"}`, `{"type":"server_tool_use","name":"` + strings.Repeat("x", inlineBytes) + `"}`,
	} {
		f(s, messages(`[{"role":"user","content":[`+s+`]}]`))
	}
	with := func(name string, change func(*Input)) {
		in := messages(`[{"role":"user","content":"x"}]`)
		change(&in)
		f(name, in)
	}
	with("another role", func(in *Input) { in.Messages = []byte(`[{"role":"assistant","content":"x"}]`) })
	with("system", func(in *Input) { in.System = []byte(`"x"`) })
	with("two system blocks", func(in *Input) { in.System = []byte(`[{"type":"text","text":"x"},{"type":"text","text":"x"}]`) })
	with("tools", func(in *Input) { in.Tools = []byte(`[{"name":"x"}]`) })
	with("two tools", func(in *Input) { in.Tools = []byte(`[{"name":"x"},{"name":"x"}]`) })
	with("a parameter called like cache_control", func(in *Input) { in.Tools = []byte(`[{"name":"x","input_schema":{"cache_control":1}}]`) })
	with("another one", func(in *Input) { in.Tools = []byte(`[{"name":"x","input_schema":{"cache_control":2}}]`) })
	with("thinking", func(in *Input) { in.Thinking = []byte(`{"type":"enabled","budget_tokens":1024}`) })
	with("template arguments", func(in *Input) { in.TemplateArgs = []byte(`{"enable_thinking":false}`) })
	with("no messages", func(in *Input) { in.Messages, in.System = []byte(`{}`), nil })
	f("the same as a chat", chat(`[{"role":"user","content":"x"}]`))
}

func TestWhatIsTheSameForAllInASystemPromptIsMatched(t *testing.T) {
	ask := func(day string) Input {
		in := messages(`[{"role":"user","content":"x"}]`)
		in.System = []byte(`[{"type":"text","text":"` + strings.Repeat("rules ", 333) + `"},{"type":"text","text":"today is ` + day + `"}]`)
		return in
	}
	a, b := marks(t, Seed{}, ask("Monday")), marks(t, Seed{}, ask("Tuesday"))
	if n := Diverge(a, b); n == 0 || a[n-1].Bytes() != len("system")+6*333 {
		t.Fatalf("%d marks shared of %v", n, a)
	}
}

func TestDepthOfBlocksAndItems(t *testing.T) {
	f := func(in Input, want Mark) {
		t.Helper()
		got := marks(t, Seed{}, in)
		last := got[len(got)-1]
		if last.Hash = 0; last != want {
			t.Errorf("%s%s: %+v, want %+v", in.Prompt, in.Messages, last, want)
		}
	}
	f(responses(`"abc é"`), Mark{ASCII: 4 + 4, Wide: 2, Exact: messageTokens})
	f(responses(`[{"type":"function_call","name":"f","arguments":"{}"},{"type":"function_call_output","output":[{"type":"input_image","image_url":"x"}]}]`),
		Mark{ASCII: 3, Exact: 2*messageTokens + imageTokens})
	f(messages(`[{"role":"user","content":[{"type":"image","source":{}},{"type":"document","source":{"type":"text","data":"abc"}},{"type":"document","source":{"type":"url","url":"x"}}]}]`),
		Mark{ASCII: 4 + 3, Exact: messageTokens + imageTokens + fileTokens})
}

func TestNestedBlocksCostLinearTime(t *testing.T) {
	for _, block := range []string{`{"type":"tool_result","content":[%s]}`, `{"type":"document","source":{"type":"content","content":[%s]}}`} {
		deep := `{"type":"text","text":"x"}`
		for range 150 {
			deep = strings.Replace(block, "%s", deep, 1)
		}
		a := marks(t, Seed{}, messages(`[{"role":"user","content":[`+deep+`]}]`))
		b := marks(t, Seed{}, messages(`[{"role":"user","content":[`+strings.Replace(deep, `"x"`, `"y"`, 1)+`]}]`))
		if a[len(a)-1].Hash == b[len(b)-1].Hash {
			t.Error("what lies deep does not count")
		}
	}
}

func TestNextTurnsOfEveryFamilyShareTheAnswer(t *testing.T) {
	type piece struct{ name, text string } // a call with arguments, or text
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Responses, Messages}).Draw(t, "kind")
		var pieces []piece
		for i := range rapid.IntRange(1, 4).Draw(t, "pieces") {
			if rapid.Bool().Draw(t, "call") {
				pieces = append(pieces, piece{fmt.Sprint("f", i), `{"a": ` + quote(text().Draw(t, "argument")) + `, "b":[1, 2]}`})
			} else {
				pieces = append(pieces, piece{"", text().Draw(t, "text") + "."})
			}
		}
		var list []string
		for i, p := range pieces {
			switch {
			case kind == Responses && p.name != "":
				list = append(list, fmt.Sprintf(`{"type":"function_call","id":"%d","call_id":"1","name":%q,"arguments":%s}`, i, p.name, quote(p.text)))
			case kind == Responses:
				list = append(list, fmt.Sprintf(`{"type":"message","id":"%d","role":"assistant","content":[{"type":"output_text","text":%s,"annotations":[]}]}`, i, quote(p.text)))
			case p.name != "":
				list = append(list, fmt.Sprintf(`{"type":"tool_use","id":"%d","name":%q,"input":%s}`, i, p.name, p.text))
			default:
				list = append(list, fmt.Sprintf(`{"type":"text","text":%s}`, quote(p.text)))
			}
		}
		const asked = `{"role":"user","content":"well?"}`
		ask := func(more string) Input {
			if kind == Responses {
				return responses("[" + asked + more + "]")
			}
			return messages("[" + asked + more + "]")
		}
		after := "," + strings.Join(list, ",")
		if kind == Messages {
			after = `,{"role":"assistant","content":[` + strings.Join(list, ",") + `]}`
		}
		next := marksOf(t, ask(after+`,{"role":"user","content":"and?"}`))

		var h Hasher
		begin := func() []Mark {
			m, err := h.Marks(nil, Seed{}, ask(""))
			if err != nil {
				t.Fatal(err)
			}
			h.BeginAnswer("assistant")
			return m
		}
		check := func(how string, got []Mark) {
			if len(got) < 2 || Diverge(got, next) != len(got) || len(next) > len(got)+2 {
				t.Fatalf("%s: answered %v\nnext turn %v\nanswer %s", how, got, next, after)
			}
		}
		m := begin()
		for _, one := range list {
			h.AnswerItem([]byte(one))
		}
		check("whole", h.EndAnswer(m))

		m = begin()
		for _, p := range pieces {
			add := h.AnswerText
			if p.name != "" {
				h.AnswerCall([]byte(p.name))
				add = h.AnswerArguments
			} else if kind == Responses {
				h.AnswerItem(nil)
			} else {
				h.AnswerPart()
			}
			for rest := p.text; rest != ""; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
				add([]byte(rest[:n]))
				rest = rest[n:]
			}
		}
		check("in pieces", h.EndAnswer(m))
	})
}

func marksOf(t *rapid.T, in Input) []Mark {
	m, err := new(Hasher).Marks(nil, Seed{}, in)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAnswersOfTheNewFamiliesInSpecialSituations(t *testing.T) {
	f := func(name string, in, next Input, answer func(h *Hasher)) {
		t.Helper()
		var h Hasher
		got, err := h.Marks(nil, Seed{}, in)
		if err != nil {
			t.Fatal(err)
		}
		before := len(got)
		h.BeginAnswer("assistant")
		answer(&h)
		got = h.EndAnswer(got)
		after := marks(t, Seed{}, next)
		if len(got) == before || Diverge(got, after) != len(got) {
			t.Errorf("%s: answered %v, next turn %v", name, got, after)
		}
	}
	const asked = `[{"role":"user","content":"well?"}`
	turn := func(assistant string) Input {
		return messages(asked + `,{"role":"assistant","content":` + assistant + `}]`)
	}
	f("a call without input", messages(asked+"]"), turn(`[{"type":"tool_use","name":"f","input":{}}]`), func(h *Hasher) {
		h.AnswerCall([]byte("f"))
		h.AnswerArguments(nil)
	})
	f("the empty input that starts a call, and no other", messages(asked+"]"), turn(`[{"type":"tool_use","name":"f","input":{}}]`), func(h *Hasher) {
		h.AnswerCall([]byte("f"))
		h.AnswerArguments([]byte("{}"))
	})
	f("escapes cut in two", messages(asked+"]"), turn(`[{"type":"tool_use","name":"f","input":{"\"":"🌍 \u00e9 \ud83c! \ud83c\ud83c\udf0d"}}]`), func(h *Hasher) {
		h.AnswerCall([]byte("f"))
		for _, p := range strings.SplitAfter(`{"\"":"\ud83c\udf0d é \ud83c! \ud83c🌍"}`, "") {
			h.AnswerArguments([]byte(p))
		}
	})
	f("thinking", messages(asked+"]"), turn(`[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"text","text":"so"}]`), func(h *Hasher) {
		h.AnswerItem([]byte(`{"type":"thinking","thinking":"hm","signature":"x"}`))
		h.AnswerText([]byte("so"))
	})
	f("two blocks of text", messages(asked+"]"), turn(`[{"type":"text","text":"so"},{"type":"text","text":"so"}]`), func(h *Hasher) {
		h.AnswerText([]byte("so"))
		h.AnswerPart()
		h.AnswerText([]byte("so"))
	})
	f("two parts of one message", responses(asked+"]"), responses(asked+`,{"role":"assistant","content":[{"type":"output_text","text":"so"},{"type":"output_text","text":"so"}]}]`), func(h *Hasher) {
		h.AnswerText([]byte("so"))
		h.AnswerPart()
		h.AnswerText([]byte("so"))
	})
	f("reasoning and a search", responses(asked+"]"), responses(asked+`,{"type":"reasoning","summary":[]},{"type":"web_search_call","id":"1","action":{"query":"x"}},{"role":"assistant","content":"so"}]`), func(h *Hasher) {
		h.AnswerItem([]byte(`{"type":"reasoning","id":"rs","summary":[]}`))
		h.AnswerItem([]byte(`{"type":"web_search_call","id":"1","status":"completed","action":{"query":"x"}}`))
		h.AnswerText([]byte("so"))
	})
	broken := func(name string, in Input, answer func(h *Hasher)) {
		t.Helper()
		var h Hasher
		if _, err := h.Marks(nil, Seed{}, in); err != nil {
			t.Fatal(err)
		}
		h.BeginAnswer("assistant")
		answer(&h)
		if got := h.EndAnswer(nil); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	after := responses(`"x"`)
	after.Previous = []byte(`"resp_1"`)
	broken("the next turn names the response", after, func(h *Hasher) { h.AnswerText([]byte("so")) })
	broken("input that is cut", messages(asked+"]"), func(h *Hasher) { h.AnswerCall([]byte("f")); h.AnswerArguments([]byte(`{"a`)) })
	broken("input with a cut escape", messages(asked+"]"), func(h *Hasher) { h.AnswerCall([]byte("f")); h.AnswerArguments([]byte(`{"a\u00`)) })
	broken("an item that is no JSON", responses(asked+"]"), func(h *Hasher) { h.AnswerItem([]byte(`{"type":`)) })
	broken("a block that is two", messages(asked+"]"), func(h *Hasher) { h.AnswerItem([]byte(`{} {}`)) })
	broken("items in a chat", chat(asked+"]"), func(h *Hasher) { h.AnswerItem([]byte(`{}`)) })
}
