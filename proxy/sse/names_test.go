package sse

import (
	"encoding/json"
	"strings"
	"testing"
)

// typedStream is a stream of Responses, and the same with names and ids as a client is to
// see them.
func typedStream() (in, out string, opts Options) {
	text := `{"type":"response.output_text.delta","sequence_number":2,"delta":"\"response\":{\"id\":\"r\",\"model\":\"up\"}, \"response_id\":\"r\""}`
	item := `{"type":"response.output_item.done","response_id":"r","item":{"id":"r","response":{"id":"r"},"model":"up","previous_response_id":"p"}}`
	object := func(id, model, previous string) string {
		return `{"id":"` + id + `","object":"response","model":"` + model + `","metadata":{"id":"r","model":"up","response_id":"r"},"output":[{"id":"r"}],"previous_response_id":` + previous + `,"usage":null}`
	}
	stream := func(id, model, previous, item string) string {
		return "event: response.created\ndata: {\"type\":\"response.created\",\"response\":" + object(id, model, "null") + "}\n\n" +
			": ping\n\n" +
			"event: response.in_progress\r\ndata: {\"id\":\"r\",\"response\" : " + object(id, model, previous) + ",\"type\":\"response.in_progress\"}\r\n\r\n" +
			"event: response.output_text.delta\ndata: " + text + "\n\n" + "data: " + item + "\n\n" +
			"event: response.completed\ndata:{\"type\":\"response.completed\",\"message\":{\"id\":\"r\"},\"response\":" + object(id, model, previous) + "}\n\n"
	}
	in = stream("r", "up", `"p"`, item)
	out = stream("r_T", "m", `"mine"`, strings.Replace(item, `"response_id":"r"`, `"response_id":"r_T"`, 1))
	return in, out, Options{Typed: true, Model: `"m"`, Tag: "_T", Previous: `"mine"`}
}

func TestNamesAndIDsOfResponses(t *testing.T) {
	in, out, opts := typedStream()
	var f Framer
	check := func(name string, pieces ...string) {
		t.Helper()
		s := tell(t, &f, opts, pieces...)
		if s.Out != out {
			t.Fatalf("%s:\n got %s\nwant %s", name, s.Out, out)
		}
		if f.Events() != 5 || f.Leading() != 2 || !f.Done() || s.First || s.Error != "" {
			t.Fatalf("%s: %d events, %d leading, %+v", name, f.Events(), f.Leading(), s)
		}
	}
	check("whole", in)
	for cut := range len(in) {
		check("cut", in[:cut], in[cut:])
	}
	var bytes []string
	for i := range len(in) {
		bytes = append(bytes, in[i:i+1])
	}
	check("byte by byte", bytes...)

	// Without another name for it the previous id gets the tag, as what it names has.
	opts.Previous = ""
	if s := tell(t, &f, opts, in); s.Out != strings.ReplaceAll(out, `"mine"`, `"p_T"`) {
		t.Errorf("got %s", s.Out)
	}
	if s := tell(t, &f, Options{Typed: true}, in); s.Out != in {
		t.Errorf("got %s", s.Out)
	}
	if s := tell(t, &f, Options{Typed: true, Tag: "_T"}, "data: {\"response\":{\"id\":\"\",\"previous_response_id\":7}}\n\n"); strings.Contains(s.Out, "_T") {
		t.Errorf("got %s", s.Out)
	}
}

func TestTypesWithoutNames(t *testing.T) {
	var f Framer
	in := data(`{"type":"response.created","response":{}}`, `{"response":{},"type":"response.queued"}`, `{"type":"error","code":"server_error","message":"m"}`)
	s := tell(t, &f, Options{Typed: true}, in)
	if f.Leading() != 2 || !s.First || !strings.Contains(s.Error, "server_error") || s.Done {
		t.Errorf("%d leading, %+v", f.Leading(), s)
	}
	s = tell(t, &f, Options{Typed: true}, data(`{"type":"response.output_text.delta"}`, `{"type":"response.created"}`, `{"type":"response.incomplete","response":{"usage":{"input_tokens":1}}}`))
	if f.Leading() != 0 || !s.Done || s.Usage != `{"input_tokens":1}` {
		t.Errorf("%d leading, %+v", f.Leading(), s)
	}
	// Of another API a type is nothing.
	if s := tell(t, &f, Options{}, in); f.Leading() != 0 || s.First || s.Error != "" {
		t.Errorf("%d leading, %+v", f.Leading(), s)
	}
}

// What is rewritten stays JSON, and of another value nothing is lost, wherever it is cut.
func FuzzNames(f *testing.F) {
	in, _, _ := typedStream()
	f.Add(in, 7)
	f.Add(data(`{"response":{"id":"r","id":"s"},"response_id":"r","response":{"id":"t"}}`), 20)
	f.Fuzz(func(t *testing.T, in string, cut int) {
		cut = min(max(cut, 0), len(in))
		var a, b Framer
		opts := Options{Typed: true, Model: `"m"`, Tag: "_T"}
		whole, parts := tell(t, &a, opts, in), tell(t, &b, opts, in[:cut], in[cut:])
		if whole.Out != parts.Out {
			t.Fatalf("%q cut at %d: %q and %q", in, cut, whole.Out, parts.Out)
		}
		var c Framer
		out := tell(t, &c, Options{}, whole.Out)
		if len(out.Payloads) != len(whole.Payloads) {
			t.Fatalf("%q became %q", in, whole.Out)
		}
		for i, p := range whole.Payloads {
			if json.Valid([]byte(p)) && !json.Valid([]byte(out.Payloads[i])) {
				t.Fatalf("%q became %q", p, out.Payloads[i])
			}
		}
	})
}
