package requests

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// passes sends a body and checks that the engine gets it byte for byte, at the same
// path, once.
func (g *router) passes(path, body string, fields ...string) reply {
	g.t.Helper()
	before := len(g.calls())
	r := g.post(path, body, fields...)
	if r.StatusCode != 200 {
		g.t.Errorf("%.200s: %d %.300q", body, r.StatusCode, r.body)
		return r
	}
	list := g.calls()
	if len(list) != before+1 {
		g.t.Errorf("%.200s: %d calls", body, len(list)-before)
		return r
	}
	if c := g.last(); string(c.body) != body || c.path() != path {
		g.t.Errorf("sent %.300q to %s, the engine got %.300q at %s", body, path, c.body, c.path())
	}
	return r
}

func TestB01ToolsAndToolMessages(t *testing.T) {
	g := one(t, func(c *node.Config) { c.API.Debug = true })
	tools := `"tools":[{"type":"function","function":{"name":"get","description":"` + strings.Repeat("long ", 200) + `","parameters":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"integer"}}}}}]`
	body := func(tools string) string {
		return `{"model":"llama",` + tools + `,"tool_choice":{"type":"function","function":{"name":"get"}},"parallel_tool_calls":true,"messages":[
{"role":"user","content":"Weather?"},
{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get","arguments":"{\"b\": \"x\\n\",  \"a\":1}"}},{"id":"call_2","type":"function","function":{"name":"get","arguments":"{ not json"}}]},
{"role":"tool","tool_call_id":"call_1","content":"12\u00b0"},{"role":"tool","tool_call_id":"call_2","content":[{"type":"text","text":"` + strings.Repeat("rain ", 300) + `"}]}]}`
	}
	debug := "x-hearsay-debug: 1"
	g.passes(chatPath, body(tools), debug)
	same := g.matched(body(tools))
	other := g.matched(body(strings.Replace(tools, "get", "set", 1)))
	if same < 400 || other != 0 {
		t.Errorf("matched %d tokens of the same tools, %d of others", same, other)
	}
}

// matched sends a chat and returns how much of its prompt a replica was believed to
// hold, in tokens.
func (g *router) matched(body string, fields ...string) int {
	g.t.Helper()
	r := g.chat(body, append(fields, "x-hearsay-debug: 1")...)
	n, err := strconv.Atoi(r.Header.Get("X-Hearsay-Matched-Tokens"))
	if err != nil || r.StatusCode != 200 {
		g.t.Fatalf("%d %v: %.300q", r.StatusCode, err, r.body)
	}
	return n
}

func TestB03LegacyFunctions(t *testing.T) {
	g := one(t)
	g.passes(chatPath, `{"model":"llama","functions":[{"name":"f","parameters":{"z":1,"a":2}}],"function_call":{"name":"f"},"messages":[{"role":"function","name":"f","content":"1"}]}`)
	g.passes(chatPath, `{"model":"llama","functions":[],"function_call":"auto","messages":[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"a\" : 1}"}}]}`)
}

func TestB06LogprobsAndEcho(t *testing.T) {
	big := `{"choices":[{"index":0,"text":"x","logprobs":[` + strings.Repeat(`{"token":"x","logprob":-0.5,"top":[]},`, 60_000) + `{}]}],"usage":{"prompt_tokens":70,"completion_tokens":5,"total_tokens":75}}`
	g := start(t, []func(*call) bool{says(jsonAnswer(200, big))})
	for _, x := range []struct{ path, body string }{
		{chatPath, `{"model":"llama","logprobs":true,"top_logprobs":20,"messages":[]}`},
		{promptPath, `{"model":"llama","prompt":"a","prompt_logprobs":1,"logprobs":5}`},
		{promptPath, `{"model":"llama","prompt":"a","echo":true,"logprobs":5,"max_tokens":0}`},
	} {
		if r := g.passes(x.path, x.body); r.body != big || r.err != nil {
			t.Errorf("%s: %d bytes of %d, %v", x.body, len(r.body), len(big), r.err)
		}
	}
	if n := g.metric("hearsay_tokens_total", `type="output"`); n != 15 {
		t.Errorf("%v output tokens counted of 15", n)
	}
}

