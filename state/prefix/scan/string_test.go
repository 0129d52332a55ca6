package scan

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// literal draws the inside of a JSON string in which crowds of escapes, long runs and wide characters follow each other.
func literal() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			piece := rapid.SampledFrom([]string{
				`\n`, `\"`, `\\`, `\\\"`, `\u0041`, `\u00e9`, `\u8fd9`, `\ud83c\udf0d`, `\/\b\f`, "x", `x\n`, `ab\"c`, "é", "那", "🌍", "퟿\uE000", "words ",
				`fmt.Println(\"x\")\n\t`, "sixteen and more bytes of text ",
			}).Draw(t, "piece")
			b.WriteString(strings.Repeat(piece, rapid.IntRange(1, 70).Draw(t, "times")))
		}
		return b.String()
	})
}

func TestStringsDecodeAsEncodingJSONDecodesThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner := literal().Draw(t, "literal")
		doc := []byte(`[ "` + inner + `" ,1]`)
		var want []any
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatalf("the test builds bad JSON: %v", err)
		}
		strict, again := New(doc), Reread(doc)
		for _, c := range []*Cursor{&strict, &again} {
			c.EnterArray()
			c.NextElem()
			v := c.Skip()
			if v.Kind != String || string(v.Inner(doc)) != inner || v.Escaped != strings.Contains(inner, `\`) {
				t.Fatalf("read %+v", v)
			}
			decoded := want[0].(string)
			if wide := len(decoded) != utf8.RuneCountInString(decoded); wide && !v.Wide {
				t.Fatal("a string with wide characters counts as ASCII")
			}
			if !c.NextElem() || c.Skip().Kind != Number || c.NextElem() || c.End() != nil {
				t.Fatal("the string's end was missed")
			}
		}
		buf := make([]byte, rapid.IntRange(MinDecodeBuffer, 400).Draw(t, "buffer"))
		var got []byte
		for raw := []byte(inner); len(raw) > 0; {
			n, used := Decode(buf, raw)
			if used == 0 {
				t.Fatalf("no progress with a buffer of %d at %q", len(buf), raw)
			}
			got = append(got, buf[:n]...)
			raw = raw[used:]
		}
		if string(got) != want[0] || string(AppendDecoded(nil, []byte(inner))) != want[0] {
			t.Fatalf("decoded %q, want %q", got, want[0])
		}
	})
}

// faultOf is where a string is wrong, byte by byte; -1 if it is right.
func faultOf(inner string) (at int, p Problem) {
	for i := 0; i < len(inner); {
		switch b := inner[i]; {
		case b < 0x20:
			return i, BadControl
		case b == '\\':
			n := 2
			if i+1 < len(inner) && inner[i+1] == 'u' {
				n = 6
			}
			if i+n > len(inner) || !json.Valid([]byte(`"`+inner[i:i+n]+`"`)) {
				return i, BadEscape
			}
			i += n
		case b < 0x80:
			i++
		default:
			r, n := utf8.DecodeRuneInString(inner[i:])
			if r == utf8.RuneError && n == 1 {
				return i, BadUTF8
			}
			i += n
		}
	}
	return -1, 0
}

func TestFaultsInStringsAreFoundWhereTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bad := rapid.SampledFrom([]string{"\x00", "\x1f", `\x`, `\u12g4`, `\ `, "\xC3(", "\xED\xA0\x80", "\xE0\x80\x80", "\xF5", "\x80"}).Draw(t, "fault")
		inner := literal().Draw(t, "before") + bad + literal().Draw(t, "after")
		doc := []byte(`"` + inner + `"` + strings.Repeat(" ", 99))
		c := New(doc)
		c.Skip()
		at, problem := faultOf(inner)
		if want := (&Error{Problem: problem, Offset: at + 1}); c.Err() == nil || c.Err().Error() != want.Error() {
			t.Fatalf("got %v, want %v", c.Err(), want)
		}
	})
}

func TestFaultsAmongThreeByteCharacters(t *testing.T) {
	for before := range 14 {
		for _, bad := range []string{"\xED\xA0\x80", "\xED\xBF\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xE9\x82那", "\xE9那", "\xE9\x82\xC3\xA9", "\xF0\x82\xA3"} {
			c := New([]byte(`"` + strings.Repeat("那", before) + bad + strings.Repeat("那", 14) + `"`))
			c.Skip()
			if want := (&Error{Problem: BadUTF8, Offset: 1 + 3*before}); c.Err() == nil || c.Err().Error() != want.Error() {
				t.Errorf("%x after %d characters: got %v, want %v", bad, before, c.Err(), want)
			}
		}
		for _, good := range []string{"\xED\x9F\xBF", "\xE0\xA0\x80", "\xEE\x80\x80", "\xEF\xBF\xBF", "\xEC\x80\x80", "\xE1\x80\x80"} {
			c := New([]byte(`"` + strings.Repeat("那", before) + good + strings.Repeat("那", 14) + `"`))
			if v := c.Skip(); v.Kind != String || !v.Wide || c.End() != nil {
				t.Errorf("%x after %d characters: %v", good, before, c.Err())
			}
		}
	}
}

func TestSqueezeIsCompactWithoutEscapes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("[")
		for range rapid.IntRange(0, 40).Draw(t, "values") {
			b.WriteString(rapid.SampledFrom([]string{
				`"a b"`, `{ "key" : [ 1 , 2 ] }`, `"` + strings.Repeat(" x", 60) + `"`, "12345678", "\n\t\t  true", `{"那 个":"é é"}`, `""`, `"\n \" "`, `"\\"`,
			}).Draw(t, "value"))
			b.WriteString(rapid.SampledFrom([]string{",", " ,", ", ", ",\n" + strings.Repeat(" ", 70)}).Draw(t, "comma"))
		}
		b.WriteString("0 ]" + strings.Repeat(" ", 90))
		raw := []byte(b.String())
		var want bytes.Buffer
		if err := json.Compact(&want, raw); err != nil {
			t.Fatalf("the test builds bad JSON: %v", err)
		}
		var got []byte
		dst := make([]byte, rapid.IntRange(80, 300).Draw(t, "buffer"))
		inside := false
		for len(raw) > 0 {
			w, r, in := Squeeze(dst, raw, inside)
			got, raw, inside = append(got, dst[:w]...), raw[r:], in
			if r > 0 {
				continue
			}
			// One byte, or one escape, the plain way.
			n := 1
			if raw[0] == '\\' {
				n = 2
			}
			if inside || raw[0] > ' ' {
				got = append(got, raw[:n]...)
			}
			if raw[0] == '"' {
				inside = !inside
			}
			raw = raw[n:]
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("got %s\nwant %s", got, want.Bytes())
		}
	})
}

func TestIntegersInARow(t *testing.T) {
	f := func(doc string, room int, want []uint32, next string) {
		t.Helper()
		c := New([]byte(doc))
		c.EnterArray()
		c.NextElem()
		got := make([]uint32, room)
		got = got[:c.Ints(got)]
		if !slices.Equal(got, want) || doc[c.Pos():] != next || c.Err() != nil {
			t.Errorf("%s: %v, then %q, %v", doc, got, doc[c.Pos():], c.Err())
		}
	}
	f(`[1,2,3]`, 9, []uint32{1, 2, 3}, `]`)
	f(`[ 0 , 10 ,999999999 ] `, 9, []uint32{0, 10, 999999999}, ` ] `)
	f(`[1,2,3]`, 2, []uint32{1, 2}, `,3]`)
	f(`[1,1000000000]`, 9, []uint32{1}, `,1000000000]`)
	f(`[1,-1]`, 9, []uint32{1}, `,-1]`)
	f(`[1,1.5]`, 9, []uint32{1}, `,1.5]`)
	f(`[1,1e3]`, 9, []uint32{1}, `,1e3]`)
	f(`[1,01]`, 9, []uint32{1}, `,01]`)
	f(`[1,"x"]`, 9, []uint32{1}, `,"x"]`)
	f(`[1,]`, 9, []uint32{1}, `,]`)
	f(`[1,2`, 9, []uint32{1}, `,2`)
	f(`[1 2]`, 9, nil, `1 2]`)
	f(`["x"]`, 9, nil, `"x"]`)
}

func FuzzReread(f *testing.F) {
	for _, s := range []string{`{"a":"x\"y","b":[1,22,"\\"]}`, `"\`, `"\"`, `["a",`, strings.Repeat(`\"`, 50), `"` + strings.Repeat(`\n`, 70) + `" `} {
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, doc []byte, inside bool) {
		strict, again := New(doc), Reread(doc)
		want, got := strict.Skip(), again.Skip()
		if strict.End() == nil && (again.End() != nil || got.Start != want.Start || got.End != want.End || got.Kind != want.Kind || got.Escaped != want.Escaped) {
			t.Fatalf("read %+v, then %+v, %v", want, got, again.Err())
		}
		c := Reread(doc)
		if c.EnterArray() && c.NextElem() {
			var ids [8]uint32
			c.Ints(ids[:])
		}
		dst := make([]byte, 200)
		if w, r, _ := Squeeze(dst, doc, inside); w > r || w > len(dst) || r > len(doc) {
			t.Fatalf("squeezed %d bytes into %d", r, w)
		}
		for raw := doc; len(raw) > 0; {
			n, used := Decode(dst, raw)
			if used == 0 || n > len(dst) {
				t.Fatalf("decoded %d bytes into %d", used, n)
			}
			raw = raw[used:]
		}
	})
}
