package requests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// Anthropic's Messages before engines that speak OpenAI's API alone.

const (
	askMessage = `{"model":"llama","max_tokens":5,"system":"be brief","messages":[{"role":"user","content":[{"type":"text","text":"h\u00e9llo","cache_control":{"type":"ephemeral"}}]}]}`
	asChat     = `{"model":"llama","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"h\u00e9llo"}],"max_completion_tokens":5}`

	calls = `data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"find","arguments":""}}]},"finish_reason":null}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"q\":1}"}}]},"finish_reason":null}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n"
)

func streamed(body string) string {
	return strings.Replace(body, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
}

// event is one of a stream's, with its data read.
type event struct {
	name string
	data map[string]any
}

// read takes a stream of Messages apart, and checks that names and types agree.
func (r reply) events(t testing.TB) (list []event) {
	t.Helper()
	for raw := range strings.SplitSeq(strings.TrimSuffix(r.body, "\n\n"), "\n\n") {
		if strings.HasPrefix(raw, ":") {
			continue
		}
		name, data, ok := strings.Cut(strings.TrimPrefix(raw, "event: "), "\ndata: ")
		e := event{name: name}
		if err := json.Unmarshal([]byte(data), &e.data); !ok || err != nil || e.data["type"] != name {
			t.Fatalf("no event: %q, %v", raw, err)
		}
		list = append(list, e)
	}
	return list
}

// names of events, for comparison.
func names(list []event) string {
	var s []string
	for _, e := range list {
		s = append(s, e.name)
	}
	return strings.Join(s, " ")
}

const textEvents = "message_start content_block_start content_block_delta content_block_stop message_delta message_stop"

func TestMessagesAsChats(t *testing.T) {
	g := one(t, func(c *node.Config) { c.Pools[0].UpstreamModel = "org/llama" })
	r := g.post(messagesPath, askMessage, version)
	if c := g.last(); c.path() != chatPath || string(c.body) != strings.Replace(asChat, "llama", "org/llama", 1) {
		t.Errorf("the engine got %s %s", c.path(), c.body)
	}
	var m struct {
		Type, Role, Model string
		Content           []struct{ Type, Text string }
		StopReason        string `json:"stop_reason"`
		Usage             map[string]int
	}
	if err := json.Unmarshal([]byte(r.body), &m); err != nil || r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %s: %v", r.StatusCode, r.Header, r.body, err)
	}
	if m.Type != "message" || m.Role != "assistant" || m.Model != "llama" || len(m.Content) != 1 || m.Content[0].Text != "Hi" ||
		m.StopReason != "end_turn" || m.Usage["input_tokens"] != 9 || m.Usage["output_tokens"] != 3 {
		t.Errorf("the client got %s", r.body)
	}
	if in, _, out := g.tokens(); in != 9 || out != 3 {
		t.Errorf("counted %v and %v", in, out)
	}

	r = g.post(messagesPath, streamed(askMessage), version)
	list := r.events(t)
	if names(list) != textEvents || r.err != nil || r.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v: %s, %v", r.Header, r.body, r.err)
	}
	if use := list[4].data["usage"].(map[string]any); use["output_tokens"] != 3.0 || use["input_tokens"] != 9.0 {
		t.Errorf("usage %v", use)
	}
	if in, _, out := g.tokens(); in != 18 || out != 6 {
		t.Errorf("counted %v and %v", in, out)
	}
}

// However the network cuts what an engine sends, the client gets the same events.
func TestMessagesCutAnywhere(t *testing.T) {
	all := role + word + calls + usageChunk + done
	var bytes []string
	for i := range len(all) {
		bytes = append(bytes, all[i:i+1])
	}
	want := ""
	for _, pieces := range [][]string{{all}, bytes, {all[:300], all[300:]}} {
		g := start(t, []func(*call) bool{says(events(pieces...))})
		r := g.post(messagesPath, streamed(askMessage), version, "x-request-id: one")
		list := r.events(t)
		if got := names(list); got != "message_start content_block_start content_block_delta content_block_stop content_block_start content_block_delta content_block_stop message_delta message_stop" {
			t.Errorf("%d pieces: %s", len(pieces), got)
		}
		if want == "" {
			want = r.body
		}
		if r.body != want || r.err != nil {
			t.Errorf("%d pieces: %s, %v", len(pieces), r.body, r.err)
		}
		g.stop()
	}
}

// A stream that breaks, or whose answer does not end, ends with an error and not as a
// whole message does.
func TestBrokenMessagesAreNoWholeOnes(t *testing.T) {
	for what, answer := range map[string]func(*call) bool{
		"reset":       func(c *call) bool { _ = c.write(streamHead + chunk(role+word)); return false },
		"in an event": func(c *call) bool { _ = c.write(streamHead + chunk(role+word+finish[:20])); return false },
		"no finish":   says(events(role, word)),
		"error":       says(events(role, word, `data: {"error":{"message":"CUDA","type":"InternalServerError","code":500}}`+"\n\n", done)),
	} {
		g := start(t, []func(*call) bool{answer})
		r := g.post(messagesPath, streamed(askMessage), version)
		list := r.events(t)
		if n := len(list) - 1; n < 3 || list[n].name != "error" || strings.Count(names(list), "error") != 1 || strings.Contains(r.body, "message_stop") || strings.Contains(r.body, "CUDA") {
			t.Errorf("%s: %s", what, r.body)
		}
		if what != "error" && r.err == nil {
			t.Errorf("%s: the body ends in order", what)
		}
		until(t, "the replica is free", func() bool { return g.metric("hearsay_replica_inflight") == 0 })
		g.stop()
	}
}

// Errors of an engine, before and inside an answer.
func TestErrorsOfTranslatedMessages(t *testing.T) {
	const tooLong = `{"error":{"message":"This model's maximum context length is 10 tokens.","type":"BadRequestError","code":400}}`
	fails := `data: {"error":{"message":"no","type":"InternalServerError","code":500}}` + "\n\n"
	for what, x := range map[string]struct {
		answer, body string
		status       int
		kind         string
	}{
		"too long":          {jsonAnswer(400, tooLong), askMessage, 400, "invalid_request_error"},
		"too long, stream":  {events("data: "+tooLong+"\n\n", done), streamed(askMessage), 400, "invalid_request_error"},
		"busy":              {jsonAnswer(503, `{"error":{"message":"busy","type":"x","code":503}}`), askMessage, 503, "overloaded_error"},
		"fails, stream":     {events(fails, done), streamed(askMessage), 502, "api_error"},
		"an answer of none": {jsonAnswer(200, `{"object":"list","data":[]}`), askMessage, 502, "api_error"},
		"HTML":              {answered(200, "text/html", "<html>"), askMessage, 502, "api_error"},
	} {
		g := start(t, []func(*call) bool{says(x.answer)})
		r := g.post(messagesPath, x.body, version)
		r.refusedAs(t, what, x.status, x.kind)
		if strings.HasPrefix(what, "too long") && !strings.Contains(r.body, "prompt is too long: This model's maximum") {
			t.Errorf("%s: %s", what, r.body)
		}
		g.stop()
	}
	g := start(t, []func(*call) bool{says(events(fails, done)), serves})
	for range 8 { // whichever is asked first
		if r := g.post(messagesPath, streamed(askMessage), version); r.StatusCode != 200 || names(r.events(t)) != textEvents {
			t.Errorf("with another replica: %d %s", r.StatusCode, r.body)
		}
	}
}

// What can't be said in a chat is refused here, by its place, and nobody is blamed.
func TestMessagesThatAreNoChats(t *testing.T) {
	g := one(t)
	for what, x := range map[string]string{
		"messages[0].content[0]": `{"model":"llama","max_tokens":5,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]}`,
		"max_tokens":             `{"model":"llama","messages":[{"role":"user","content":"hi"}]}`,
		"tools[0]":               `{"model":"llama","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`,
	} {
		r := g.post(messagesPath, x, version)
		r.refusedAs(t, what, 400, "invalid_request_error")
		if !strings.Contains(r.body, what) {
			t.Errorf("%s: %s", what, r.body)
		}
	}
	if n := len(g.calls()); n != 0 || g.metric("hearsay_replica_inflight") != 0 {
		t.Errorf("%d calls", n)
	}
	if r := g.post(messagesPath, askMessage, version); r.StatusCode != 200 {
		t.Errorf("afterwards: %d %s", r.StatusCode, r.body)
	}
}

