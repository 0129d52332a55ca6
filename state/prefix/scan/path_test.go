package scan

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPathsOfBytes(t *testing.T) {
	f := func(doc, path string, kind Kind) {
		t.Helper()
		at := strings.IndexByte(doc, '^')
		raw := doc[:at] + doc[at+1:]
		if !json.Valid([]byte(raw)) {
			t.Fatalf("%s is no JSON", raw)
		}
		got, k, start := PathAt([]byte(raw), at)
		if got != path || k != kind {
			t.Errorf("%s: %q, kind %d, want %q, %d", doc, got, k, path, kind)
		}
		c := New([]byte(raw)[start:])
		if v := c.Skip(); v.Kind != kind {
			t.Errorf("%s: no such value at %d", doc, start)
		}
	}
	f(`^"x"`, "", String)
	f(`"x^"`, "", String)
	f(` ^ 1`, "", Number)
	f(`^{"a":1}`, "", Object)
	f(`{"a^":1}`, "", Object)
	f(`{"a":^1}`, ".a", Number)
	f(`{"a":1^}`, "", Object)
	f(`{"a":^ 1}`, "", Object)
	f(`{"a":1 ^ ,"b":2}`, "", Object)
	f(`[{"a":[1,[],{"b":"^x"}]}]`, "[0].a[2].b", String)
	f(`[{"a":[1,^[],{"b":"x"}]}]`, "[0].a[1]", Array)
	f(`[{"a":[1,[^],{"b":"x"}]}]`, "[0].a[1]", Array)
	f(`[{"a":[1,[]^,{"b":"x"}]}]`, "[0].a", Array)
	f(`[{"a":[1,[],{"b":"x"}]^}]`, "[0]", Object)
	f(`[{"a":[1,[],{"b":"x"}]}^]`, "", Array)
	f(`{"a b":{"":{"\u00e9":^null}}}`, `["a b"][""]["é"]`, Null)
	f(`{"a\n\"":true, "x1":^true}`, `.x1`, True)
	f(`{"`+strings.Repeat("k", 99)+`":^1}`, `["`+strings.Repeat("k", maxPathKey)+`"]`, Number)
	f(`[]^ `, "", Array)
}

func TestPathsInWhatIsNoJSON(t *testing.T) {
	f := func(doc string, at int, path string) {
		t.Helper()
		if got, _, _ := PathAt([]byte(doc), at); got != path {
			t.Errorf("%s: %q, want %q", doc, got, path)
		}
	}
	f(``, 0, "")
	f(`x`, 9, "")
	f(`[`, 1, "")
	f(`[1,x]`, 3, "[1]")
	f(`{"a":[`, 99, ".a")
	f(`{"a"`, 4, "")
	f(`{"a":1 "b"`, 9, "")
	f(`1`, -1, "")
	f(strings.Repeat("[", MaxDepth+5), MaxDepth+2, strings.Repeat("[0]", MaxDepth))
}

func FuzzPathAt(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"x"}]}`, `[[],{}]`, `[1`, `{"a"`, `"`, ` `} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, doc []byte, offset int) {
		path, kind, start := PathAt(doc, offset)
		if len(path) > 10*len(doc)+10 || start > len(doc) {
			t.Fatalf("%q, %d", path, start)
		}
		if kind == None || !json.Valid(doc) || !utf8.Valid(doc) { // what begins right may yet be refused
			return
		}
		c := New(doc[start:])
		if v := c.Skip(); v.Kind != kind {
			t.Fatalf("a value of kind %d at %d, not %d", v.Kind, start, kind)
		}
		if again, k, _ := PathAt(doc, start); again != path || k != kind {
			t.Fatalf("%q of offset %d starts at %d, which is %q", path, offset, start, again)
		}
	})
}
