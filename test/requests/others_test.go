package requests

import (
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// Paths that are passed through reach a replica at the same path with the same
// bytes, and what it answers comes back as it is, whatever it is.
func TestB12PathsThatArePassedThrough(t *testing.T) {
	var engine script
	g := start(t, []func(*call) bool{engine.answer},
		pool(func(p *node.PoolConfig) { p.UpstreamModel = "org/llama" }), func(c *node.Config) { c.API.Debug = true })
	// What engines count of such bodies says nothing of how many tokens a prompt has.
	tokens := func() string {
		t.Helper()
		engine.next(jsonAnswer(200, `{"choices":[]}`), true)
		return g.chat(`{"model":"llama","messages":[{"role":"user","content":"`+strings.Repeat("some words ", 500)+`"}]}`, "x-hearsay-debug: 1").Header.Get("X-Hearsay-Prompt-Tokens")
	}
	estimate := tokens()
	f := func(path, body, ct, says string) {
		t.Helper()
		engine.next(answered(200, ct, says), true)
		r := g.post(path, body)
		if r.StatusCode != 200 || r.body != says || r.Header.Get("Content-Type") != ct {
			t.Errorf("%s: %d %v %.200q", path, r.StatusCode, r.Header, r.body)
		}
		if c := g.last(); c.path() != path || string(c.body) != strings.Replace(body, `"llama"`, `"org/llama"`, 1) {
			t.Errorf("%s: the engine got %.300q at %s", path, c.body, c.path())
		}
	}
	const json = "application/json"
	documents := `["` + strings.Repeat("some text ", 20_000) + `","b"]`
	for _, path := range []string{"/v1/rerank", "/v2/rerank", "/rerank"} {
		f(path, `{"model":"llama","query":"q","documents":`+documents+`,"top_n":1}`, json, `{"results":[{"index":1,"relevance_score":0.5}],"usage":{"prompt_tokens":9,"total_tokens":9}}`)
	}
	if now := tokens(); estimate == "" || now != estimate {
		t.Errorf("a prompt of %s tokens is one of %s now", estimate, now)
	}
	f("/rerank", `{"model":"llama","query":"q","texts":["a"]}`, json, `[{"index":0,"score":0.5}]`)
	f("/v1/score", `{"model":"llama","text_1":"a","text_2":["b"]}`, json, `{"data":[]}`)
	f("/score", `{"model":"llama","text_1":"a","text_2":["b"]}`, json, `{"data":[]}`)
	f("/tokenize", `{"model":"llama","messages":"not looked at","tools":1,"n":0}`, json, `{"count":3,"tokens":[1,2,3]}`)
	f("/detokenize", `{"model":"llama","tokens":[1]}`, json, `{"prompt":"a"}`)
	// vLLM's, SGLang's and llama.cpp's own.
	for _, path := range []string{
		"/v1/classify", "/classify", "/pooling", "/encode", "/v2/embed", "/v1/reranking", "/reranking",
		"/v1/tokenize", "/v1/detokenize", "/apply-template", "/completion", "/infill", "/v1/moderations", "/v1/images/generations", "/v1/images/edits",
	} {
		f(path, `{"model":"llama","input":"a"}`, json, `{"data":[]}`)
	}
	f("/v1/audio/speech", `{"model":"llama","input":"a","voice":"b"}`, "audio/mpeg", "\xff\xf3\x00{\r\n\r\n"+strings.Repeat("\x00\x01", 1<<20))
	// Engines' own interfaces name no model: the only one is meant.
	f("/generate", `{"text":"a","sampling_params":{"max_new_tokens":5}}`, json, `[{"text":"b"}]`)
	f("/tokenize", `{"prompt":"a"}`, json, `{"count":1}`)

	answer := "data: {\"text\":\"a\"}\n\n" + done
	engine.next(answered(200, "text/event-stream", answer), true)
	body := `{"text":"a","stream":true}`
	if r := g.post("/generate", body); r.body != answer || r.err != nil || string(g.last().body) != body {
		t.Errorf("stream: %q, %v; the engine got %s", r.body, r.err, g.last().body)
	}
	before := len(g.calls())
	c := g.dial()
	for _, path := range []string{
		"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/realtime", "/v1/files", "/v1/batches", "/v1/rerank/", "/V1/rerank", "/reset_prefix_cache", "/flush_cache",
	} {
		c.do(post(path, ask)).refused(t, path, 404, "unknown_url")
	}
	c.do(post("/v1/rerank", `{"model":"nobody"}`)).refused(t, "unknown model", 404, "model_not_found")
	c.do(post("/v1/rerank", `{"model":7}`)).refused(t, "no name", 400, "")
	c.do(post("/v1/rerank", `{`)).refused(t, "no JSON", 400, "invalid_json")
	c.do(get("/v1/rerank")).refused(t, "GET", 405, "method_not_allowed")
	if n := len(g.calls()) - before; n != 0 {
		t.Errorf("%d calls", n)
	}
	until(t, "nothing in flight", func() bool { return g.metric("hearsay_replica_inflight") == 0 })
}

func TestB12SeveralModelsAndNoneNamed(t *testing.T) {
	g := one(t, func(c *node.Config) {
		c.Pools = append(c.Pools, node.PoolConfig{Name: "other", Model: "other", Engine: "openai", Replicas: []node.ReplicaConfig{{URL: "http://127.0.0.1:1"}}})
	})
	g.post("/tokenize", `{"prompt":"a"}`).refused(t, "tokenize", 400, "")
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A form's model is found wherever it stands. Its file is not altered, nor is its
// boundary; only the model's name is, where the engine has another.
func TestB12Forms(t *testing.T) {
	const transcript = "1\n00:00:00,000 --> 00:00:01,000\nhello\n"
	g := start(t, []func(*call) bool{says(answered(200, "text/plain; charset=utf-8", transcript))},
		pool(func(p *node.PoolConfig) { p.UpstreamModel = "openai/whisper" }))
	const boundary = "----x'()+_,-./:=?1"
	part := func(head, value string) string {
		return "--" + boundary + "\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + value + "\r\n"
	}
	file := part("name=\"file\"; filename=\"a \\\"b\\\".wav\"\r\nContent-Type: audio/wav", "RIFF\x00\r\n--\r\n\r\n----x'()\r\nname=\"model\"\r\n"+strings.Repeat("\x00\xff\r\n", 1<<18))
	format := part(`name="response_format"`, "srt")
	model := func(name string) string { return part(`name="model"`, name) }
	end := "--" + boundary + "--\r\n"
	field := `multipart/form-data; boundary="` + boundary + `"`
	send := func(path, body, ct string) string {
		return strings.Replace(post(path, body), "application/json", ct, 1)
	}
	for what, form := range map[string]func(name string) string{
		"behind the file":   func(m string) string { return file + format + model(m) + end },
		"before the file":   func(m string) string { return model(m) + file + end },
		"in the middle":     func(m string) string { return format + model(m) + file + end },
		"behind a preamble": func(m string) string { return "preamble\r\n" + file + model(m) + end + "epilogue" },
	} {
		for _, path := range []string{"/v1/audio/transcriptions", "/v1/audio/translations"} {
			r := g.do(send(path, form("llama"), field))
			if r.StatusCode != 200 || r.body != transcript || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%s: %d %q", what, r.StatusCode, r.body)
				continue
			}
			if c := g.last(); c.path() != path || string(c.body) != form("openai/whisper") || c.fields.Get("Content-Type") != field {
				t.Errorf("%s: the engine got %d bytes of type %q at %s", what, len(c.body), c.fields.Get("Content-Type"), c.path())
			}
		}
	}
	// In chunks, and compressed.
	whole := file + model("fast") + end
	if r := g.do(strings.Replace(chunked("/v1/audio/transcriptions", whole, 1000), "application/json", field, 1)); r.StatusCode != 200 || string(g.last().body) != file+model("openai/whisper")+end {
		t.Errorf("in chunks: %d %q", r.StatusCode, r.body)
	}
	if r := g.do(send("/v1/audio/transcriptions", pack(t, "gzip", whole), field+"\r\nContent-Encoding: gzip")); r.StatusCode != 200 || string(g.last().body) != file+model("openai/whisper")+end {
		t.Errorf("compressed: %d %q", r.StatusCode, r.body)
	}
	before := len(g.calls())
	c := g.dial()
	for what, x := range map[string]struct {
		request string
		status  int
		code    string
	}{
		"no model":       {send("/v1/audio/transcriptions", file+end, field), 400, ""},
		"model twice":    {send("/v1/audio/transcriptions", model("llama")+file+model("other")+end, field), 400, ""},
		"unknown model":  {send("/v1/audio/transcriptions", model("nobody")+end, field), 404, "model_not_found"},
		"cut":            {send("/v1/audio/transcriptions", model("llama")+file[:len(file)-9], field), 400, "invalid_form"},
		"other boundary": {send("/v1/audio/transcriptions", model("llama")+end, "multipart/form-data; boundary=zz"), 400, "invalid_form"},
		"no boundary":    {send("/v1/audio/transcriptions", model("llama")+end, "multipart/form-data"), 415, "unsupported_media_type"},
		"mixed":          {send("/v1/audio/transcriptions", model("llama")+end, "multipart/mixed; boundary=x"), 415, "unsupported_media_type"},
		"a form to chat": {send(chatPath, model("llama")+end, field), 415, "unsupported_media_type"},
	} {
		c.do(x.request).refused(t, what, x.status, x.code)
	}
	if n := len(g.calls()) - before; n != 0 {
		t.Errorf("%d calls", n)
	}
}