// How long a prompt is, is estimated here: no engine is asked.
func TestCountOfTokensIsEstimated(t *testing.T) {
	g := one(t)
	count := func(words int) (n struct {
		Tokens int `json:"input_tokens"`
	},
	) {
		r := g.post(countPath, `{"model":"fast","system":"be brief","tools":[{"name":"f","input_schema":{}}],"messages":[{"role":"user","content":"`+strings.Repeat("word ", words)+`"}]}`, version)
		if err := json.Unmarshal([]byte(r.body), &n); err != nil || r.StatusCode != 200 || r.Header.Get("request-id") == "" {
			t.Fatalf("%d %s: %v", r.StatusCode, r.body, err)
		}
		return n
	}
	if small, large := count(10).Tokens, count(1000).Tokens; small < 5 || large < 800 || large > 3000 {
		t.Errorf("10 words are %d tokens, 1000 words %d", small, large)
	}
	if n := len(g.calls()); n != 0 || g.metric("hearsay_tokens_total") != 0 {
		t.Errorf("%d calls", n)
	}
}

// While an engine is silent the client hears comments, before the answer and within it.
func TestTranslatedMessagesWithHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := startOn(t, w, []func(*call) bool{func(c *call) bool {
			time.Sleep(3500 * time.Millisecond)
			_ = c.write(streamHead + chunk(": waiting\n\n"+role+word[:30]))
			time.Sleep(2500 * time.Millisecond)
			return c.write(chunk(word[30:]) + chunk(finish+done) + lastChunk)
		}}, pool(func(p *node.PoolConfig) { p.Heartbeat = time.Second }))
		r := g.post(messagesPath, streamed(askMessage), version)
		if names(r.events(t)) != textEvents || r.err != nil {
			t.Errorf("%s, %v", r.body, r.err)
		}
		before, behind, _ := strings.Cut(r.body, "event: message_start")
		if strings.Count(before, comment) < 3 || strings.Count(behind, comment) != 3 || strings.ReplaceAll(before, comment, "") != "" {
			t.Errorf("comments: %q", r.body)
		}
	})
}

