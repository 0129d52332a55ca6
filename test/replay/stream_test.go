package replay

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEventsWithAnAnswer(t *testing.T) {
	f := func(data string, want bool) {
		t.Helper()
		if got := hasAnswer([]byte(data)); got != want {
			t.Errorf("%s: %v", data, got)
		}
	}
	f(`{"choices":[{"delta":{"content":"x"}}]}`, true)
	f(`{"choices": [{"delta": {"content": "x"}}]}`, true)
	f(`{"choices":[{"text":" a","index":0}]}`, true)
	f(`{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}`, true)
	f(`{"choices":[{"delta":{"content":"","tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}`, true)
	f(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, false)
	f(`{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[]}}]}`, false)
	f(`{"choices":[{"delta":{},"finish_reason":"stop"}]}`, false)
	f(`{"choices":[],"usage":{"prompt_tokens":1}}`, false)
	f(`{"note":"content","x":"\"content\":\"y\""}`, false)
	f(`{"content"`, false)
	f(`{"content":`, false)
}

func TestUsageOfTheLastReportCounts(t *testing.T) {
	var s stream
	in := `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}

data: {"choices":[],"usage": {"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}

data: {"choices":[],"usage":null}

data: [DONE]
`
	if err := s.read(bufio.NewReader(strings.NewReader(in)), true); err != nil {
		t.Fatal(err)
	}
	if want := (usage{known: true, prompt: 7, output: 2, cachedKnown: true}); s.usage != want {
		t.Errorf("usage is %+v, want %+v", s.usage, want)
	}
	if !s.done || s.pieces != 1 || string(s.text) != "a" {
		t.Errorf("stream is %+v", s)
	}
}

func TestLongEventsAreReadToABound(t *testing.T) {
	read := func(size int) (stream, error) {
		var s stream
		in := `data: {"choices":[{"delta":{"content":"` + strings.Repeat("x", size) + `"}}]}` + "\n\ndata: [DONE]\n\n"
		err := s.read(bufio.NewReaderSize(iotest.HalfReader(strings.NewReader(in)), 64), true)
		return s, err
	}
	if s, err := read(100_000); err != nil || len(s.text) != 100_000 || !s.done {
		t.Errorf("%d bytes of text, %v", len(s.text), err)
	}
	if _, err := read(maxEventBytes + 1000); !errors.Is(err, errLongEvent) {
		t.Errorf("error is %v", err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data:{\"usage\":{\"prompt_tokens\":1e300,\"completion_tokens\":-4,\"prompt_tokens_details\":{\"cached_tokens\":\"x\"}}}\r\n"))
	f.Add([]byte(": c\n\ndata: {\"error\":{\"message\":[]}}\ndata: {\"error\":\"\ndata:"))
	f.Fuzz(func(t *testing.T, content []byte) {
		var whole, bytewise stream
		err := whole.read(bufio.NewReaderSize(bytes.NewReader(content), 16), true)
		bytewiseErr := bytewise.read(bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(content)), 4096), true)
		if err != nil || bytewiseErr != nil {
			t.Fatalf("errors are %v and %v", err, bytewiseErr)
		}
		if whole.usage.prompt < 0 || whole.usage.output < 0 || whole.usage.cached < 0 {
			t.Fatalf("usage is %+v", whole.usage)
		}
		if whole.pieces > 0 && (whole.first.IsZero() || whole.last.Before(whole.first)) {
			t.Fatal("times are out of order")
		}
		if whole.pieces != bytewise.pieces || whole.usage != bytewise.usage || whole.done != bytewise.done ||
			whole.failure != bytewise.failure || whole.failed != bytewise.failed || !bytes.Equal(whole.text, bytewise.text) {
			t.Fatalf("reading in other portions gives another stream: %+v and %+v", whole, bytewise)
		}
	})
}

func BenchmarkEvent(b *testing.B) {
	data := []byte(`{"id":"chatcmpl-8d2f0c7e","object":"chat.completion.chunk","created":1700000000,"model":"llama-3.1-8b","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}`)
	b.ReportAllocs()
	var s stream
	for range b.N {
		s.event(data, false)
	}
}
