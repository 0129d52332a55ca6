package sse

import (
	"strings"
	"testing"
)

// FuzzFeed holds that cuts change nothing, that watching changes nothing, and that the events are those of a plain
// reading of the standard.
// Another name for the model, wherever events have it, and nothing else changed.
func TestModelIsRenamed(t *testing.T) {
	const model = `"org/llama \u00e9 \"x\""`
	for in, want := range map[string]string{
		data(`{"model":`+model+`,"choices":[{"delta":{"content":"\"model\": "}}]}`, "[DONE]"): data(`{"model":"fast","choices":[{"delta":{"content":"\"model\": "}}]}`, "[DONE]"),
		data(`{"id":"c", "model" : "a" }`): data(`{"id":"c", "model" : "fast" }`),
		data(`{"usage":null,"model":"a","choices":[]}`, `{"model":"a","choices":[],"usage":null}`, `{"model":"a","usage":{"prompt_tokens":1},"choices":[]}`): data(`{"model":"fast","choices":[]}`, `{"model":"fast","choices":[]}`),
		"event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"a\",\"content\":[{\"model\":\"a\"}]}}\r\n\r\n":                   "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"fast\",\"content\":[{\"model\":\"a\"}]}}\r\n\r\n",
		data(`{"type":"response.created","response":{"id":"r","model":"a","output":[]}}`):                                                                    data(`{"type":"response.created","response":{"id":"r","model":"fast","output":[]}}`),
		data(`{"model":null}`, `{"model":{"model":"a"}}`, `{"choices":[{"model":"a"}]}`):                                                                     data(`{"model":null}`, `{"model":{"model":"a"}}`, `{"choices":[{"model":"a"}]}`),
		": model\n\ndata: \"model\"\n\ndata: {\"model\":\"a\"}":                                                                                              ": model\n\ndata: \"model\"\n\ndata: {\"model\":\"fast\"}",
	} {
		var f Framer
		opts := Options{DropUsage: true, Model: `"fast"`}
		if got := tell(t, &f, opts, in); got.Out != want {
			t.Errorf("%s\nbecame %s\nwant   %s", in, got.Out, want)
		}
		if got := tell(t, &f, opts, strings.Split(in, "")...); got.Out != want {
			t.Errorf("byte by byte, %s\nbecame %s", in, got.Out)
		}
	}
}
