package sse

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Streams of real engines, recorded by test/engines, in pieces of any size: their end is
// seen, and usage that nobody asked for is taken out where it has a chunk of its own.
func TestRecordedStreams(t *testing.T) {
	f := func(name string, events int, timings bool) {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join("../../test/engines/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 7, 100, len(raw)} {
			var fr Framer
			fr.Reset(Options{DropUsage: true})
			var out []byte
			for rest := raw; len(rest) > 0; {
				n := min(size, len(rest))
				b, err := fr.Feed(bytes.Clone(rest[:n]))
				if err != nil {
					t.Fatal(err)
				}
				out, rest = append(out, b...), rest[n:]
			}
			out = append(out, fr.End()...)
			if !fr.Done() || fr.Finish() != "length" || fr.Events() != events || fr.Error() != nil || fr.Usage() == nil || (fr.Timings() != nil) != timings {
				t.Errorf("%s in pieces of %d: done %v, finish %q, %d events, usage %q, timings %q", name, size, fr.Done(), fr.Finish(), fr.Events(), fr.Usage(), fr.Timings())
			}
			if bytes.Contains(out, []byte(`"choices":[]`)) || !bytes.HasSuffix(out, []byte("data: [DONE]\n\n")) {
				t.Errorf("%s in pieces of %d: %s", name, size, out)
			}
		}
	}
	f("llamacpp-b10434/stream-usage.sse", 9, true)
	f("vllm-0.32.0/stream-usage.sse", 8, false)
	f("vllm-0.32.0/completion-usage.sse", 5, false)
	f("llamacpp-b10434/completion-usage.sse", 5, true)
}
