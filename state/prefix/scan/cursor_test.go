package scan

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// skip reads a document in one step, walk member by member.
func skip(doc []byte) error {
	c := New(doc)
	c.Skip()
	return c.End()
}

func walk(doc []byte) error {
	c := New(doc)
	var value func()
	value = func() {
		switch c.Peek() {
		case Object:
			if c.EnterObject() {
				for _, ok := c.NextField(); ok; _, ok = c.NextField() {
					value()
				}
			}
		case Array:
			if c.EnterArray() {
				for c.NextElem() {
					value()
				}
			}
		default:
			c.Skip()
		}
	}
	value()
	return c.End()
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestDocumentsAreAccepted(t *testing.T) {
	for _, doc := range []string{
		`{}`, `[]`, `""`, `0`, `-0`, `-0.0e+00`, `1E400`, `12345678901234567890`, `true`, `false`, `null`,
		" \t\r\n{ \"a\" : [ 1 , 2 ] , \"a\" : { } } \n", `"\u0000\ud83c\udf0d\ud83c\"\\\/\b\f\n\r\t"`, `"é 那个 🌍"`, "\"\x7f\"",
		nested(100), nested(MaxDepth), `{"":{"":[{},[],"]}"]}}`, `"0123456789abcdef"`, `"01234\"6789abcd\\ef"`,
	} {
		if err := skip([]byte(doc)); err != nil {
			t.Errorf("skip %.40q: %v", doc, err)
		}
		if err := walk([]byte(doc)); err != nil {
			t.Errorf("walk %.40q: %v", doc, err)
		}
	}
}

func TestFaultsAreNamedAndPlaced(t *testing.T) {
	f := func(doc string, problem Problem, offset int) {
		t.Helper()
		for name, read := range map[string]func([]byte) error{"skip": skip, "walk": walk} {
			var fault *Error
			if err := read([]byte(doc)); !errors.As(err, &fault) || fault.Problem != problem || fault.Offset != offset {
				t.Errorf("%s %.40q: got %v, want %v at %d", name, doc, err, problem, offset)
			}
		}
	}
	f(``, Truncated, 0)
	f(`{`, Truncated, 1)
	f(`{"a"`, Truncated, 4)
	f(`{"a":`, Truncated, 5)
	f(`{"a":1`, Truncated, 6)
	f(`{"a":1,`, Truncated, 7)
	f(`["`, Truncated, 2)
	f(`["\`, Truncated, 3)
	f(`["\u00`, Truncated, 6)
	f("[\"\xC3", Truncated, 3)
	f(`tru`, Truncated, 3)
	f(`-`, Truncated, 1)
	f(`1.`, Truncated, 2)
	f(`1e+`, Truncated, 3)
	f(`{"a":1,}`, Syntax, 7)
	f(`[1,]`, Syntax, 3)
	f(`[,1]`, Syntax, 1)
	f(`[1 2]`, Syntax, 3)
	f(`[1}`, Syntax, 2)
	f(`{"a":1]`, Syntax, 6)
	f(`{a:1}`, Syntax, 1)
	f(`{'a':1}`, Syntax, 1)
	f(`{"a" 1}`, Syntax, 5)
	f(`{"a"::1}`, Syntax, 5)
	f(`// x`, Syntax, 0)
	f(`[1/**/]`, Syntax, 2)
	f(`NaN`, Syntax, 0)
	f(`nul1`, Syntax, 3)
	f(`+1`, Syntax, 0)
	f(`.5`, Syntax, 0)
	f("\xEF\xBB\xBF{}", Syntax, 0)
	f("{\x00}", Syntax, 1)
	f(`01`, BadNumber, 1)
	f(`-x`, BadNumber, 1)
	f(`1.x`, BadNumber, 2)
	f(`1ex`, BadNumber, 2)
	f(`"\x"`, BadEscape, 1)
	f(`"\u12g4"`, BadEscape, 1)
	f("\"a\nb\"", BadControl, 2)
	f("\"12345678\x00\"", BadControl, 9)
	f("\"\xC3\"", BadUTF8, 1)
	f("\"\xC0\xAF\"", BadUTF8, 1)
	f("\"\xED\xA0\x80\"", BadUTF8, 1)
	f("\"那\xF5\x80\x80\x80\"", BadUTF8, 4)
	f("\"\xE9\x82\"", BadUTF8, 1)
	f(`{} {}`, TrailingData, 3)
	f(`1x`, TrailingData, 1)
	f(nested(MaxDepth+1), TooDeep, MaxDepth)
	f(nested(100000), TooDeep, MaxDepth)
	f(strings.Repeat(`{"a":`, 100000), TooDeep, MaxDepth*5)
}

func TestFirstFaultSticks(t *testing.T) {
	c := New([]byte(`{"a":x,"b":1}`))
	c.EnterObject()
	c.NextField()
	if v := c.Skip(); v.Kind != None {
		t.Fatalf("a value was read: %v", v)
	}
	if _, ok := c.NextField(); ok || c.NextElem() || c.EnterObject() || c.EnterArray() || c.Peek() != None {
		t.Fatal("the cursor went on after a fault")
	}
	if err := c.End(); err == nil || err.Error() != "invalid JSON at byte 5: unexpected byte" {
		t.Fatalf("got %v", err)
	}
}

func TestValuesAreLocated(t *testing.T) {
	doc := []byte(` {"a\n": [1, "x"], "b": "\u00e9", "c":null, "d":"é"} `)
	c := New(doc)
	if c.EnterArray() || !c.EnterObject() {
		t.Fatal("it is an object")
	}
	var got []string
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		text := string(v.Raw(doc))
		if v.Kind == String {
			text = string(v.Text(doc, nil))
		}
		got = append(got, string(key.Text(doc, nil))+"="+text)
	}
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
	if want := "a\n=[1, \"x\"]|b=é|c=null|d=é"; strings.Join(got, "|") != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestDecodeInBuffersOfAnySize(t *testing.T) {
	raw := []byte(`plain \"q\" \u00e9 \ud83c\udf0d \ud83c \udf0d\ud83c\\ud83c 那个 \/\b\f\n\r\t end`)
	want := "plain \"q\" é 🌍 \xED\xA0\xBC \xED\xBC\x8D\xED\xA0\xBC\\ud83c 那个 /\b\f\n\r\t end"
	if got := string(AppendDecoded(nil, raw)); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	for size := MinDecodeBuffer; size < len(raw); size++ {
		buf := make([]byte, size)
		var got []byte
		for rest := raw; len(rest) > 0; {
			n, used := Decode(buf, rest)
			if used == 0 {
				t.Fatalf("no progress with %d bytes", size)
			}
			got, rest = append(got, buf[:n]...), rest[used:]
		}
		if string(got) != want {
			t.Fatalf("with %d bytes: got %q, want %q", size, got, want)
		}
	}
}

func TestIntegers(t *testing.T) {
	f := func(raw string, want int64, ok bool) {
		t.Helper()
		if n, got := Int([]byte(raw)); got != ok || n != want {
			t.Errorf("%q: got %d, %v", raw, n, got)
		}
	}
	f("0", 0, true)
	f("-1", -1, true)
	f("9223372036854775807", 1<<63-1, true)
	f("9223372036854775808", 0, false)
	f("99999999999999999999", 0, false)
	f("10.5", 0, false)
	f("1e9", 0, false)
	f("", 0, false)
	f("-", 0, false)
	f(`"1"`, 0, false)
}

func TestReadingAllocatesNothing(t *testing.T) {
	doc := []byte(`{"a":[1,2,{"b":"\n那"}],"c\u0041":"` + strings.Repeat("x", 1000) + `"}`)
	var scratch [64]byte
	if n := testing.AllocsPerRun(100, func() {
		c := New(doc)
		c.EnterObject()
		for key, ok := c.NextField(); ok; key, ok = c.NextField() {
			if len(key.Text(doc, scratch[:0])) == 0 {
				t.Fatal("no key")
			}
			c.Skip()
		}
		if c.End() != nil {
			t.Fatal("fault")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func depth(doc []byte) int {
	deepest, level, in := 0, 0, false
	for i := 0; i < len(doc); i++ {
		switch b := doc[i]; {
		case in && b == '\\':
			i++
		case b == '"':
			in = !in
		case in:
		case b == '[' || b == '{':
			level++
			deepest = max(deepest, level)
		case b == ']' || b == '}':
			level--
		}
	}
	return deepest
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e+3,"x\u00e9\ud83c"],"b":{"c":null}}`, `[true,false]`, "\"\xED\xA0\x80\"", `"\ud83c\udf0d那"`, `{} {}`, `01`, `{"a":1,}`,
		nested(511), nested(513), "\"12345678\x1f\"", `"\\\""`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		want := json.Valid(doc) && utf8.Valid(doc) && depth(doc) <= MaxDepth
		skipped, walked := skip(doc), walk(doc)
		if (skipped == nil) != want {
			t.Fatalf("skip says %v, encoding/json and the stricter rules say %v", skipped, want)
		}
		if (skipped == nil) != (walked == nil) || skipped != nil && skipped.Error() != walked.Error() {
			t.Fatalf("skip says %v, walk says %v", skipped, walked)
		}
		var fault *Error
		if errors.As(skipped, &fault) && (fault.Offset < 0 || fault.Offset > len(doc)) {
			t.Fatalf("offset %d of %d", fault.Offset, len(doc))
		}
		var s string
		c := New(doc)
		if v := c.Skip(); want && v.Kind == String && json.Unmarshal(doc, &s) == nil {
			got := v.Text(doc, nil)
			if text := strings.ToValidUTF8(string(replaceSurrogates(got)), "?"); text != s {
				t.Fatalf("decoded %q, want %q", text, s)
			}
			if !v.Wide && len(got) != strings.Count(string(got), "")-1 {
				t.Fatalf("%q is said to be ASCII", got)
			}
		}
		// Decoding is total whatever the bytes are.
		AppendDecoded(nil, doc)
		if n := Plain(doc); n != plain(doc) {
			t.Fatalf("plain run of %d, want %d", n, plain(doc))
		}
	})
}

func plain(b []byte) int {
	for i, c := range b {
		if c == '"' || c == '\\' {
			return i
		}
	}
	return len(b)
}

// replaceSurrogates does what encoding/json does with lone ones.
func replaceSurrogates(b []byte) (out []byte) {
	for i := 0; i < len(b); i++ {
		if b[i] == 0xED && i+2 < len(b) && b[i+1] >= 0xA0 {
			out = append(out, "\uFFFD"...)
			i += 2
			continue
		}
		out = append(out, b[i])
	}
	return out
}

func FuzzQuote(f *testing.F) {
	f.Add("a\"b\\c\n\x00é\xff")
	f.Fuzz(func(t *testing.T, s string) {
		q := AppendQuoted(nil, s)
		var got string
		if err := json.Unmarshal(q, &got); err != nil || got != strings.ToValidUTF8(s, "\uFFFD") && utf8.ValidString(s) {
			t.Fatalf("%q quoted as %q: %v", s, q, err)
		}
		if err := skip(q); err != nil {
			t.Fatalf("%q quoted as %q: %v", s, q, err)
		}
	})
}

func BenchmarkSkip(b *testing.B) {
	for name, piece := range map[string]string{"plain": "some plain words of a prompt ", "escapes": `func main() {\n\tfmt.Println(\"x\")\n}\n`, "wide": "这是一个提示的文字，"} {
		b.Run(name, func(b *testing.B) {
			doc := []byte(`{"content":"` + strings.Repeat(piece, 128<<10/len(piece)) + `"}`)
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				c := New(doc)
				c.Skip()
			}
		})
	}
}
