package sse

import (
	"fmt"
	"strings"
	"testing"
)

// heard feeds a stream of which each chunk's text stands behind "content": and returns
// what was heard of it.
func heard(t *testing.T, opts Options, stream string) (log []string, f *Framer) {
	t.Helper()
	f = &Framer{}
	opts.OnChunk = func(p []byte) (from, to int) {
		log = append(log, "chunk "+string(p))
		const key = `"content":"`
		if i := strings.Index(string(p), key); i >= 0 {
			from = i + len(key) - 1
			to = from + 2 + strings.IndexByte(string(p[from+1:]), '"')
		}
		return from, to
	}
	opts.OnText = func(inner []byte, escaped bool) { log = append(log, fmt.Sprintf("text %s %v", inner, escaped)) }
	f.Reset(opts)
	for _, p := range strings.SplitAfter(stream, "}") {
		if _, err := f.Feed([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	return log, f
}

func TestEventsThatDifferInTheirTextAloneAreNotReadAgain(t *testing.T) {
	chunk := func(text string) string {
		return `{"id":"c","choices":[{"delta":{"content":"` + text + `"},"finish_reason":null}]}`
	}
	f := func(opts Options, payload, want string) {
		t.Helper()
		log, framer := heard(t, opts, data(chunk("a"), payload))
		if len(log) != 2 || log[1] != want {
			t.Errorf("%s was heard as %q", payload, log)
		}
		if framer.Events() != 2 {
			t.Errorf("%s: %d events", payload, framer.Events())
		}
	}
	for text, want := range map[string]string{"": "text  false", " b": "text  b false", `\n\u00e9é`: `text \n\u00e9é true`, "usage": "text usage false", "finish_reason": "text finish_reason false"} {
		f(Options{}, chunk(text), want)
		f(Options{DropUsage: true}, chunk(text), want)
	}
	for _, text := range []string{`\x`, "\x01", "\xff", `b"`, `\`, `b"},"usage":{"a":1},"x":{"y":"`, `\ud8`} {
		f(Options{}, chunk(text), "chunk "+chunk(text))
	}
	for _, payload := range []string{`{}`, chunk("a") + " ", strings.Replace(chunk("a"), `"c"`, `"d"`, 1), chunk("a")[:20], strings.Replace(chunk("a"), "null", `"stop"`, 1)} {
		f(Options{}, payload, "chunk "+payload)
	}
	f(Options{Model: `"m"`, Of: `"x"`}, chunk("b"), "text b false") // there is no name to change in it
	named := strings.Replace(chunk("a"), `"id"`, `"model":"x","id"`, 1)
	if log, _ := heard(t, Options{Model: `"m"`}, data(named, named)); log[1] != "chunk "+named {
		t.Errorf("an event that has to be changed was not read: %q", log)
	}
	if log, _ := heard(t, Options{}, data(chunk("a"), `{"usage":{"a":1},"x":"`+chunk("a")[1:], chunk("b"))); log[2] != "text b false" {
		t.Errorf("behind another event: %q", log)
	}
	long := `{"x":"` + strings.Repeat("x", maxLike) + `",` + chunk("a")[1:]
	if log, _ := heard(t, Options{}, data(long, long)); log[1] != "chunk "+long {
		t.Errorf("an event of %d bytes was kept", len(long))
	}
	framer := &Framer{}
	_, framer = heard(t, Options{}, data(chunk("a")))
	framer.Reset(Options{})
	if _, err := framer.Feed([]byte(data(chunk("b")))); err != nil || framer.Events() != 1 {
		t.Errorf("another stream: %v", err) // OnText of the first one is not called
	}
}
