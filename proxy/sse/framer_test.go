package sse

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// story is all that a Framer tells of a stream.
type story struct {
	Out      string
	Payloads []string
	Events   int
	Comments int
	Done     bool
	First    bool
	Error    string
	Start    string
	Usage    string
	Timings  string
	Finish   string
	Between  bool
}

// tell feeds the pieces to f and ends the stream.
func tell(t testing.TB, f *Framer, opts Options, pieces ...string) story {
	t.Helper()
	var s story
	opts.OnData = func(p []byte) { s.Payloads = append(s.Payloads, string(p)) }
	f.Reset(opts)
	for _, p := range pieces {
		chunk := []byte(p)
		out, err := f.Feed(chunk)
		if err != nil {
			t.Fatalf("feed: %v", err)
		}
		if !opts.change() && string(out) != p {
			t.Fatalf("watching only, %q came back as %q", p, out)
		}
		s.Out += string(out)
		clear(chunk) // the framer must have copied what it needs
	}
	s.Between = f.Between()
	s.Out += string(f.End())
	s.Events, s.Comments, s.Done, s.First = f.Events(), f.Comments(), f.Done(), f.FirstIsError()
	s.Start = string(f.StartUsage())
	s.Error, s.Usage, s.Timings, s.Finish = string(f.Error()), string(f.Usage()), string(f.Timings()), f.Finish()
	return s
}

const (
	role    = `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`
	text    = `{"id":"c","choices":[{"index":0,"delta":{"content":"say \"usage\": {\"a\":1}, \"finish_reason\": \"x\""},"finish_reason":null}]}`
	stop    = `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":null}]}`
	usage   = `{"id":"c","choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}`
	usage2  = `{"id":"c","choices":[],"usage":{"prompt_tokens":9,"total_tokens":13,"completion_tokens":4}}`
	usageOf = `{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}`
)

func data(payloads ...string) string {
	var b strings.Builder
	for _, p := range payloads {
		b.WriteString("data: " + p + "\n\n")
	}
	return b.String()
}

