package prefix

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// compared is what Compare says of two prompts, as text.
func compared(t testing.TB, a, b Input) string {
	t.Helper()
	d, err := Compare(Seed{}, a, Seed{}, b)
	if err != nil {
		t.Fatal(err)
	}
	if d.Same {
		return "same"
	}
	show := func(p Place) string {
		s := fmt.Sprint(p.Path, " ", p.Byte)
		if p.Ended {
			s += " end"
		}
		return s
	}
	return show(d.A) + " | " + show(d.B)
}

func TestWhereChatsPart(t *testing.T) {
	f := func(name, a, b, want string) {
		t.Helper()
		if got := compared(t, chat(a), chat(b)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	f("in a text", `[{"role":"user","content":"abcX"}]`, `[{"content":"ab\u0063Y","role":"user"}]`, "messages[0].content 3 | messages[0].content 3")
	f("in a wide character", `[{"role":"user","content":"aé那"}]`, `[{"role":"user","content":"a\u00e9\u9083"}]`, "messages[0].content 5 | messages[0].content 5")
	f("in a part", `[{"role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"bc"}]}]`,
		`[{"role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":"a"},{"text":"bd","type":"text"}]}]`, "messages[1].content[1].text 1 | messages[1].content[1].text 1")
	f("in a role", `[{"role":"user"}]`, `[{"role":"assistant"}]`, "messages[0].role 0 | messages[0].role 0")
	f("a longer text", `[{"role":"user","content":"ab"}]`, `[{"role":"user","content":"abc"}]`, "messages[0].content 2 | messages[0].content 2")
	f("an empty role", `[{"role":""}]`, `[{"role":"u"}]`, "messages[0].role 0 | messages[0].role 0")
	f("one message more", `[{"role":"user","content":"ab"}]`, `[{"role":"user","content":"ab"},{"role":"user","content":"c"}]`, "messages 31 end | messages[1] 0")
	f("no content", `[{"role":"user"}]`, `[{"role":"user","content":"ab"}]`, "messages[0] 14 | messages[0].content 0")
	f("one part more", `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}]`, `[{"role":"user","content":"a"}]`, "messages[0].content[1] 0 | messages[0] 28")
	f("another image", `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`, `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"y"}}]}]`, "messages[0].content[0] 0 | messages[0].content[0] 0")
	f("a tool's arguments", `[{"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}]`, `[{"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":2}"}}]}]`,
		"messages[0].tool_calls[0].function.arguments 5 | messages[0].tool_calls[0].function.arguments 5")
	f("a tool's name", `[{"tool_calls":[{"function":{"name":"f"}}]}]`, `[{"tool_calls":[{"function":{"name":"g"}}]}]`, "messages[0].tool_calls[0].function.name 0 | messages[0].tool_calls[0].function.name 0")
	f("nothing", ` [{"role":"user","content":"é"}]`, `[ {"content":[{"type":"text","text":"\u00e9"}],"role":"user"} ]`, "same")

	tools := func(a string) Input { return Input{Kind: Chat, Tools: []byte(a), Messages: []byte(`[]`)} }
	for want, pair := range map[string][2]string{
		"tools[1].d 2 | tools[1].d 2":             {`[{},{"d":"\"a1"}]`, `[{}, {"d":"\"a2"}]`},
		"tools[0] 2 | tools[0] 3":                 {`[{"d":1}]`, `[{ "e":1}]`},
		`tools[0]["a b"] 0 | tools[0]["a b"] 0`:   {`[{"a b":1}]`, `[{"a b":2}]`},
		"tools[0].d 1 | tools[0].d 1":             {`[{"d":"\n\u0022"}]`, `[{"d":"\nx"}]`},
		"tools 3 | tools 3":                       {`[{}]`, `[{},{}]`},
		"same":                                    {`[{"a":"\u0022"}]`, ` [{ "a" : "\"" }]`},
		"tools[0].deep[0] 2 | tools[0].deep[0] 2": {`[{"deep":[[1,2]]}]`, `[{"deep":[[1]]}]`},
		"tools[0] 8 | tools[0].a 3":               {`[{"a":123}]`, `[{"a":1234}]`},
	} {
		if got := compared(t, tools(pair[0]), tools(pair[1])); got != want {
			t.Errorf("%s and %s: %s, want %s", pair[0], pair[1], got, want)
		}
	}
	if got, want := compared(t, tools(`[{}]`), chat(`[{"role":"u"}]`)), "tools 0 | messages[0] 0"; got != want {
		t.Errorf("no tools: %s, want %s", got, want)
	}
}

func TestWherePromptsOfOtherFamiliesPart(t *testing.T) {
	f := func(name string, a, b Input, want string) {
		t.Helper()
		if got := compared(t, a, b); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	prompt := func(kind Kind, raw string) Input { return Input{Kind: kind, Prompt: []byte(raw)} }
	f("completions", prompt(Completion, `"abc"`), prompt(Completion, `["abd"]`), "prompt 2 | prompt[0] 2")
	f("a longer completion", prompt(Completion, `"abc"`), prompt(Completion, `"abcd"`), "prompt 3 end | prompt 3")
	f("token ids", prompt(Completion, `[1,22,3]`), prompt(Completion, `[[1, 22, 4]]`), "prompt[2] 0 | prompt[0][2] 0")
	f("more token ids", prompt(Completion, `[1]`), prompt(Completion, `[1,2]`), "prompt 2 end | prompt[1] 0")
	f("embeddings", prompt(Embedding, `"a"`), prompt(Embedding, `"b"`), "input 0 | input 0")

	f("a string and items", responses(`"ab"`), responses(`[{"role":"user","content":[{"type":"input_text","text":"ac"}]}]`), "input 1 | input[0].content[0].text 1")
	f("items", responses(`[{"type":"function_call","name":"f","arguments":"x"}]`), responses(`[{"type":"function_call_output","output":"x"}]`), "input[0] 0 | input[0] 0")
	f("outputs", responses(`[{"type":"function_call_output","output":"x"}]`), responses(`[{"type":"function_call_output","output":"y"}]`), "input[0].output 0 | input[0].output 0")
	f("unknown items", responses(`[{"type":"x","id":"1","a":1}]`), responses(`[{"id":"2","type":"x","a":2}]`), "input[0].a 0 | input[0].a 0")
	a, b := responses(`"x"`), responses(`"x"`)
	a.Instructions, b.Instructions = []byte(`"be brief"`), []byte(`"be long"`)
	f("instructions", a, b, "instructions 3 | instructions 3")
	b.Instructions = nil
	f("no instructions", a, b, "instructions 0 | input 0")
	a, b = responses(`"x"`), responses(`"x"`)
	a.Previous, b.Previous = []byte(`"resp_1"`), []byte(`"resp_2"`)
	f("after another response", a, b, "previous_response_id 0 | previous_response_id 0")

	f("blocks", messages(`[{"role":"user","content":[{"type":"text","text":"a","cache_control":{}},{"type":"tool_result","content":[{"type":"text","text":"ab"}]}]}]`),
		messages(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"tool_result","content":"ac"}]}]`), "messages[0].content[1].content[0].text 1 | messages[0].content[1].content 1")
	f("input", messages(`[{"role":"user","content":[{"type":"tool_use","name":"f","input":{"a":{"b":"x"}}}]}]`), messages(`[{"role":"user","content":[{"type":"tool_use","name":"f","input":{"a":{"b":"y"}}}]}]`),
		"messages[0].content[0].input.a.b 0 | messages[0].content[0].input.a.b 0")
	f("images", messages(`[{"role":"user","content":[{"type":"image","source":{"data":"x"}}]}]`), messages(`[{"role":"user","content":[{"type":"image","source":{"data":"y"}}]}]`), "messages[0].content[0] 0 | messages[0].content[0] 0")
	a, b = messages(`[]`), messages(`[]`)
	a.System, b.System = []byte(`[{"type":"text","text":"a"},{"type":"text","text":"b"}]`), []byte(`[{"type":"text","text":"a"},{"type":"text","text":"c"}]`)
	f("system", a, b, "system[1].text 0 | system[1].text 0")
	a.System, b.System = nil, nil
	a.Tools, b.Tools = []byte(`[{"name":"f","cache_control":{}},{"name":"g"}]`), []byte(`[{"name":"f"},{"name":"h"}]`)
	f("tools", a, b, "tools[1].name 0 | tools[1].name 0")
}

func TestSeedsThatDifferAreNamed(t *testing.T) {
	in := chat(question + "]")
	f := func(want string, other Seed, b Input) {
		t.Helper()
		d, err := Compare(Seed{Model: "m"}, in, other, b)
		if err != nil || d.Same || d.Seed != want || d.Shared != 0 || d.Marks[0] != 2 || d.A.Path != "" {
			t.Errorf("%s: %+v, %v", want, d, err)
		}
	}
	f("model", Seed{Model: "n"}, in)
	f("adapter", Seed{Model: "m", Adapter: "a"}, in)
	f("cache_salt", Seed{Model: "m", CacheSalt: "a"}, in)
	f("tenant", Seed{Model: "m", Tenant: "a"}, in)
	f("kind", Seed{Model: "m"}, Input{Kind: Messages, Messages: in.Messages})
}

func TestComparingWhatIsNoJSON(t *testing.T) {
	good, bad := chat(question+"]"), chat(question+",{]")
	if _, err := Compare(Seed{}, good, Seed{}, bad); err == nil {
		t.Error("no error of B")
	}
	if d, err := Compare(Seed{}, bad, Seed{}, good); err == nil || d.Shared != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := Locate(Seed{}, bad, nil); err == nil {
		t.Error("no error of Locate")
	}
}

// spelled writes a string as JSON in one of several ways.
func spelled(s string, way int) string {
	if way == 0 {
		return quote(s)
	}
	var b strings.Builder
	b.WriteByte('"')
	for i, r := range s {
		switch {
		case way == 1 && i%3 != 0 && r >= ' ' && r != '"' && r != '\\':
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String() + `"`
}

// TestAMutationIsFoundWhereItWasMade builds two bodies that mean the same, changes one text of one, and looks for it.
func TestAMutationIsFoundWhereItWasMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Chat, Responses, Messages, Completion}).Draw(t, "kind")
		n := 1
		if kind != Completion {
			n = rapid.IntRange(1, 6).Draw(t, "messages")
		}
		texts := make([]string, n)
		parts := make([]bool, n)
		for i := range texts {
			texts[i], parts[i] = text().Draw(t, "text")+"end", rapid.Bool().Draw(t, "part")
		}
		at := rapid.IntRange(0, n-1).Draw(t, "which")
		runes := []rune(texts[at])
		cut := rapid.IntRange(0, len(runes)-1).Draw(t, "where")
		other := rapid.SampledFrom([]rune{'Z', 'ß', '中', '😀', '\n'}).Draw(t, "into")
		if runes[cut] == other {
			other = 'Q'
		}
		changed := string(runes[:cut]) + string(other) + string(runes[cut+1:])
		before := string(runes[:cut])
		wantByte := len(before)
		for x, y := string(runes[cut]), string(other); x[wantByte-len(before)] == y[wantByte-len(before)]; {
			wantByte++
		}

		turned := false
		// body builds one side: its bytes, its input and where the changed character begins.
		body := func(name string, mutated bool) ([]byte, Input, int, string) {
			way := rapid.IntRange(0, 2).Draw(t, name+" spelling")
			space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, name+" space")
			var b strings.Builder
			b.WriteString(`{"model":"m",` + space)
			start, where, path := 0, 0, ""
			write := func(i int) {
				s := texts[i]
				if i == at {
					if mutated {
						s = changed
					}
					lead := spelled(before, way)
					if way == 1 { // what follows a character must not change how it is written
						lead = spelled(s, way)[:len(spelled(before, way))]
					}
					where = b.Len() + len(lead) - 1
				}
				b.WriteString(spelled(s, way))
			}
			field := map[Kind]string{Chat: "messages", Messages: "messages", Responses: "input", Completion: "prompt"}[kind]
			b.WriteString(`"` + field + `":` + space)
			start = b.Len()
			if kind == Completion {
				path = field
				write(0)
			} else {
				b.WriteString("[" + space)
				for i := range texts {
					if i > 0 {
						b.WriteString("," + space)
					}
					p := fmt.Sprintf("%s[%d].content", field, i)
					list := parts[i] != (rapid.IntRange(0, 3).Draw(t, name+" form") == 0)
					roleLast := rapid.Bool().Draw(t, name+" order")
					turned = turned || roleLast
					b.WriteString("{" + space)
					if !roleLast {
						b.WriteString(`"role":"user",` + space)
					}
					b.WriteString(`"content":` + space)
					if list {
						b.WriteString(`[` + space + `{"type":"text","text":`)
						p += "[0].text"
					}
					write(i)
					if list {
						b.WriteString(space + `}]`)
					}
					if roleLast {
						b.WriteString(`,"role":"user"`)
					}
					b.WriteString(space + "}")
					if i == at {
						path = p
					}
				}
				b.WriteString("]")
			}
			end := b.Len()
			b.WriteString(`,"stream":true}`)
			raw := []byte(b.String())
			if !json.Valid(raw) {
				t.Fatalf("the test builds bad JSON: %s", raw)
			}
			in := Input{Kind: kind}
			if field == "messages" {
				in.Messages = raw[start:end]
			} else {
				in.Prompt = raw[start:end]
			}
			return raw, in, where, path
		}
		bodyA, a, offsetA, pathA := body("A", false)
		_, same, _, _ := body("C", false)
		bodyB, b, offsetB, pathB := body("B", true)

		d, err := Compare(Seed{}, a, Seed{}, same)
		if err != nil || !d.Same || d.Shared != d.Marks[0] || d.Shared != d.Marks[1] {
			t.Fatalf("unchanged: %+v, %v", d, err)
		}
		d, err = Compare(Seed{}, a, Seed{}, b)
		if err != nil || d.Same {
			t.Fatalf("%+v, %v", d, err)
		}
		if d.A.Path != pathA || d.B.Path != pathB || d.A.Byte != wantByte || d.B.Byte != wantByte || d.A.Ended || d.B.Ended {
			t.Fatalf("found %+v and %+v\nwant %s and %s, byte %d", d.A, d.B, pathA, pathB, wantByte)
		}
		if got := d.A.Offset(bodyA); !within(bodyA, got, offsetA, wantByte-len(before)) {
			t.Fatalf("A at %d, want %d: %s", got, offsetA, bodyA)
		}
		if got := d.B.Offset(bodyB); !within(bodyB, got, offsetB, wantByte-len(before)) {
			t.Fatalf("B at %d, want %d: %s", got, offsetB, bodyB)
		}
		if d.A.Offset(bodyB) != -1 {
			t.Fatal("a place lies in a body it is not of")
		}
		x, y := marksOf(t, a), marksOf(t, b)
		if d.Shared != Diverge(x, y) || d.Marks != [2]int{len(x), len(y)} {
			t.Fatalf("%d of %v marks are shared, want %d of %d and %d", d.Shared, d.Marks, Diverge(x, y), len(x), len(y))
		}

		l, err := Locate(Seed{}, b, x)
		if err != nil || l.Shared != d.Shared || l.Marks != len(y) {
			t.Fatalf("located %+v, %v", l, err)
		}
		// A role that stands behind the content is hashed before it, so places may come in another order.
		from, to := l.From.Offset(bodyB), l.To.Offset(bodyB)
		if got := d.B.Offset(bodyB); l.To.Ended && l.Shared < l.Marks || !turned && (from > got || to < got) {
			t.Fatalf("the prompts part at %d, not between %d and %d", got, from, to)
		}
	})
}