func TestB07StructuredOutput(t *testing.T) {
	refusal := `{"object":"error","message":"bad schema: no \"type\"","type":"BadRequestError","param":null,"code":400}`
	g := start(t, []func(*call) bool{func(c *call) bool {
		if strings.Contains(string(c.body), "bad") {
			return c.write(jsonAnswer(400, refusal))
		}
		return serves(c)
	}, serves}, pool(func(p *node.PoolConfig) { p.Retry.Attempts = 3 }))
	for _, field := range []string{
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object","properties":{"z":{"$ref":"#/$defs/q"},"a":{"type":"array","items":{"enum":[1,1.0,"\u0031"]}}},"required":["z","a"],"$defs":{"q":{}}}}}`,
		`"response_format":{"type":"json_object"}`,
		`"guided_json":{"b":1,"a":[true,null]}`,
		`"guided_json":"{\"a\":1}"`,
		`"grammar":"root ::= \"a\" | \"b\"\n"`,
		`"structured_outputs":{"regex":"\\d+"}`,
	} {
		body := `{"model":"llama",` + field + `,"messages":[{"role":"user","content":"x"}]}`
		if r := g.chat(body); r.StatusCode != 200 {
			t.Errorf("%s: %d %q", field, r.StatusCode, r.body)
		}
		found := 0
		for _, c := range g.calls() {
			if string(c.body) == body {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: arrived %d times", field, found)
		}
	}
	for range 8 {
		before := len(g.calls())
		r := g.chat(`{"model":"llama","guided_json":"bad","messages":[]}`)
		if r.StatusCode == 200 { // the other engine took it
			continue
		}
		if n := len(g.calls()) - before; r.StatusCode != 400 || r.body != refusal || n != 1 {
			t.Errorf("refused: %d %q after %d calls", r.StatusCode, r.body, n)
		}
	}
}

// What the engine gets differs in one documented field only: usage is asked for
// where the client did not.
func TestB08StreamOptions(t *testing.T) {
	g := one(t)
	f := func(options, want string, usage bool) {
		t.Helper()
		body := func(o string) string { return `{"model":"llama","stream":true` + o + `,"messages":[]}` }
		r := g.chat(body(options))
		if r.StatusCode != 200 || strings.Contains(r.body, `"usage"`) != usage || !strings.HasSuffix(r.body, done) {
			t.Errorf("%s: %d %q", options, r.StatusCode, r.body)
		}
		if got := string(g.last().body); got != strings.Replace(body(want), "|", "", 1) {
			t.Errorf("%s: the engine got %s", options, got)
		}
	}
	f(`,"stream_options":{"include_usage":true}`, `,"stream_options":{"include_usage":true}`, true)
	f(`,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, true)
	f(`,"stream_options":{"include_usage":false}`, `,"stream_options":{"include_usage":true}`, false)
	f(`,"stream_options":{}`, `,"stream_options":{"include_usage":true}`, false)
	f(`,"stream_options":null`, `,"stream_options":{"include_usage":true}`, false)
	f(`,"stream_options": {"continuous_usage_stats":false}`, `,"stream_options": {"include_usage":true,"continuous_usage_stats":false}`, false)
	if r := g.chat(`{"model":"llama","stream":true,"messages":[]}`); strings.Contains(r.body, `"usage"`) {
		t.Errorf("none: %q", r.body)
	}
	if got := string(g.last().body); got != `{"stream_options":{"include_usage":true},"model":"llama","stream":true,"messages":[]}` {
		t.Errorf("none: the engine got %s", got)
	}
	for _, o := range []string{`{"include_usage":true}`, `true`, `false`, `"x"`, `{}`, `null`} {
		g.passes(chatPath, `{"model":"llama","stream":false,"stream_options":`+o+`,"messages":[]}`)
		g.passes(chatPath, `{"model":"llama","stream_options":`+o+`,"messages":[]}`)
	}
	before := len(g.calls())
	for _, o := range []string{"true", "false", `"x"`, "1", "[]", `{"include_usage":1}`, `{"include_usage":true,"include_usage":false}`} {
		g.chat(`{"model":"llama","stream":true,"stream_options":`+o+`,"messages":[]}`).refused(t, o, 400, "")
	}
	if n := len(g.calls()) - before; n != 0 {
		t.Errorf("%d calls of refused requests", n)
	}
}

func TestB09StreamOfAnotherType(t *testing.T) {
	g := one(t)
	for _, path := range []string{chatPath, promptPath} {
		for _, v := range []string{`"true"`, `"false"`, "1", "0", "[]", "{}"} {
			g.post(path, `{"model":"llama","stream":`+v+`}`).refused(t, v, 400, "")
		}
	}
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
	for _, v := range []string{"null", "false"} {
		if r := g.passes(chatPath, `{"model":"llama","stream":`+v+`,"messages":[]}`); r.Header.Get("Content-Type") != "application/json" || r.body != good {
			t.Errorf("%s: %v %q", v, r.Header, r.body)
		}
	}
}

func TestB10CompletionPrompts(t *testing.T) {
	const refusal = `{"error":{"message":"prompt is mixed","type":"BadRequestError","param":null,"code":400}}`
	var batch strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&batch, `{"index":%d,"text":"t","finish_reason":"stop"},`, i)
	}
	all := `{"object":"text_completion","choices":[` + strings.TrimSuffix(batch.String(), ",") + `],"usage":{"prompt_tokens":5000,"completion_tokens":1000,"total_tokens":6000}}`
	g := start(t, []func(*call) bool{func(c *call) bool {
		switch b := string(c.body); {
		case strings.Contains(b, `"mixed"`):
			return c.write(jsonAnswer(400, refusal))
		case strings.Contains(b, "batch"):
			return c.write(jsonAnswer(200, all))
		}
		return c.write(jsonAnswer(200, good))
	}}, func(c *node.Config) { c.API.Debug = true })
	for _, prompt := range []string{`"x"`, `["x","y"]`, `[1,2,3]`, `[[1,2],[3]]`, `""`, `[]`, `["",""]`, `[[]]`, `null`} {
		g.passes(promptPath, `{"model":"llama","prompt":`+prompt+`}`)
	}
	g.passes(promptPath, `{"model":"llama"}`)
	before := len(g.calls())
	if r := g.post(promptPath, `{"model":"llama","prompt":["mixed",1,[2]]}`); r.StatusCode != 400 || r.body != refusal {
		t.Errorf("mixed: %d %q", r.StatusCode, r.body)
	}
	if n := len(g.calls()) - before; n != 1 {
		t.Errorf("mixed: %d calls", n)
	}
	// A batch is one call, and counts all its tokens.
	prompts := `["batch of prompts with some words",` + strings.Repeat(`"a prompt of several words",`, 998) + `"the last"]`
	r := g.passes(promptPath, `{"model":"llama","prompt":`+prompts+`}`, "x-hearsay-debug: 1")
	if n, err := strconv.Atoi(r.Header.Get("X-Hearsay-Prompt-Tokens")); err != nil || n < 3000 || r.body != all {
		t.Errorf("a batch of 1000 counts %d tokens, %v; %d bytes of %d", n, err, len(r.body), len(all))
	}
	// Token ids are matched by their own key.
	ids := `[` + strings.Repeat("12345,", 600) + `1]`
	f := func(prompt string) string {
		return g.post(promptPath, `{"model":"llama","prompt":`+prompt+`}`, "x-hearsay-debug: 1").Header.Get("X-Hearsay-Matched-Tokens")
	}
	f(ids)
	same, text := f(ids), f(`"`+ids+`"`)
	if n, err := strconv.Atoi(same); err != nil || n < 400 || text != "0" {
		t.Errorf("matched %s of the same ids, %s of their text", same, text)
	}
}

func TestB11Embeddings(t *testing.T) {
	vectors := `{"object":"list","data":[` + strings.Repeat(`{"object":"embedding","index":0,"embedding":"`+strings.Repeat("QUJD", 2000)+`"},`, 2500) +
		`{"index":1}],"usage":{"prompt_tokens":4096,"total_tokens":4096}}`
	g := start(t, []func(*call) bool{says(jsonAnswer(200, vectors))})
	for i, in := range []string{
		`[` + strings.Repeat(`"some text",`, 2047) + `"last"],"encoding_format":"base64","dimensions":256`,
		`[[1,2,3],[4]],"encoding_format":"float"`, `[1,2,3]`, `"x"`,
	} {
		r := g.passes(embedPath, `{"model":"llama","input":`+in+`}`)
		if r.body != vectors || r.err != nil {
			t.Errorf("input %d: %d bytes of %d, %v", i, len(r.body), len(vectors), r.err)
		}
	}
	if in, out := g.metric("hearsay_tokens_total", `type="input"`), g.metric("hearsay_tokens_total", `type="output"`); in != 4*4096 || out != 0 {
		t.Errorf("counted %v and %v tokens", in, out)
	}
}

// Nothing unknown is dropped, added or respelled, wherever it stands.
func TestB15UnknownFields(t *testing.T) {
	g := one(t)
	for _, body := range []string{
		`{"zz":1e400, "model" : "llama","messages":[{"role":"user","content":"x","zz":{"a":[1,2.50,-0,1E+2]}}],"zz":2}`,
		`{"model":"llama","tools":[{"type":"function","zz":1,"function":{"name":"f","zz":null}}],"messages":[{"role":"user","content":[{"type":"text","text":"a","zz":1},{"type":"zz","zz":{"deep":[{}]}}]}]}`,
		"{\n\t\"model\":\"llama\",\r\n \"\\u007a\\/\":\"\\ud83d\\ude00 \u2028\", \"messages\":[]\n}\n",
	} {
		g.passes(chatPath, body)
	}
	g.passes(promptPath, `{"model":"llama","prompt":"a","zz":[{"model":"no"}]}`)
	g.passes(embedPath, `{"model":"llama","input":"a","zz":{"stream":"no"}}`)
}

func TestB26OddMessages(t *testing.T) {
	const refusal = `{"error":{"message":"no messages","type":"invalid_request_error","param":"messages","code":null}}`
	g := start(t, []func(*call) bool{func(c *call) bool {
		if strings.Contains(string(c.body), `"messages":[]`) {
			return c.write(jsonAnswer(400, refusal))
		}
		return serves(c)
	}})
	if r := g.chat(`{"model":"llama","messages":[]}`); r.StatusCode != 400 || r.body != refusal {
		t.Errorf("no messages: %d %q", r.StatusCode, r.body)
	}
	for _, m := range []string{
		`{"role":"user","content":""}`, `{"role":"user","content":[]}`, `{"role":"system","content":"only"}`, `{"role":"assistant","content":null}`,
		`{"role":"assistant"}`, `{"content":"x"}`, `{}`, `{"role":"developer","content":"x"}`, `{"role":7,"content":{"a":1}}`, `{"role":null,"content":true}`,
		`{"role":"user","content":[null,1,"x",{},[]]}`, `{"role":"user","content":[{"type":"text"},{"type":"text","text":null},{"text":"x"}]}`,
		`{"role":"assistant","tool_calls":null}`, `{"role":"assistant","tool_calls":[null,{},{"function":null},{"function":{"arguments":{}}}]}`,
	} {
		g.passes(chatPath, `{"model":"llama","messages":[`+m+`]}`)
	}
	g.passes(chatPath, `{"model":"llama"}`)
}

func TestB31MaxTokens(t *testing.T) {
	g := one(t)
	for _, v := range []string{"0", "-1", "1e9", "1000000000", `"10"`, "10.5", "null", "9223372036854775808", "99999999999999999999999", "-9223372036854775808", "[]"} {
		g.passes(chatPath, `{"model":"llama","max_tokens":`+v+`,"messages":[]}`)
		g.passes(chatPath, `{"model":"llama","max_tokens":5,"max_completion_tokens":`+v+`,"messages":[]}`)
		g.passes(promptPath, `{"model":"llama","max_tokens":`+v+`,"prompt":"x"}`)
	}
	// Whatever was asked for is given back.
	until(t, "nothing in flight", func() bool { return g.metric("hearsay_replica_inflight") == 0 })
}

func TestB33FieldsForTheEngine(t *testing.T) {
	g := one(t, func(c *node.Config) { c.API.Debug = true })
	for _, f := range []string{
		`"priority":5`, `"priority":-5`, `"priority":"high"`, `"user":"u\u00e9"`, `"user":7`, `"safety_identifier":"s"`, `"metadata":{"a":"b"}`, `"service_tier":"flex"`,
		`"cache_salt":"s"`, `"session_id":"x"`, `"prompt_cache_key":"k"`, `"store":true`, `"seed":1`,
	} {
		g.passes(chatPath, `{"model":"llama",`+f+`,"messages":[{"role":"user","content":"x"}]}`)
	}
	body := func(salt string) string {
		return `{"model":"llama",` + salt + `"messages":[{"role":"user","content":"` + strings.Repeat("some words ", 300) + `"}]}`
	}
	g.matched(body(`"cache_salt":"a",`))
	same, other, none := g.matched(body(`"cache_salt":"a",`)), g.matched(body(`"cache_salt":"b",`)), g.matched(body(""))
	if same < 400 || other != 0 || none != 0 {
		t.Errorf("matched %d tokens under the same salt, %d under another, %d without", same, other, none)
	}
}

// Fields nobody knows have the same values by a plain name, an alias, another
// upstream name and after a retry.
func TestC66UnknownFieldsByEveryWay(t *testing.T) {
	const rest = `,"chat_template_kwargs":{"enable_thinking":false},"return_token_ids":true,"top_k":20,"min_p":0.050,"nvext":{"annotations":["a"]},` +
		`"reasoning_effort":"low","extra":{"deep":[1,{"x":null}]},"messages":[{"role":"user","content":"Hello"}]}`
	var failed atomic.Bool
	flaky := func(c *call) bool {
		if strings.Contains(string(c.body), "flaky") && !failed.Swap(true) {
			return false // closes without a word, after the request was read
		}
		return serves(c)
	}
	g := start(t, []func(*call) bool{flaky, flaky}, pool(func(p *node.PoolConfig) { p.UpstreamModel = "../models/x.gguf" }))
	for _, way := range []string{`{"model":"llama"`, `{ "model" :"fast" `, `{"user":"flaky","model":"llama"`} {
		before := g.calls()
		if r := g.chat(way + rest); r.StatusCode != 200 {
			t.Errorf("%s: %d %q", way, r.StatusCode, r.body)
		}
		want := strings.NewReplacer(`"llama"`, `"../models/x.gguf"`, `"fast"`, `"../models/x.gguf"`).Replace(way) + rest
		n := 0
		for _, c := range g.calls() {
			if string(c.body) == want {
				n++
			}
		}
		if got := len(g.calls()) - len(before); n == 0 || n != got || strings.Contains(way, "flaky") != (got == 2) {
			t.Errorf("%s: %d of %d calls as they should be", way, n, got)
		}
	}
	if !failed.Load() {
		t.Error("nothing was retried")
	}
	// A stream has one field more.
	g.chat(`{"model":"llama","stream":true` + rest)
	n := 0
	for _, c := range g.calls() {
		if string(c.body) == `{"stream_options":{"include_usage":true},"model":"../models/x.gguf","stream":true`+rest {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the stream arrived %d times", n)
	}
}
