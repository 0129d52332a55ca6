package main

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

func TestTheUpstreamForgetsTheHotPrefixAfterACacheFullOfOthers(t *testing.T) {
	r := &replica{kv: 1000, hotAt: -1}
	f := func(tokens int, hot bool, want int) {
		t.Helper()
		if got := r.account(tokens, hot); got != want {
			t.Errorf("%d tokens cached, want %d", got, want)
		}
	}
	const words = sharedChars / bytesPerToken / 16 * 16
	f(500, true, 0)
	f(900, false, words)
	f(500, true, hotTokens)
	f(1001, false, words)
	f(500, true, words)
}

func TestPromptsAreUniqueAfterTheirSharedBeginning(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[string]bool{}
	for n := range int64(200) {
		var body struct {
			Messages []struct{ Content string }
		}
		b := uniquePrompt(n, rng)
		if err := json.Unmarshal(b, &body); err != nil {
			t.Fatal(err)
		}
		if len(b) < leastBody-100 || len(b) > mostBody {
			t.Errorf("a body of %d bytes", len(b))
		}
		text := body.Messages[0].Content
		if !strings.HasPrefix(text, shared) || len(shared) != sharedChars {
			t.Fatal("a prompt does not begin like all others")
		}
		if rest := text[sharedChars : sharedChars+10]; seen[rest] {
			t.Errorf("two prompts go on with %q", rest)
		} else {
			seen[rest] = true
		}
	}
}

// A stream in mid-answer has sent pieces and holds until it is let go.
func TestTheUpstreamHoldsUntilReleased(t *testing.T) {
	up, err := newUpstreams(1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	f := func(word string, pieces int) {
		t.Helper()
		resp, err := http.Post(up.replicas[0].url+"/v1/chat/completions", "application/json", strings.NewReader(string(chatBody(word, true))))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b := make([]byte, 1<<16)
		got := ""
		for strings.Count(got, "word") < pieces {
			n, err := resp.Body.Read(b)
			if got += string(b[:n]); err != nil {
				t.Fatalf("%q, then %v", got, err)
			}
		}
		if strings.Contains(got, "[DONE]") {
			t.Fatal("the answer did not wait")
		}
		up.let()
		rest, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
			t.Fatalf("the answer ends with %q, %v", rest, err)
		}
	}
	f(sayMid, 3)
}
