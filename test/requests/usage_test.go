package requests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// records are the answers whose tokens were counted, by source.
func (g *router) records() string {
	var s []string
	for _, source := range []string{"reported", "estimated", "partial"} {
		s = append(s, fmt.Sprintf("%s %v", source, g.metric("hearsay_usage_records_total", `source="`+source+`"`)))
	}
	return strings.Join(s, ", ")
}

const askForUsage = `{"model":"llama","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hello there"}]}`

// Usage is asked for and counted once, and is not shown to those who did not ask; where
// an engine does not tell, it is estimated and said to be.
func TestC46StreamsWithoutUsage(t *testing.T) {
	noUsage := strings.Replace(askStream, `"stream":true`, `"stream":true,"stream_options":{"include_usage":false}`, 1)
	noise := strings.ReplaceAll(role+word+finish, `"choices"`, `"usage":null,"choices"`)
	refuses := func(c *call) bool {
		if strings.Contains(string(c.body), "stream_options") {
			return c.write(jsonAnswer(400, `{"error":{"message":"Unknown parameter: stream_options","type":"x","code":400}}`))
		}
		return c.write(events(role, word, finish, done))
	}
	for what, x := range map[string]struct {
		engine  func(*call) bool
		body    string
		want    string
		records string
	}{
		"tells when asked":                {serves, askStream, role + word + finish + done, "reported 1, estimated 0, partial 0"},
		"tells when asked, client won't":  {serves, noUsage, role + word + finish + done, "reported 1, estimated 0, partial 0"},
		"tells when asked, client asks":   {serves, askForUsage, role + word + finish + usageChunk + done, "reported 1, estimated 0, partial 0"},
		"refuses to be asked":             {refuses, askStream, role + word + finish + done, "reported 0, estimated 1, partial 0"},
		"null in all, none at the end":    {says(events(noise, done)), askStream, role + word + finish + done, "reported 0, estimated 1, partial 0"},
		"null in all, to one who asked":   {says(events(noise, done)), askForUsage, noise + done, "reported 0, estimated 1, partial 0"},
		"none in a whole answer":          {says(jsonAnswer(200, `{"choices":[{"index":0,"message":{"content":"`+strings.Repeat("four ", 100)+`"}}]}`)), ask, "", "reported 0, estimated 1, partial 0"},
		"breaks off":                      {func(c *call) bool { c.write(streamHead + chunk(role+word)); return false }, askStream, "", "reported 0, estimated 0, partial 1"},
		"fails before there is an answer": {says(jsonAnswer(500, `{"error":{"message":"x","type":"x","code":500}}`)), askStream, "", "reported 0, estimated 0, partial 0"},
	} {
		g := start(t, []func(*call) bool{x.engine})
		r := g.chat(x.body)
		if x.want != "" && (r.body != x.want || r.StatusCode != 200) {
			t.Errorf("%s: %d %q", what, r.StatusCode, r.body)
		}
		g.settled()
		if got := g.records(); got != x.records {
			t.Errorf("%s: %s", what, got)
		}
		in, _, out := g.tokens()
		switch {
		case strings.HasPrefix(x.records, "reported 1") && (in != 9 || out != 3):
			t.Errorf("%s: counted %v and %v", what, in, out)
		case what == "none in a whole answer" && (in < 2 || in > 20 || out < 80 || out > 200):
			t.Errorf("%s: estimated %v and %v", what, in, out)
		case strings.Contains(x.records, "estimated 1, ") && what != "none in a whole answer" && (in < 2 || in > 20 || out != 3):
			t.Errorf("%s: estimated %v and %v", what, in, out)
		}
		g.stop()
	}
}

// settled waits until nothing is under way.
func (g *router) settled() {
	g.t.Helper()
	until(g.t, "nothing is under way", func() bool { return g.metric("hearsay_replica_inflight") == 0 })
}

// Usage that grows from chunk to chunk counts once, as it stands last.
func TestC47CumulativeUsage(t *testing.T) {
	at := func(n int) string {
		return fmt.Sprintf(`data: {"id":"c1","choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n", n, n+9)
	}
	var grows []string
	for n := range 99 {
		grows = append(grows, at(n+1))
	}
	last := `data: {"id":"c1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":99,"total_tokens":108}}` + "\n\n"
	two := []string{
		`data: {"id":"c1","choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":40,"total_tokens":49}}` + "\n\n",
		`data: {"id":"c1","choices":[{"index":1,"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":59,"total_tokens":68}}` + "\n\n",
	}
	for what, list := range map[string][]string{
		"growing":    append(grows, done),
		"twice":      append(append([]string{}, grows...), last, last, done),
		"of choices": append(two, last, done),
	} {
		g := start(t, []func(*call) bool{says(events(list...))})
		if r := g.chat(askForUsage); r.StatusCode != 200 || r.err != nil {
			t.Errorf("%s: %d %v", what, r.StatusCode, r.err)
		}
		g.settled()
		if in, _, out := g.tokens(); in != 9 || out != 99 || g.records() != "reported 1, estimated 0, partial 0" {
			t.Errorf("%s: counted %v and %v, %s", what, in, out, g.records())
		}
		g.stop()
	}
}

// A client's credentials reach no engine, and an engine gets its own on every call; one
// that is to have a key and has none is not called with another's.
func TestC52KeysOfClients(t *testing.T) {
	const theirs = "sk-gateway-key"
	wants := func(c *call) bool {
		if c.fields.Get("Authorization") != "Bearer secret" {
			return c.write(jsonAnswer(401, `{"error":{"message":"no","type":"x","code":401}}`))
		}
		return serves(c)
	}
	g := start(t, []func(*call) bool{wants}, pool(func(p *node.PoolConfig) { p.APIKeyEnv = "KEY" }))
	open := start(t, []func(*call) bool{serves})
	for _, field := range []string{"Authorization: Bearer " + theirs, "authorization: " + theirs, "x-api-key: " + theirs, "api-key: " + theirs, "Cookie: k=" + theirs, "Proxy-Authorization: Basic " + theirs, "X-Goog-Api-Key: " + theirs} {
		for _, path := range []string{chatPath, promptPath, embedPath, messagesPath, "/v1/rerank"} {
			body := `{"model":"llama","max_tokens":3,"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x"}`
			if r := g.post(path, body, field); r.StatusCode != 200 && path != messagesPath {
				t.Errorf("%s %s: %d %s", path, field, r.StatusCode, r.body)
			}
			open.post(path, body, field)
		}
	}
	for _, c := range append(g.calls(), open.calls()...) {
		if strings.Contains(c.raw, theirs) || strings.Contains(string(c.body), theirs) {
			t.Errorf("an engine got %s", c.raw)
		}
	}
	for _, c := range open.calls() {
		if c.fields.Get("Authorization") != "" || c.fields.Get("X-Api-Key") != "" {
			t.Errorf("an engine without a key got one: %s", c.raw)
		}
	}
}
