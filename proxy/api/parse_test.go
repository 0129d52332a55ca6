package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state/prefix"
)

func TestParseAllocatesLittle(t *testing.T) {
	body := []byte(`{"model":"model-name","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("x", 100_000) + `"}],"stream_options":{}}`)
	if n := testing.AllocsPerRun(100, func() {
		r, err := Parse(Chat, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Hashed()
	}); n > 2 {
		t.Fatalf("%v allocations, want one for the model's name and one for the places of long strings", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":false}}`,
		`{"model":"m","stream":true,"stream_options":{ "x":1 }}`, `{"mod\u0065l":"\ud83c","n":1}`, "\xEF\xBB\xBF{\"model\":\"m\",\"stream\":true}", `{"model":"m","stream":true,"stream_options":null}`,
		`{"model":"m","cache_salt":1,"prompt":[1],"input":"x"}`, `{}`, `{"stream":true}`,
		`{"model":"m","input":[{"role":"user","content":"x"}],"instructions":"i","previous_response_id":"r","reasoning":{"effort":"low"}}`,
		`{"model":"m","system":[{"type":"text","text":"x","cache_control":{}}],"messages":[{"role":"user","content":[]}],"thinking":{}}`,
	} {
		for ep := range uint8(Messages) + 1 {
			f.Add([]byte(s), ep, "new \"name\"")
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, ep uint8, name string) {
		r, err := Parse(Endpoint(ep%uint8(Messages+1)), body)
		if err != nil {
			if e := AsError(err); e.Status != http.StatusBadRequest || !json.Valid(e.AppendOpenAI(nil)) {
				t.Fatalf("%+v", e)
			}
			return
		}
		var hasher prefix.Hasher
		if in := r.Input(body); in.Kind != 0 {
			known, _ := hasher.Marks(nil, prefix.Seed{}, in)
			in.Checked = false
			marks, err := hasher.Marks(nil, prefix.Seed{}, in)
			if err != nil || !slices.Equal(known, marks) {
				t.Fatalf("a body that was accepted hashes to %v, checked again to %v, %v", known, marks, err)
			}
		}
		checkSplice(t, &r, body, name)
	})
}

// BenchmarkParseAndMarks is what a router does with each body of a chat.
func BenchmarkParseAndMarks(b *testing.B) {
	words := strings.Repeat("some plain words of a prompt ", 3)
	for name, piece := range map[string]string{"plain": words, "prose": words[:50] + `\"so\"` + words + `.\n`} {
		for _, messages := range []int{16, 250} { // of 16 kB
			b.Run(fmt.Sprintf("%s/kB=%d", name, messages*16), func(b *testing.B) {
				message := `{"role":"user","content":"` + strings.Repeat(piece, 16_000/len(piece)) + `"}`
				body := []byte(`{"model":"m","messages":[` + strings.Repeat(message+",", messages-1) + message + `]}`)
				var h prefix.Hasher
				var dst []prefix.Mark
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				best := time.Hour
				for b.Loop() {
					began := time.Now()
					r, err := Parse(Chat, body)
					if err != nil {
						b.Fatal(err)
					}
					dst, _ = h.Marks(dst[:0], prefix.Seed{Model: "m"}, r.Input(body))
					best = min(best, time.Since(began))
				}
				b.ReportMetric(float64(len(body))/1e6/best.Seconds(), "best-MB/s") // on a machine that does something else meanwhile
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	body := []byte(`{"model":"m","stream":true,"messages":[` + strings.Repeat(`{"role":"user","content":"`+strings.Repeat("some plain words of a prompt ", 220)+`\n"},`, 19) + `{"role":"user"}]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(Chat, body); err != nil {
			b.Fatal(err)
		}
	}
}

// Where long strings lie is told to the hasher, which must make the same marks of them
// as if it had looked: in messages and parts, in tools and arguments, behind a byte
// order mark, and where there are more than are noted.
func TestLongStringsHashAlike(t *testing.T) {
	var hasher prefix.Hasher
	f := func(name string, ep Endpoint, body string, longs int) {
		t.Helper()
		b := []byte(body)
		r := parse(t, ep, body)
		in := r.Input(b)
		if len(in.Longs) != longs {
			t.Errorf("%s: %d long strings, want %d", name, len(in.Longs), longs)
		}
		for _, v := range in.Longs {
			if raw := v.Raw(in.Whole); raw[0] != '"' || !json.Valid(raw) {
				t.Errorf("%s: %.20q... is no string", name, raw)
			}
		}
		known, _ := hasher.Marks(nil, prefix.Seed{}, in)
		total := hasher.Total()
		if longs > 0 { // they are believed
			wrong := slices.Clone(in.Longs)
			wrong[longs-1].End -= 300
			in.Longs = wrong
			if marks, _ := hasher.Marks(nil, prefix.Seed{}, in); slices.Equal(marks, known) && hasher.Total() == total {
				t.Errorf("%s: the last long string is looked for", name)
			}
		}
		in.Longs, in.Runs = r.Input(b).Longs, nil
		if marks, _ := hasher.Marks(nil, prefix.Seed{}, in); !slices.Equal(marks, known) || hasher.Total() != total {
			t.Errorf("%s: other marks with runs known", name)
		}
		in.Longs = nil
		if marks, _ := hasher.Marks(nil, prefix.Seed{}, in); !slices.Equal(marks, known) || hasher.Total() != total {
			t.Errorf("%s: other marks with long strings known", name)
		}
		in.Checked = false
		if marks, err := hasher.Marks(nil, prefix.Seed{}, in); err != nil || !slices.Equal(marks, known) || hasher.Total() != total {
			t.Errorf("%s: other marks when it is checked, %v", name, err)
		}
	}
	plain := strings.Repeat("plain words, ", 400)
	prose := strings.Repeat(`said \"no\".\n`, 500)
	code := strings.Repeat(`\t\"\\\\\"\n`, 1000) + `\\`
	wide := strings.Repeat("這是文字 é ", 400)
	escaped := strings.Repeat(`\u8fd9\ud83d\ude00`, 500)
	message := func(content string) string { return `{"role":"user","content":` + content + `}` }
	chat := func(messages ...string) string {
		return `{"model":"m","x":"` + plain + `","messages":[` + strings.Join(messages, ",") + `]}`
	}
	for name, s := range map[string]string{"plain": plain, "prose": prose, "code": code, "wide": wide, "escaped": escaped} {
		q := `"` + s + `"`
		f(name, Chat, chat(message(q), message(`"short"`), message(q)), 3)
		f(name+" behind a mark", Chat, "\uFEFF"+chat(message(q), message(q)), 3)
		f(name+" in parts", Chat, chat(message(`[{"type":"text","text":`+q+`},{"type":"text","text":"x"},{"type":"text","text":`+q+`}]`), message(q)), 4)
		f(name+" in calls", Chat, chat(`{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":`+q+`}}]}`, message(q)), 3)
		f(name+" in tools", Chat, `{"model":"m","tools":[{"type":"function","function":{"name":"f","description":`+q+`}}],"messages":[`+message(q)+`]}`, 2)
		f(name+" as a key", Chat, `{"model":"m",`+q+`:1,"messages":[{`+q+`:1,"role":"user","content":`+q+`}]}`, 3)
		f(name+" as a prompt", Completions, `{"model":"m","prompt":`+q+`}`, 1)
		f(name+" in a list", Completions, `{"model":"m","prompt":[`+q+`,`+q+`]}`, 2)
		f(name+" twice", Chat, chat(message(q+`,"content":`+q)), 3)
	}
	many := make([]string, mostLongs+10)
	for i := range many {
		many[i] = message(`"` + plain + `"`)
	}
	f("many", Chat, chat(many...), mostLongs)
	f("nearly long", Chat, `{"model":"m","messages":[`+message(`"`+strings.Repeat("x", 4093)+`"`)+`,{}]}`, 0)
	f("just long", Chat, `{"model":"m","messages":[`+message(`"`+strings.Repeat("x", 4094)+`"`)+`,{}]}`, 1)
}

// Runs between escapes are told to the hasher, and believed. Text has them; where escapes
// crowd, or are of characters by number, there are none.
func TestRunsOfLongStringsAreKnown(t *testing.T) {
	var hasher prefix.Hasher
	f := func(name, text string, known bool) {
		t.Helper()
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`)
		r := parse(t, Chat, string(body))
		in := r.Input(body)
		if len(in.Longs) != 1 || (in.Longs[0].Runs > 0) != known {
			t.Errorf("%s: %+v", name, in.Longs)
		}
		marks, _ := hasher.Marks(nil, prefix.Seed{}, in)
		if len(in.Runs) > 0 && known {
			wrong := slices.Clone(in.Runs)
			wrong[0]--
			in.Runs = wrong
			if other, _ := hasher.Marks(nil, prefix.Seed{}, in); slices.Equal(other, marks) {
				t.Errorf("%s: runs are looked for", name)
			}
		}
		r.Hashed()
		in = r.Input(body)
		if again, _ := hasher.Marks(nil, prefix.Seed{}, in); in.Runs != nil || !slices.Equal(again, marks) {
			t.Errorf("%s: other marks once runs are let go", name)
		}
	}
	line := strings.Repeat("x", 70) + `\n`
	f("lines", strings.Repeat(line, 100), true)
	f("a crowd among lines", strings.Repeat(line, 50)+strings.Repeat(`\"`, 20)+strings.Repeat(line, 50), true)
	f("long runs", strings.Repeat(strings.Repeat("y", 300)+`\t`, 100), true)
	f("characters of several bytes", strings.Repeat("這是文字 é"+line, 100), true)
	f("no escapes", strings.Repeat("x", 5000), false)
	f("code", strings.Repeat(`\t\"\\\"\n`, 1000), false)
	f("characters by number", strings.Repeat(line+`\u00e9`, 100), false)
	f("a run too long", strings.Repeat("x", 70_000)+`\n`, false)
}

// FuzzRuns holds that marks are the same whether or not runs are known, and whatever runs
// are said to be there nothing panics.
func FuzzRuns(f *testing.F) {
	f.Add([]byte("some text"), 13, uint16(3))
	f.Add([]byte(`a \"quoted\" word`), 70, uint16(300))
	f.Add([]byte(`\\\n\t 這 \u00e9`), 5000, uint16(1<<16-1))
	f.Fuzz(func(t *testing.T, piece []byte, gap int, lie uint16) {
		if len(piece) == 0 {
			return
		}
		text := string(piece)
		for n := 0; len(text) < 5000 && len(piece) < 5000; n++ {
			text += strings.Repeat("x", (n*gap)&1023) + string(piece)
		}
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + text + `"},{"content":"` + text + `"}]}`)
		r, err := Parse(Chat, body)
		if err != nil {
			return
		}
		defer r.Hashed()
		var hasher prefix.Hasher
		in := r.Input(body)
		marks, _ := hasher.Marks(nil, prefix.Seed{}, in)
		bare := in
		bare.Runs = nil
		if want, _ := hasher.Marks(nil, prefix.Seed{}, bare); !slices.Equal(marks, want) {
			t.Errorf("other marks with runs %v", in.Runs)
		}
		in.Runs = slices.Clone(in.Runs)
		for i := range in.Runs {
			if i%3 == int(lie)%3 {
				in.Runs[i] = lie
			}
		}
		_, _ = hasher.Marks(nil, prefix.Seed{}, in)
	})
}
