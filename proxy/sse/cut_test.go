package sse

import (
	"testing"
)

// An event whose data is cut ends nothing, whatever its name says.
func TestCutEventsEndNothing(t *testing.T) {
	for tail, done := range map[string]bool{
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"respo": false,
		"event: message_stop\ndata: {\"type\":":                                     false,
		"event: response.completed\ndata: {\"type\":\"response.completed\"}":        true,
		"data: [DONE]": true,
	} {
		for _, tag := range []string{"", "_t"} {
			var f Framer
			f.Reset(Options{Typed: true, Tag: tag})
			_, err := f.Feed([]byte(data(`{"b":2}`) + tail))
			if f.End(); err != nil || f.Done() != done {
				t.Errorf("%q: done %v, %v", tail, f.Done(), err)
			}
		}
	}
}

func TestEventsCutAtTheEnd(t *testing.T) {
	for tail, cut := range map[string]bool{
		"": false, "data: [DONE]": false, "data: [DONE]\n": false, `data: {"a":1}`: false, `data:{"a":1}` + "\r\n": false, ": ping": false, "\n": false,
		"d": true, "data": true, "data:": true, "data: ": true, "data: [DO": true, `data: {"a":1`: true, `data: {"a":1}` + "\ndata: x": true, "event: mess": true,
	} {
		for _, drop := range []bool{false, true} {
			var f Framer
			f.Reset(Options{DropUsage: drop})
			_, err := f.Feed([]byte("data: {\"b\":2}\n\n" + tail))
			if f.End(); err != nil || f.Cut() != cut {
				t.Errorf("%q: cut %v, %v", tail, f.Cut(), err)
			}
			if f.Reset(Options{}); f.Cut() {
				t.Errorf("%q: remembered", tail)
			}
		}
	}
}