func TestStreamsAreWatched(t *testing.T) {
	tests := map[string]struct {
		in   string
		drop bool
		want story
	}{
		"a whole stream with usage": {
			in:   data(role, text, stop, usage, "[DONE]"),
			want: story{Events: 4, Done: true, Usage: usageOf, Finish: "stop", Payloads: []string{role, text, stop, usage}, Between: true},
		},
		"usage taken out": {
			in: data(role, text, stop, usage, "[DONE]"), drop: true,
			want: story{
				Out: data(role, text, stop, "[DONE]"), Events: 4, Done: true, Usage: usageOf, Finish: "stop",
				Payloads: []string{role, text, stop, usage}, Between: true,
			},
		},
		"the final usage twice, the last one counts": {
			in: data(role, usage, usage2), drop: true,
			want: story{Out: data(role), Events: 3, Usage: usage2[len(`{"id":"c","choices":[],"usage":`) : len(usage2)-1], Payloads: []string{role, usage, usage2}, Between: true},
		},
		"usage beside choices stays": {
			in: data(`{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}`), drop: true,
			want: story{
				Out: data(`{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}`), Events: 1, Usage: `{"completion_tokens":1}`,
				Payloads: []string{`{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}`}, Between: true,
			},
		},
		"usage without a list of choices stays": {
			in: data(`{"usage":{"completion_tokens":1}}`), drop: true,
			want: story{
				Out: data(`{"usage":{"completion_tokens":1}}`), Events: 1, Usage: `{"completion_tokens":1}`,
				Payloads: []string{`{"usage":{"completion_tokens":1}}`}, Between: true,
			},
		},
		"usage null in every chunk, last member": {
			in: data(`{"choices":[{"delta":{}}] , "usage" : null}`), drop: true,
			want: story{Out: data(`{"choices":[{"delta":{}}]}`), Events: 1, Payloads: []string{`{"choices":[{"delta":{}}] , "usage" : null}`}, Between: true},
		},
		"usage null in every chunk, first member": {
			in: data(`{ "usage":null, "choices":[{"delta":{}}]}`), drop: true,
			want: story{Out: data(`{ "choices":[{"delta":{}}]}`), Events: 1, Payloads: []string{`{ "usage":null, "choices":[{"delta":{}}]}`}, Between: true},
		},
		"usage null in every chunk, in the middle": {
			in: data(`{"id":1,"usage":null,"choices":[{"delta":{}}]}`), drop: true,
			want: story{Out: data(`{"id":1,"choices":[{"delta":{}}]}`), Events: 1, Payloads: []string{`{"id":1,"usage":null,"choices":[{"delta":{}}]}`}, Between: true},
		},
		"usage null deeper down stays": {
			in: data(`{"choices":[{"delta":{},"usage":null}]}`), drop: true,
			want: story{Out: data(`{"choices":[{"delta":{},"usage":null}]}`), Events: 1, Payloads: []string{`{"choices":[{"delta":{},"usage":null}]}`}, Between: true},
		},
		"llama.cpp's last chunk": {
			in: data(`{"choices":[],"usage":{"completion_tokens":1},"timings":{"cache_n":1,"prompt_n":2,"predicted_n":3}}`), drop: true,
			want: story{
				Events: 1, Usage: `{"completion_tokens":1}`, Timings: `{"cache_n":1,"prompt_n":2,"predicted_n":3}`,
				Payloads: []string{`{"choices":[],"usage":{"completion_tokens":1},"timings":{"cache_n":1,"prompt_n":2,"predicted_n":3}}`}, Between: true,
			},
		},
		"an error first, then done": {
			in:   "data: {\"error\": {\"message\": \"x\", \"code\": 500}}\n\ndata: [DONE]\n\n",
			want: story{Events: 1, Done: true, First: true, Error: `{"error": {"message": "x", "code": 500}}`, Payloads: []string{`{"error": {"message": "x", "code": 500}}`}, Between: true},
		},
		"an error in the middle": {
			in:   data(role, `{"error":{"code":400}}`),
			want: story{Events: 2, Error: `{"error":{"code":400}}`, Payloads: []string{role, `{"error":{"code":400}}`}, Between: true},
		},
		"an error by event name, no JSON": {
			in:   "event: error\ndata: it broke\n\n",
			want: story{Events: 1, First: true, Error: "it broke", Payloads: []string{"it broke"}, Between: true},
		},
		"the older error object": {
			in:   data(`{"object":"error","message":"m","code":400}`),
			want: story{Events: 1, First: true, Error: `{"object":"error","message":"m","code":400}`, Payloads: []string{`{"object":"error","message":"m","code":400}`}, Between: true},
		},
		"an error that is null is none": {
			in:   data(`{"error":null,"choices":[{}]}`),
			want: story{Events: 1, Payloads: []string{`{"error":null,"choices":[{}]}`}, Between: true},
		},
		"no blank after the colon": {
			in:   "data:{\"index\":1}\n\n",
			want: story{Events: 1, Payloads: []string{`{"index":1}`}, Between: true},
		},
		"comments and pings": {
			in:   ": ping\n\n:\n\n" + data(role) + "event: ping\n\n",
			want: story{Events: 1, Comments: 3, Payloads: []string{role}, Between: true},
		},
		"CRLF": {
			in: "data: a\r\n\r\ndata: [DONE]\r\n\r\n", drop: true,
			want: story{Out: "data: a\r\n\r\ndata: [DONE]\r\n\r\n", Events: 1, Done: true, Payloads: []string{"a"}, Between: true},
		},
		"CRLF with usage taken out": {
			in: "data: a\r\n\r\ndata: " + usage + "\r\n\r\ndata: [DONE]\r\n\r\n", drop: true,
			want: story{Out: "data: a\r\n\r\ndata: [DONE]\r\n\r\n", Events: 2, Done: true, Usage: usageOf, Payloads: []string{"a", usage}, Between: true},
		},
		"CR alone": {
			in:   "data: a\rdata: b\r\rdata: c\r\r",
			want: story{Events: 2, Payloads: []string{"a\nb", "c"}, Between: true},
		},
		"several data lines": {
			in:   "data: {\"choices\":\ndata:  [],\ndata:\ndata: \"usage\":{\"completion_tokens\":2}}\n\n",
			drop: true,
			want: story{Events: 1, Usage: `{"completion_tokens":2}`, Payloads: []string{"{\"choices\":\n [],\n\n\"usage\":{\"completion_tokens\":2}}"}, Between: true},
		},
		"byte order mark": {
			in:   "\uFEFFdata: a\n\n\uFEFFdata: b\n\n",
			want: story{Events: 1, Comments: 1, Payloads: []string{"a"}, Between: true},
		},
		"byte order mark alone on the first line": {
			in:   "\uFEFF\n\ndata: b\n\n",
			want: story{Events: 1, Comments: 1, Payloads: []string{"b"}, Between: true},
		},
		"data without a colon and without data": {
			in:   "data\n\ndata:\n\n",
			want: story{Comments: 2, Between: true},
		},
		"done without the blank line": {
			in: data(role) + "data: [DONE]\n", drop: true,
			want: story{Out: data(role) + "data: [DONE]\n", Events: 1, Done: true, Payloads: []string{role}, Between: true},
		},
		"cut short in the middle of an event": {
			in:   data(role) + "data: {\"cho",
			want: story{Events: 2, Payloads: []string{role, `{"cho`}},
		},
		"Anthropic's events": {
			in: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9}}}\n\nevent: ping\ndata: {}\n\n" +
				"event: message_delta\ndata: {\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
			drop: true,
			want: story{
				Out: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9}}}\n\nevent: ping\ndata: {}\n\n" +
					"event: message_delta\ndata: {\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
				Events: 4, Done: true, Start: `{"input_tokens":9}`, Usage: `{"output_tokens":15}`, Between: true,
				Payloads: []string{`{"type":"message_start","message":{"usage":{"input_tokens":9}}}`, `{}`, `{"delta":{},"usage":{"output_tokens":15}}`, `{"type":"message_stop"}`},
			},
		},
		"a response's events": {
			in: "event: response.created\ndata: {\"response\":{\"usage\":null}}\n\nevent: response.completed\ndata: {\"response\":{\"error\":null,\"usage\":{\"input_tokens\":1}}}\n\n",
			want: story{
				Events: 2, Done: true, Usage: `{"input_tokens":1}`, Between: true,
				Payloads: []string{`{"response":{"usage":null}}`, `{"response":{"error":null,"usage":{"input_tokens":1}}}`},
			},
		},
		"nothing": {want: story{Between: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if !tc.drop {
				tc.want.Out = tc.in
			}
			var f Framer
			if got := tell(t, &f, Options{DropUsage: tc.drop}, tc.in); !reflect.DeepEqual(got, tc.want) {
				t.Fatalf("in one piece:\n got %+v\nwant %+v", got, tc.want)
			}
			if got := tell(t, &f, Options{DropUsage: tc.drop}, strings.Split(tc.in, "")...); !reflect.DeepEqual(got, tc.want) {
				t.Fatalf("rune by rune:\n got %+v\nwant %+v", got, tc.want)
			}
			for cut := range len(tc.in) {
				if got := tell(t, &f, Options{DropUsage: tc.drop}, tc.in[:cut], tc.in[cut:]); !reflect.DeepEqual(got, tc.want) {
					t.Fatalf("cut at %d:\n got %+v\nwant %+v", cut, got, tc.want)
				}
			}
		})
	}
}

