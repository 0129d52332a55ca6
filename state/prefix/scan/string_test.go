package scan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
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

func TestEveryUnicodeEscapeDecodes(t *testing.T) {
	dst := make([]byte, 64)
	f := func(raw string) {
		t.Helper()
		var want []byte
		for rest := raw; rest != ""; {
			one, n, used := [MinDecodeBuffer]byte{rest[0]}, 1, 1
			if rest[0] == '\\' {
				n, used = decodeEscape(one[:], []byte(rest))
			}
			want, rest = append(want, one[:n]...), rest[used:]
		}
		if n, used := Decode(dst, []byte(raw)); used != len(raw) || !bytes.Equal(dst[:n], want) {
			t.Fatalf("%s: %x, want %x", raw, dst[:n], want)
		}
	}
	for r := range 1 << 16 {
		f(fmt.Sprintf(`\u%04x\u%04X\ud83c`, r, r^0x5A5A))
	}
	for bad := range 256 {
		for at := range 4 {
			digits := []byte("8fd9")
			digits[at] = byte(bad)
			f(`\u4e00\u` + string(digits) + `\u4e00`)
		}
	}
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

// squeezed does one step of what Squeeze does, the plain way: a byte or an escape.
func squeezed(dst, raw []byte, inside bool) (out, rest []byte, insideNow bool) {
	switch b := raw[0]; {
	case inside && b == '\\':
		var one [MinDecodeBuffer]byte
		n, used := decodeEscape(one[:], raw)
		if n == 1 && one[0] == '"' {
			dst = append(dst, InnerQuote)
		}
		return append(dst, one[:n]...), raw[used:], true
	case inside || b > ' ':
		return append(dst, b), raw[1:], inside != (b == '"')
	}
	return dst, raw[1:], false
}

// squeezes compares Squeeze in buffers of a size with the plain way.
func squeezes(t interface{ Fatalf(string, ...any) }, raw []byte, size int, inside bool) {
	var want, got []byte
	for rest, in := raw, inside; len(rest) > 0; {
		want, rest, in = squeezed(want, rest, in)
	}
	dst := make([]byte, size)
	for rest := raw; len(rest) > 0; {
		w, r, in := Squeeze(dst, rest, inside)
		got, rest, inside = append(got, dst[:w]...), rest[r:], in
		if r == 0 {
			got, rest, inside = squeezed(got, rest, inside)
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%q\ngot  %q\nwant %q", raw, got, want)
	}
}

func TestSqueezeInBlocksAndByteByByteIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("[")
		for range rapid.IntRange(0, 40).Draw(t, "values") {
			value := rapid.SampledFrom([]string{
				`"a b"`, `{ "key" : [ 1 , 2 ] }`, `"` + strings.Repeat(" x", 60) + `"`, "12345678", "\n\t\t  true", `{"那 个":"é é"}`, `""`, `"\n \" "`, `"\\"`, "",
			}).Draw(t, "value")
			if value == "" {
				value = `"` + literal().Draw(t, "literal") + `"`
			}
			b.WriteString(value)
			b.WriteString(rapid.SampledFrom([]string{",", " ,", ", ", ",\n" + strings.Repeat(" ", 70)}).Draw(t, "comma"))
		}
		b.WriteString("0 ]" + strings.Repeat(" ", 90))
		if !json.Valid([]byte(b.String())) {
			t.Fatalf("the test builds bad JSON: %s", b.String())
		}
		squeezes(t, []byte(b.String()), rapid.IntRange(80, 300).Draw(t, "buffer"), false)
	})
}

func TestIntegersInARow(t *testing.T) {
	f := func(doc string, room int, want []uint32, next string) {
		t.Helper()
		c := New([]byte(doc))
		c.EnterArray()
		c.NextElem()
		list := make([]byte, 4*room+3)
		var got []uint32
		for n := range c.Ints(list) {
			got = append(got, binary.LittleEndian.Uint32(list[4*n:]))
		}
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
			var ids [32]byte
			c.Ints(ids[:])
		}
		dst := make([]byte, 200)
		if w, r, _ := Squeeze(dst, doc, inside); w > r || w > len(dst) || r > len(doc) {
			t.Fatalf("squeezed %d bytes into %d", r, w)
		}
		squeezes(t, doc, 80+len(doc)%100, inside)
		var slow, fast []byte
		for raw := doc; len(raw) > 0; raw = raw[1:] {
			slow = append(slow, raw[0])
			if raw[0] == '\\' {
				var one [MinDecodeBuffer]byte
				n, used := decodeEscape(one[:], raw)
				slow, raw = append(slow[:len(slow)-1], one[:n]...), raw[used-1:]
			}
		}
		for raw := doc; len(raw) > 0; {
			n, used := Decode(dst, raw)
			fast = append(fast, dst[:n]...)
			if used == 0 || n > len(dst) {
				t.Fatalf("decoded %d bytes into %d", used, n)
			}
			raw = raw[used:]
		}
		if !bytes.Equal(slow, fast) {
			t.Fatalf("decoded %q, want %q", fast, slow)
		}
	})
}
