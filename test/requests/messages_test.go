package requests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

const (
	messagesPath = "/v1/messages"
	countPath    = "/v1/messages/count_tokens"
	version      = "anthropic-version: 2023-06-01"

	message = `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Hi"}],` +
		`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"cache_read_input_tokens":1,"cache_creation_input_tokens":2,"output_tokens":15}}`

	overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`
)

// named is an event of a Messages stream.
func named(event, data string) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", event, event, data)
}

var messageEvents = []string{
	named("message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,`+
		`"usage":{"input_tokens":9,"cache_read_input_tokens":1,"cache_creation_input_tokens":0,"output_tokens":1}}`),
	named("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`),
	named("ping", ""),
	named("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"Hi"}`),
	named("content_block_stop", `,"index":0`),
	named("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"cache_read_input_tokens":1,"output_tokens":15}`),
	named("message_stop", ""),
}

// speaks makes the pool one of Anthropic's API, with a credential.
func speaks(p *node.PoolConfig) {
	p.Engine, p.APIKeyEnv, p.UpstreamModel = "anthropic", "KEY", "claude"
}

// shown is what an engine said as a client sees it: with the model's name that it used.
func shown(s string) string { return strings.ReplaceAll(s, `"model":"claude"`, `"model":"llama"`) }

// tokens are what the router counted.
func (g *router) tokens() (input, cached, output float64) {
	f := func(kind string) float64 { return g.metric("hearsay_tokens_total", `type="`+kind+`"`) }
	return f("input"), f("cached"), f("output")
}

// refusedAs is an error in Anthropic's shape.
func (r reply) refusedAs(t testing.TB, what string, status int, kind string) {
	t.Helper()
	var e struct {
		Type  string
		Error struct{ Type, Message string }
	}
	err := json.Unmarshal([]byte(r.body), &e)
	if r.StatusCode != status || err != nil || e.Type != "error" || e.Error.Type != kind || e.Error.Message == "" {
		t.Errorf("%s: %d %s, want %d %s", what, r.StatusCode, r.body, status, kind)
	}
	if r.Header.Get("request-id") == "" {
		t.Errorf("%s: no request-id", what)
	}
}

// An engine that speaks Anthropic's API gets its requests as they were sent, but for the
// model's name and the key.
func TestB14MessagesAsSent(t *testing.T) {
	g := start(t, []func(*call) bool{func(c *call) bool {
		if c.path() == countPath {
			return c.write(jsonAnswer(200, `{"input_tokens":17}`))
		}
		return c.write(jsonAnswer(200, message))
	}}, pool(speaks))
	const rest = `"max_tokens":5, "metadata":{"user_id":"u"},"thinking":{"type":"enabled","budget_tokens":1024},
		"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}],
		"tools":[{"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],
		"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}],"new":{"x":1}}`
	for _, path := range []string{messagesPath, countPath} {
		r := g.post(path, `{"model":"llama",`+rest, "x-api-key: mine", version, "anthropic-beta: a-1,b-2")
		c := g.last()
		if c.path() != path || string(c.body) != `{"model":"claude",`+rest {
			t.Errorf("the engine got %s %s", c.path(), c.body)
		}
		for name, want := range map[string]string{"X-Api-Key": "secret", "Authorization": "", "Anthropic-Version": "2023-06-01", "Anthropic-Beta": "a-1,b-2"} {
			if got := c.fields.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if r.StatusCode != 200 || r.Header.Get("request-id") == "" || r.Header.Get("request-id") != r.Header.Get("x-request-id") {
			t.Errorf("%d %v", r.StatusCode, r.Header)
		}
		switch {
		case path == messagesPath && r.body != shown(message):
			t.Errorf("the client got %s", r.body)
		case path == countPath && r.body != `{"input_tokens":17}`:
			t.Errorf("the client got %s", r.body)
		}
	}
	if in, cached, out := g.tokens(); in != 12 || cached != 1 || out != 15 {
		t.Errorf("counted %v, of them cached %v, and %v out: a count of tokens is no generation", in, cached, out)
	}
}

// Usage in a stream's start and end: what stands last counts, and nothing is added up.
func TestC49UsageOfMessageStreams(t *testing.T) {
	for what, x := range map[string]struct {
		events          []string
		in, cached, out float64
	}{
		"both":     {messageEvents, 10, 1, 15},
		"end only": {[]string{named("message_start", `,"message":{"id":"m","content":[]}`), named("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":4522,"cache_creation_input_tokens":4511,"output_tokens":5}`), named("message_stop", "")}, 9033, 0, 5},
	} {
		g := start(t, []func(*call) bool{says(events(x.events...))}, pool(speaks))
		r := g.post(messagesPath, `{"model":"llama","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, version)
		if r.err != nil || r.body != shown(strings.Join(x.events, "")) {
			t.Errorf("%s: the client got %q, %v", what, r.body, r.err)
		}
		if in, cached, out := g.tokens(); in != x.in || cached != x.cached || out != x.out {
			t.Errorf("%s: counted %v, of them cached %v, and %v out; want %v, %v, %v", what, in, cached, out, x.in, x.cached, x.out)
		}
		g.stop()
	}
}

// Errors have the shape that Anthropic's libraries read, whoever makes them.
func TestErrorsOfMessages(t *testing.T) {
	const body = `{"model":"llama","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
	g := start(t, []func(*call) bool{func(c *call) bool {
		switch {
		case strings.Contains(string(c.body), "busy"):
			return c.write(jsonAnswer(529, overloaded))
		case strings.Contains(string(c.body), "openai"):
			return c.write(jsonAnswer(400, `{"error":{"message":"too long","type":"BadRequestError","code":400}}`))
		case strings.Contains(string(c.body), "html"):
			return c.write(answered(500, "text/html", "<html>"))
		case strings.Contains(string(c.body), "late"):
			_ = c.write(streamHead + chunk(messageEvents[0]))
			return false
		}
		return c.write(jsonAnswer(401, `{"type":"error","error":{"type":"authentication_error","message":"no"}}`))
	}}, pool(speaks), pool(func(p *node.PoolConfig) { p.Retry.Attempts = 1 }))
	say := func(word string) reply { return g.post(messagesPath, strings.Replace(body, "hi", word, 1), version) }

	g.post(messagesPath, `{"model":"nobody","max_tokens":5,"messages":[]}`, version).refusedAs(t, "unknown model", 404, "not_found_error")
	g.post(countPath, `{"model":"nobody","messages":[]}`, version).refusedAs(t, "count for an unknown model", 404, "not_found_error")
	g.post(messagesPath+"/batches", body, version).refusedAs(t, "batches", 404, "not_found_error")
	g.post(messagesPath, `{"model":`, version).refusedAs(t, "broken", 400, "invalid_request_error")
	g.do("GET "+messagesPath+" HTTP/1.1\r\nHost: h\r\n\r\n").refusedAs(t, "GET", 405, "invalid_request_error")
	g.post(messagesPath, strings.Replace(body, "hi", strings.Repeat("x", 3<<20), 1), version).refusedAs(t, "its own words", 401, "authentication_error")
	say("openai").refusedAs(t, "in another shape", 400, "invalid_request_error")
	say("html").refusedAs(t, "no JSON", 502, "api_error")
	r := say("busy")
	r.refusedAs(t, "busy", 529, "overloaded_error")
	if r.body != overloaded || r.Header.Get("Retry-After") == "" {
		t.Errorf("busy: %v %s", r.Header, r.body)
	}
	r = g.post(messagesPath, strings.Replace(strings.Replace(body, "hi", "late", 1), `"max`, `"stream":true,"max`, 1), version)
	if tail := strings.TrimPrefix(r.body, shown(messageEvents[0])); r.err == nil || !strings.HasPrefix(tail, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"") || !strings.HasSuffix(tail, "\n\n") {
		t.Errorf("a stream that broke: %q, %v", r.body, r.err)
	}
}

// What a Messages engine answered is known to be in its cache: the chat's next turn is
// matched through the answer, streamed or not, text or call of a tool.
func TestNextTurnOfMessages(t *testing.T) {
	long := strings.Repeat("many words of an answer that \\\"goes\\\" on \\u00e9 ", 200)
	input := fmt.Sprintf(`{"q": %q, "n": [1,2]}`, strings.Repeat("argument ", 300))
	quoted, err := json.Marshal(input)
	must(t, err)
	whole := `[{"type":"text","text":"` + long + `"},{"type":"tool_use","id":"t1","name":"find","input":` + input + `}]`
	pieces := []string{messageEvents[0], named("content_block_start", `,"index":9,"content_block":{"type":"thinking","thinking":""}`), named("content_block_delta", `,"index":9,"delta":{"type":"thinking_delta","thinking":"hm"}`), named("content_block_stop", `,"index":9`), messageEvents[1]}
	for i := 0; i < len(long); i += 200 {
		pieces = append(pieces, named("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"`+cutAt(long, i, i+200)+`"}`))
	}
	pieces = append(pieces, messageEvents[4], named("content_block_start", `,"index":1,"content_block":{"type":"tool_use","id":"t1","name":"find","input":{}}`),
		named("content_block_delta", `,"index":1,"delta":{"type":"input_json_delta","partial_json":""}`),
		named("content_block_delta", `,"index":1,"delta":{"type":"input_json_delta","partial_json":`+string(quoted)+`}`),
		named("content_block_stop", `,"index":1`), messageEvents[5], messageEvents[6])
	for what, answer := range map[string]string{
		"whole":    jsonAnswer(200, `{"id":"m","type":"message","role":"assistant","content":`+whole+`,"stop_reason":"tool_use","usage":{"input_tokens":9,"output_tokens":900}}`),
		"streamed": events(pieces...),
	} {
		g := start(t, []func(*call) bool{says(answer)}, pool(speaks), func(c *node.Config) { c.API.Debug = true })
		matched := func(messages string) (n int) {
			r := g.post(messagesPath, `{"model":"llama","max_tokens":5,"stream":`+fmt.Sprint(what == "streamed")+`,"messages":[`+messages+`]}`, version, "x-hearsay-debug: 1")
			_, err := fmt.Sscan(r.Header.Get("X-Hearsay-Matched-Tokens"), &n)
			must(t, err)
			return n
		}
		first := `{"role":"user","content":"` + strings.Repeat("ask ", 100) + `"}`
		after := func(content string) string {
			return first + `,{"role":"assistant","content":` + content + `},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"x"}]}`
		}
		if n := matched(first); n != 0 {
			t.Errorf("%s: the first turn matches %d tokens", what, n)
		}
		if n := matched(after(whole)); n < 2000 {
			t.Errorf("%s: the next turn matches %d tokens", what, n)
		}
		if n := matched(after(strings.Replace(whole, "many", "few", 1))); n > 200 {
			t.Errorf("%s: another answer matches %d tokens", what, n)
		}
		g.stop()
	}
}

// cutAt is s[from:to], moved to where no escape is cut.
func cutAt(s string, from, to int) string {
	clear := func(i int) int {
		for i < len(s) && i > 0 && s[i-1] != ' ' {
			i++
		}
		return min(i, len(s))
	}
	return s[clear(from):clear(to)]
}
