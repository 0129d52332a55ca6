package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// patience bounds waits for what has no promised time, on a busy machine.
const patience = 20 * time.Second

// poll asks until ok, and fails the test with what was last seen after bound.
func poll(t *testing.T, bound time.Duration, what string, ask func() (ok bool, seen string)) {
	t.Helper()
	deadline := time.Now().Add(bound)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := ask()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; last seen: %s", bound, what, seen)
		}
		<-tick.C
	}
}

// chat is a chat completion's body; more has further fields, each with its comma
// before it.
func chat(prompt string, maxTokens int, stream bool, more string) string {
	text, _ := json.Marshal(prompt)
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}],"max_tokens":%d,"stream":%v%s}`, model, text, maxTokens, stream, more)
}

// long is a prompt of some n words that no other topic's prompt begins like.
func long(topic string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "About %s.", topic)
	for i := range n {
		fmt.Fprintf(&b, " The %s number %d is noted here.", topic, i)
	}
	return b.String()
}

// post sends a JSON body and leaves the response open.
func post(ctx context.Context, t *testing.T, url, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// whole posts and reads all of the answer.
func whole(t *testing.T, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	resp := post(ctx, t, url, body, header...)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer of %s: %v", url, err)
	}
	return resp, string(b)
}

// get fetches a URL.
func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// events reads n events of a stream; fewer if it ends before.
func events(t *testing.T, r *bufio.Reader, n int) []string {
	t.Helper()
	var out []string
	for len(out) < n {
		line, err := r.ReadString('\n')
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
			out = append(out, data)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("read the stream after %d events: %v", len(out), err)
		}
	}
	return out
}

// fault makes an engine misbehave until the test ends.
func fault(t *testing.T, e *harness.Proc, f enginesim.Fault) {
	t.Helper()
	set := func(f enginesim.Fault) error {
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		resp, err := http.Post(e.API+"/sim/fault", "application/json", bytes.NewReader(b))
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	}
	if err := set(f); err != nil {
		t.Fatalf("set fault at %s: %v", e.Name, err)
	}
	t.Cleanup(func() { _ = set(enginesim.Fault{Kind: enginesim.FaultNone}) })
}

// recorded is what the engines have recorded of a request, nil if nothing.
func recorded(t *testing.T, engines []*harness.Proc, requestID string) *enginesim.RequestRecord {
	t.Helper()
	for _, e := range engines {
		var rec enginesim.Record
		_, body, _ := get(t, e.API+"/sim/record")
		if err := json.Unmarshal([]byte(body), &rec); err != nil {
			t.Fatal(err)
		}
		for i := range rec.Requests {
			if rec.Requests[i].XRequestID == requestID {
				return &rec.Requests[i]
			}
		}
	}
	return nil
}
