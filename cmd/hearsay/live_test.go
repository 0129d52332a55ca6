package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/replay"
)

// A line that wraps can't be rewritten in place: each update would leave a row behind.
func TestLiveLineStaysWithinItsTerminal(t *testing.T) {
	var out bytes.Buffer
	width := 80
	l := &liveLine{w: &out, width: func() int { return width }}
	f := func(text, want string) {
		t.Helper()
		out.Reset()
		l.show(func(int) string { return text })
		if got := out.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f("short", "\r\x1b[Kshort")
	f(strings.Repeat("x", 100), "\r\x1b[K"+strings.Repeat("x", 79))
	width = 10
	f(strings.Repeat("\u00e9", 100), "\r\x1b[K"+strings.Repeat("\u00e9", 9))
	width = 0
	f("xx", "\r\x1b[Kx")

	out.Reset()
	l.end()
	l.show(func(int) string { return "late" })
	l.end()
	if got := out.String(); got != "\n" {
		t.Errorf("after its end: %q", got)
	}
	var none *liveLine // no terminal
	none.show(nil)
	none.end()
	unused := &liveLine{w: &out, width: func() int { return 80 }}
	out.Reset()
	if unused.end(); out.Len() != 0 {
		t.Errorf("a line that was never shown ended with %q", out.String())
	}
}

// Narrow terminals lose engines that are gone, then the figures that tell least.
func TestDemoLineFits(t *testing.T) {
	rate := 0.5
	s := replay.Snapshot{Elapsed: 12 * time.Second, Sent: 20, Done: 15, InFlight: 5, Sending: true, TTFT: 0.64, HitRate: &rate}
	f := func(width int, want string) {
		t.Helper()
		if got := fitDemo(s, ":8500 1, :8501 -", ":8500 1", width); got != want {
			t.Errorf("in %d columns: %q, want %q", width, got, want)
		}
	}
	whole := "0:12  sent 20  done 15  running 5  errors 0  TTFT p50 640 ms  hit rate 50.0 %"
	f(120, whole+" | in flight: :8500 1, :8501 -")
	f(100, whole+" | in flight: :8500 1")
	f(79, "0:12  done 15  running 5  errors 0  TTFT p50 640 ms  hit rate 50.0 % | :8500 1")
	f(50, "0:12  TTFT p50 640 ms  hit rate 50.0 % | :8500 1")
	f(20, "0:12  TTFT p50 640 ms  hit rate 50.0 % | :8500 1") // show cuts it
}