const comment = ": waiting\n\n"

// An engine that refuses to be asked for usage serves all the same.
func TestMessagesWithoutUsage(t *testing.T) {
	g := start(t, []func(*call) bool{func(c *call) bool {
		if strings.Contains(string(c.body), "stream_options") {
			return c.write(jsonAnswer(400, `{"error":{"message":"stream_options is not permitted","type":"x","code":400}}`))
		}
		return c.write(events(role, word, finish, done))
	}})
	for range 2 {
		if r := g.post(messagesPath, streamed(askMessage), version); r.StatusCode != 200 || names(r.events(t)) != textEvents {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	}
	if n := len(g.calls()); n != 3 {
		t.Errorf("%d calls", n)
	}
}

// The next turn of a translated chat is matched through the answer, too.
func TestNextTurnOfTranslatedMessages(t *testing.T) {
	long := strings.Repeat("many words of an answer ", 300)
	for _, stream := range []bool{false, true} {
		answer := jsonAnswer(200, `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"`+long+`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":900}}`)
		if stream {
			answer = events(role, `data: {"choices":[{"index":0,"delta":{"content":"`+long+`"}}]}`+"\n\n", finish, done)
		}
		g := start(t, []func(*call) bool{says(answer)}, func(c *node.Config) { c.API.Debug = true })
		ask := func(messages string) (n int) {
			r := g.post(messagesPath, `{"model":"llama","max_tokens":5,"stream":`+fmt.Sprint(stream)+`,"messages":[`+messages+`]}`, version, "x-hearsay-debug: 1")
			_, err := fmt.Sscan(r.Header.Get("X-Hearsay-Matched-Tokens"), &n)
			must(t, err)
			return n
		}
		first := `{"role":"user","content":"` + strings.Repeat("ask ", 100) + `"}`
		ask(first)
		if n := ask(first + `,{"role":"assistant","content":[{"type":"text","text":"` + long + `"}]},{"role":"user","content":"more"}`); n < 1500 {
			t.Errorf("streamed %v: the next turn matches %d tokens", stream, n)
		}
		g.stop()
	}
}

// What an engine holds of a chat is found by a client of either API: it is one prompt.
func TestMessagesAndChatsShareWhatEnginesHold(t *testing.T) {
	g := one(t, func(c *node.Config) { c.API.Debug = true })
	long := strings.Repeat("many words of a prompt ", 300)
	g.matched(`{"model":"llama","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"` + long + `"}]}`)
	r := g.post(messagesPath, `{"model":"llama","max_tokens":5,"system":[{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":[{"type":"text","text":"`+long+`"}]}]}`, version, "x-hearsay-debug: 1")
	if n := r.Header.Get("X-Hearsay-Matched-Tokens"); len(n) < 4 {
		t.Errorf("the message matches %s tokens of the chat", n)
	}
}

// What is made of a message takes its body's place in the budget, and is given back.
func TestTranslatedMessagesInTheBudget(t *testing.T) {
	g := one(t, func(c *node.Config) { c.API.MaxBody, c.API.BodyBudget = 300<<10, 300<<10 })
	ask := func(size int) reply {
		return g.post(messagesPath, strings.Replace(askMessage, "be brief", strings.Repeat("x", size), 1), version)
	}
	for range 20 {
		if r := ask(200 << 10); r.StatusCode != 200 {
			t.Fatalf("200 KiB: %d %s", r.StatusCode, r.body)
		}
	}
	for range 3 {
		ask(280<<10).refusedAs(t, "280 KiB, and an eighth more", 503, "overloaded_error")
	}
	if r := ask(200 << 10); r.StatusCode != 200 {
		t.Errorf("afterwards: %d %s", r.StatusCode, r.body)
	}
}

// An engine's own comments are a sign of life to a client of Messages, too.
func TestCommentsBeforeTranslatedMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := startOn(t, w, []func(*call) bool{func(c *call) bool {
			_ = c.write(streamHead + chunk(": PROCESSING\n\n"))
			time.Sleep(time.Second)
			return c.write(chunk(role+word+finish+done) + lastChunk)
		}})
		r := g.post(messagesPath, streamed(askMessage), version)
		if !strings.HasPrefix(r.body, comment) || strings.Contains(r.body, "PROCESSING") || names(r.events(t)) != textEvents || r.err != nil {
			t.Errorf("%q, %v", r.body, r.err)
		}
	})
}

// A whole answer is translated only as long as it can be held.
func TestLongAnswersAreNotTranslated(t *testing.T) {
	long := func(size int) string { return strings.Replace(good, "Hi", strings.Repeat("x", size), 1) }
	g := start(t, []func(*call) bool{says(jsonAnswer(200, long(17<<20))), says(jsonAnswer(200, long(17<<20)))})
	g.post(messagesPath, askMessage, version).refusedAs(t, "17 MiB", 502, "api_error")
	if n := len(g.calls()); n != 1 {
		t.Errorf("%d calls: another replica's answer would be as long", n)
	}
	g.stop()
	g = start(t, []func(*call) bool{says(jsonAnswer(200, long(3<<20)))})
	if r := g.post(messagesPath, askMessage, version); r.StatusCode != 200 || len(r.body) < 3<<20 || r.err != nil {
		t.Errorf("3 MiB: %d, %d bytes, %v", r.StatusCode, len(r.body), r.err)
	}
}
