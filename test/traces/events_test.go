package traces

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// told is an event of a request, second seconds after the first.
func told(second int, pool, marks string, size, output int) string {
	return fmt.Sprintf(`{"at":"2026-01-02T03:04:%02dZ","kind":"request","pool":%q,"replica":"e1","request_id":"r%d","prompt_tokens":%d,"record":{"queued_ms":0,"observed_ttft_ms":120,"itl_ms":10,"cached_tokens":7,"output_tokens":%d,"max_tokens":0,"prompt_bytes":%d,"marks":%q}}`,
		second, pool, second, size/4, output, size, marks) + "\n"
}

func readEvents(src Source) (list []*Request, err error) {
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, r)
	}
}

// Recorded prompts share as much text as the real ones did, and come when they did.
func TestEventsAreRequests(t *testing.T) {
	file := `{"at":"2026-01-02T03:04:00Z","kind":"pick","pool":"chat","prompt_tokens":5}` + "\n" +
		told(9, "chat", "256.a 512.b 1024.c", 1100, 30) + // ends first, came last
		told(1, "chat", "256.a 512.b", 600, 20) +
		told(4, "chat", "256.d", 600, 10) +
		`{"at":"2026-01-02T03:04:20Z","kind":"lost","count":3}` + "\n"
	e := &events{in: strings.NewReader(file)}
	list, err := readEvents(e)
	if err != nil || len(list) != 3 || e.lost != 3 {
		t.Fatalf("%d requests, %d lost, %v", len(list), e.lost, err)
	}
	text := func(i int) string { return string(list[i].AppendPrompt(nil)) }
	shared := func(a, b string) (n int) {
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	if list[0].At != 0 || list[1].At != 3*time.Second || list[2].At != 8*time.Second {
		t.Errorf("due at %v, %v, %v", list[0].At, list[1].At, list[2].At)
	}
	bytes := func(tokens int) int { return list[0].Text.Bytes(tokens) }
	if n := shared(text(0), text(2)); n < bytes(128) || n > bytes(132) { // 512 bytes at 4 a token
		t.Errorf("those of one beginning share %d bytes", n)
	}
	if n := shared(text(0), text(1)); n > 12 {
		t.Errorf("strangers share %d bytes", n)
	}
	if r := list[2]; r.InputTokens < 274 || r.InputTokens > 276 || r.OutputTokens != 30 || r.Seen.TTFT != 120*time.Millisecond || r.Seen.CachedTokens != 7 || r.Seen.Replica != "e1" {
		t.Errorf("%+v, %+v", r, r.Seen)
	}
}

func TestEventsThatCannotBe(t *testing.T) {
	f := func(says, file string, pool string) {
		t.Helper()
		_, err := readEvents(Events(strings.NewReader(file), EventsConfig{Pool: pool}))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	two := told(1, "chat", "", 10, 1) + told(2, "other", "", 10, 1)
	f("requests of pools chat and other", two, "")
	f("no request of pool third", two, "third")
	f("kinds request", `{"at":"2026-01-02T03:04:00Z","kind":"pick"}`, "")
	f("is no mark", told(1, "chat", "256", 600, 1), "")
	f("a mark at 256 after one at 256", told(1, "chat", "256.a 256.b", 600, 1), "")
	f("of 100 bytes", told(1, "chat", "256.a", 100, 1), "")
	f("line 1: it is cut off", `{"kind":"request"`, "")
	f("line 1: record.queued_ms is a string", `{"at":"2026-01-02T03:04:00Z","kind":"request","record":{"queued_ms":"x"}}`, "")
	f("line 1: it holds a array alone", `[]`, "")
	f("line 1: \"noon\" is no time", `{"at":"noon","kind":"request"}`, "")
	f("line 2: it is not JSON, from its byte", "\n{kind}", "")
	f("of 1500-01-02 and its last of 2026-01-02", strings.Replace(told(1, "chat", "", 10, 1), "2026", "1500", 1)+told(2, "chat", "", 10, 1), "")
	f("without a record", `{"at":"2026-01-02T03:04:00Z","kind":"request"}`, "")
	f("no kind", `{"at":"2026-01-02T03:04:00Z"}`, "")
	if list, err := readEvents(Events(strings.NewReader(two), EventsConfig{Pool: "other"})); err != nil || len(list) != 1 {
		t.Errorf("%d requests, %v", len(list), err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(told(1, "chat", "256.a 512.b", 600, 1))
	f.Add(`{"kind":"lost","count":1}`)
	f.Add(`{"at":"2026-01-02T03:04:00Z","kind":"request","record":{"marks":"1.f","prompt_bytes":2}}`)
	f.Fuzz(func(t *testing.T, file string) {
		list, err := readEvents(Events(strings.NewReader(file), EventsConfig{}))
		if err != nil {
			return
		}
		at := time.Duration(0)
		for _, r := range list {
			if r.At < at || r.InputTokens < 1 || r.InputTokens > 2*maxTokens || len(r.Messages) == 0 {
				t.Fatalf("%+v", r)
			}
			at = r.At
		}
	})
}