func TestEventsPassAsSoonAsTheyAreComplete(t *testing.T) {
	var f Framer
	f.Reset(Options{DropUsage: true})
	feed := func(in, want string) {
		t.Helper()
		out, err := f.Feed([]byte(in))
		if err != nil || string(out) != want {
			t.Fatalf("feed %q: got %q, %v, want %q", in, out, err, want)
		}
	}
	feed("data: a\n", "")
	feed("\ndata: b\n\nda", "data: a\n\ndata: b\n\n")
	feed("ta: c\r\n\r", "data: c\r\n\r")
	feed("\n", "\n")
	feed("data: "+usage+"\r\n\r", "")
	feed("\ndata: d\r\n\r\n", "data: d\r\n\r\n")
}

func TestLongEventsPassWholeUpToTheBound(t *testing.T) {
	for _, size := range []int{65537, 1<<20 + 1, 4 << 20} {
		in := data(`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"`+strings.Repeat("a", size)+`"}}]}}]}`, usage, "[DONE]")
		var f Framer
		f.Reset(Options{DropUsage: true})
		var out []byte
		for rest := in; rest != ""; {
			n := min(len(rest), 32<<10)
			part, err := f.Feed([]byte(rest[:n]))
			if err != nil {
				t.Fatal(err)
			}
			out, rest = append(out, part...), rest[n:]
		}
		if want := strings.Replace(in, data(usage), "", 1); string(out) != want {
			t.Fatalf("%d bytes: %d came out, want %d", size, len(out), len(want))
		}
		if string(f.Usage()) != usageOf || !f.Done() {
			t.Fatalf("usage %q, done %v", f.Usage(), f.Done())
		}
		if _, err := f.Feed([]byte(":\n\n")); err != nil || cap(f.held) > keepBuffer || cap(f.out) > keepBuffer {
			t.Fatalf("%d and %d bytes are held after a long event (%v)", cap(f.held), cap(f.out), err)
		}
	}
}