// within says whether an offset is where a character begins, or, for one that is not an escape, some bytes behind it.
func within(body []byte, got, want, into int) bool {
	if body[want] == '\\' {
		return got == want
	}
	return got == want+into
}

func FuzzCompare(f *testing.F) {
	for _, s := range []string{
		`[{"role":"user","content":"\u00e9\ud83c\udf0d"}]`, `[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image"}],"tool_calls":[{"function":{"name":"f"}}]}]`,
		`[{"type":"function_call","name":"f"},{"type":"x","id":"1"}]`, `[{"role":"user","content":[{"type":"tool_use","input":{"a":"\""}},{"type":"tool_result","content":"x"}]}]`,
		`"x"`, `[1,[2]]`, `[`, `{"a":"\u0022"}`,
	} {
		for kind := range uint8(5) {
			f.Add([]byte(s), []byte(`[{"role":"user","content":"x"}]`), kind)
		}
	}
	f.Fuzz(func(t *testing.T, rawA, rawB []byte, kind uint8) {
		input := func(raw []byte) Input {
			return Input{Kind: Kind(kind%5 + 1), Tools: raw, Messages: raw, Prompt: raw, System: raw, Previous: raw}
		}
		a, b := input(rawA), input(rawB)
		d, err := Compare(Seed{}, a, Seed{}, b)
		x, errA := new(Hasher).Marks(nil, Seed{}, a)
		y, errB := new(Hasher).Marks(nil, Seed{}, b)
		if (err != nil) != (errA != nil || errB != nil) {
			t.Fatalf("Compare says %v, hashers %v and %v", err, errA, errB)
		}
		if d.Shared != Diverge(x, y) || d.Marks != [2]int{len(x), len(y)} {
			t.Fatalf("%+v of marks %v and %v", d, x, y)
		}
		if d.Same && fmt.Sprint(x) != fmt.Sprint(y) {
			t.Fatal("the same prompts with different marks")
		}
		// What holds no prompt, as an empty list, has no place to name.
		if err == nil && !d.Same && (d.A.Path == "" && len(x) > 0 || d.B.Path == "" && len(y) > 0) {
			t.Fatalf("no place of %+v", d)
		}
		if own, err := Compare(Seed{}, a, Seed{}, input(append([]byte(" "), rawA...))); err == nil && !own.Same {
			t.Fatalf("not the same as itself behind a blank: %+v", own)
		}
		l, _ := Locate(Seed{}, b, x)
		if l.Shared != d.Shared || l.Marks != len(y) {
			t.Fatalf("located %+v, compared %+v", l, d)
		}
	})
}
