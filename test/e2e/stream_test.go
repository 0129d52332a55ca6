package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// created is the one field of an answer that depends on when it was given.
var created = regexp.MustCompile(`"created":\d+`)

// A stream comes through as the engine sent it, byte for byte, with the request's
// id and, asked for, why it went where it went.
func TestStreamIsTheEnginesOwn(t *testing.T) {
	p := healthy(t)
	for _, r := range p.Routers {
		t.Run(r.Name, func(t *testing.T) {
			id := "stream-" + r.Name
			body := chat(long("rivers of "+r.Name, 20), 12, true, "")
			resp, got := whole(t, r.API+"/v1/chat/completions", body, "x-request-id", id, "x-hearsay-debug", "1")
			if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
				t.Fatalf("status %d, %v", resp.StatusCode, resp.Header)
			}
			if echoed := resp.Header.Get("X-Request-Id"); echoed != id {
				t.Errorf("request id %q, want %q", echoed, id)
			}
			if !strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Count(got, "data: ") < 13 {
				t.Errorf("stream:\n%s", got)
			}
			h := resp.Header
			for _, name := range []string{"X-Hearsay-Router", "X-Hearsay-Replica", "X-Hearsay-Policy"} {
				if h.Get(name) == "" {
					t.Errorf("header %s is missing", name)
				}
			}
			for _, name := range []string{"X-Hearsay-Matched-Tokens", "X-Hearsay-Prompt-Tokens", "X-Hearsay-Ttft-Ms", "X-Hearsay-Attempts"} {
				if _, err := strconv.ParseFloat(h.Get(name), 64); err != nil {
					t.Errorf("header %s: %q is no number", name, h.Get(name))
				}
			}
			if h.Get("X-Hearsay-Policy") != "ttft" || h.Get("X-Hearsay-Attempts") != "1" {
				t.Errorf("policy %q, attempts %q", h.Get("X-Hearsay-Policy"), h.Get("X-Hearsay-Attempts"))
			}

			// All engines share the seed: any gives the same answer to the same request.
			_, direct := whole(t, p.Engines[0].API+"/v1/chat/completions", body, "x-request-id", id)
			same := func(s string) string { return created.ReplaceAllString(s, `"created":0`) }
			if same(got) != same(direct) {
				t.Errorf("through the router:\n%s\nfrom the engine:\n%s", got, direct)
			}

			resp, _ = whole(t, r.API+"/v1/chat/completions", chat("hi", 1, true, ""))
			if resp.Header.Get("X-Hearsay-Replica") != "" || len(resp.Header.Get("X-Request-Id")) < 16 {
				t.Errorf("unasked: %v", resp.Header)
			}
		})
	}
}

// A second request for a prefix goes where the first one was, through whichever
// router it comes: what one learned, the others heard.
func TestRoutersShareWhatReplicasHold(t *testing.T) {
	p := healthy(t)
	joined(t, p.Routers)
	prompt := long("what r1 learns", 300)
	resp, _ := whole(t, p.Routers[0].API+"/v1/chat/completions", chat(prompt, 2, true, ""), "x-hearsay-debug", "1")
	holder := resp.Header.Get("X-Hearsay-Replica")
	for _, r := range p.Routers[1:] {
		poll(t, patience, r.Name+" knows the holder of the prefix", func() (bool, string) {
			e := explain(t, r, chat(prompt+" And then?", 2, true, ""))
			return e.Replica == holder && e.MatchedTokens > e.PromptTokens/2, e.String()
		})
		resp, _ := whole(t, r.API+"/v1/chat/completions", chat(prompt+" And then?", 2, true, ""), "x-hearsay-debug", "1")
		if got := resp.Header.Get("X-Hearsay-Replica"); got != holder {
			t.Errorf("%s sends it to %s, the holder is %s", r.Name, got, holder)
		}
	}
}

func TestProbes(t *testing.T) {
	p := healthy(t)
	for _, r := range p.Routers {
		for _, base := range []string{r.API, r.Admin} {
			for _, path := range []string{"/livez", "/health", "/readyz"} {
				if code, body, _ := get(t, base+path); code != http.StatusOK {
					t.Errorf("%s%s: status %d, %s", base, path, code, body)
				}
			}
			code, body, h := get(t, base+"/readyz?verbose")
			var v map[string]any
			if err := json.Unmarshal([]byte(body), &v); err != nil || code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "application/json") {
				t.Errorf("%s/readyz?verbose: status %d, %v, %s: %v", base, code, h.Get("Content-Type"), body, err)
			}
			if base == r.API && (v["ready"] != true || !strings.Contains(body, `"chat"`)) {
				t.Errorf("%s/readyz?verbose tells neither readiness nor the pool: %s", base, body)
			}
		}
	}
}