func TestAnEventBeyondTheBoundIsAnError(t *testing.T) {
	for _, drop := range []bool{false, true} {
		f := Framer{limit: 100}
		in := "data: " + strings.Repeat("a", 94) + "\n\n"
		for _, cut := range []int{1, 50, 100, len(in)} {
			f.Reset(Options{DropUsage: drop})
			_, err := f.Feed([]byte(in[:cut]))
			if err == nil {
				_, err = f.Feed([]byte(in[cut:]))
			}
			if !errors.Is(err, ErrTooLong) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		f.Reset(Options{DropUsage: drop})
		if _, err := f.Feed([]byte(in[2:])); err != nil {
			t.Fatalf("at the bound: %v", err)
		}
	}
}

func TestWatchingAllocatesNothing(t *testing.T) {
	var f Framer
	chunk := []byte(data(role, text, text, usage))
	half := len(chunk) / 2
	for _, drop := range []bool{false, true} {
		f.Reset(Options{DropUsage: drop})
		if n := testing.AllocsPerRun(100, func() {
			for _, c := range [][]byte{chunk, chunk[:half], chunk[half:]} {
				if _, err := f.Feed(c); err != nil {
					t.Fatal(err)
				}
			}
		}); n != 0 {
			t.Fatalf("drop %v: %v allocations", drop, n)
		}
	}
}

func FuzzFeed(f *testing.F) {
	for _, in := range []string{
		data(role, text, stop, usage, "[DONE]"), "\uFEFFdata: a\r\n\r\n:\r\rdata: b\n\r\ndata:c\rdata", "data: {\"usage\":null,\"choices\":[]}\n\n",
		"\r\n\r\n\n\r\r\ndata: \xff\xfe\n\n", "event: error\ndata: {}\ndata\n\n", "data: {\"choices\":[],\"usage\":{}}\r\n\r\n\r\ndata: x",
	} {
		f.Add([]byte(in), uint64(3), true)
		f.Add([]byte(in), uint64(7), false)
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, drop bool) {
		var framer Framer
		opts := Options{DropUsage: drop}
		if seed%3 == 0 {
			opts.Model = `"fast"`
		}
		whole := tell(t, &framer, opts, string(in))
		var pieces []string
		for rest := string(in); rest != ""; {
			seed = seed*6364136223846793005 + 1442695040888963407
			n := min(len(rest), int(seed>>60))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if cut := tell(t, &framer, opts, pieces...); !reflect.DeepEqual(whole, cut) {
			t.Fatalf("cut: %+v\nwhole: %+v", cut, whole)
		}
		if want := plain(in); fmt.Sprint(want) != fmt.Sprint(whole.Payloads) {
			t.Fatalf("payloads %q, want %q", whole.Payloads, want)
		}
		if !opts.change() && whole.Out != string(in) {
			t.Fatalf("watching changed the bytes")
		}
	})
}

// plain reads a stream as the standard says, a last event without blank line included.
func plain(in []byte) (payloads []string) {
	s := strings.TrimPrefix(string(in), "\uFEFF")
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	var lines []string
	has := false
	flush := func() {
		if p := strings.Join(lines, "\n"); has && p != "" && string(bytes.TrimSpace([]byte(p))) != "[DONE]" {
			payloads = append(payloads, p)
		}
		lines, has = nil, false
	}
	for _, l := range strings.Split(s, "\n") {
		if l == "" {
			flush()
			continue
		}
		name, value, _ := strings.Cut(l, ":")
		if name == "data" {
			lines, has = append(lines, strings.TrimPrefix(value, " ")), true
		}
	}
	flush()
	return payloads
}

func BenchmarkFeed(b *testing.B) {
	chunk := []byte(data(text))
	for _, drop := range []bool{false, true} {
		b.Run(fmt.Sprintf("drop=%v", drop), func(b *testing.B) {
			var f Framer
			f.Reset(Options{DropUsage: drop})
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = f.Feed(chunk)
			}
		})
	}
}
