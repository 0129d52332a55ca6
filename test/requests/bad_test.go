package requests

import (
	"strings"
	"testing"
)

// refuses checks that bodies are refused before any replica hears of them, on every
// endpoint, and that the connection goes on.
func (g *router) refuses(status int, code string, bodies ...string) {
	g.t.Helper()
	c := g.dial()
	before := len(g.calls())
	for _, path := range []string{chatPath, promptPath, embedPath} {
		for _, b := range bodies {
			what := path + " " + b[:min(len(b), 80)]
			c.do(post(path, b)).refused(g.t, what, status, code)
		}
	}
	if n := len(g.calls()) - before; n != 0 {
		g.t.Errorf("%d calls of refused requests", n)
	}
	if r := c.do(post(chatPath, ask)); r.StatusCode != 200 || r.body != good {
		g.t.Errorf("afterwards: %d %q", r.StatusCode, r.body)
	}
	if n := g.metric("hearsay_tokens_total"); n != 12*g.metric("hearsay_requests_total", `code="200"`) {
		g.t.Errorf("%v tokens counted", n)
	}
}

func nested(open, shut string, n int) string {
	return strings.Repeat(open, n) + strings.Repeat(shut, n)
}

func TestB18DeepNesting(t *testing.T) {
	g := one(t)
	inside := func(v string) string { return `{"model":"llama","messages":[],"metadata":` + v + `}` }
	object := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	// 512 levels in all, the body's own braces included.
	for _, v := range []string{nested("[", "]", 100), object(100), nested("[", "]", 511), object(511)} {
		g.passes(chatPath, inside(v))
		g.passes(chatPath, `{"model":"llama","messages":[],"tools":[{"parameters":`+v[:0]+nested("[", "]", 100)+`}]}`)
	}
	for _, v := range []string{nested("[", "]", 512), object(512), nested("[", "]", 1000), object(1000), nested("[", "]", 100_000), object(100_000), strings.Repeat("[", 100_000)} {
		g.refuses(400, "invalid_json", inside(v), `{"model":"llama","messages":[],"tools":[{"parameters":`+v+`}]}`)
	}
}

func TestB19ByteOrderMark(t *testing.T) {
	g := one(t)
	const bom = "\xef\xbb\xbf"
	g.passes(chatPath, bom+ask)
	g.passes(promptPath, bom+`{"model":"llama","prompt":"x"}`)
	g.passes(embedPath, bom+`{"model":"llama","input":"x"}`)
	g.refuses(400, "invalid_json", bom+bom+ask, bom+"{", " "+bom+ask, ask+bom)
	g.refuses(400, "", bom)
}

func TestB20OtherCharsets(t *testing.T) {
	g := one(t)
	var le, be strings.Builder
	for _, c := range []byte(ask) {
		le.Write([]byte{c, 0})
		be.Write([]byte{0, c})
	}
	g.refuses(400, "invalid_json", le.String(), be.String(), "\xff\xfe"+le.String(), "\xfe\xff"+be.String())
	for _, cs := range []string{"utf-16", "UTF-16LE", "gbk", `"latin1"`, "utf-32"} {
		for _, path := range []string{chatPath, promptPath, embedPath} {
			r := g.do(strings.Replace(post(path, ask), "application/json", "application/json; charset="+cs, 1))
			r.refused(t, cs, 415, "unsupported_media_type")
		}
	}
	before := len(g.calls())
	for _, ct := range []string{"application/json; charset=utf-8", `application/json;charset="UTF-8"`, "application/json; charset=us-ascii; x=y", "Application/JSON", "application/vnd.x+json"} {
		if r := g.do(strings.Replace(post(chatPath, ask), "application/json", ct, 1)); r.StatusCode != 200 {
			t.Errorf("%s: %d %q", ct, r.StatusCode, r.body)
		}
	}
	if n := len(g.calls()) - before; n != 5 {
		t.Errorf("%d calls of 5", n)
	}
}

func TestB21NotQuiteJSON(t *testing.T) {
	g := one(t)
	g.passes(chatPath, ask+"\n")
	g.passes(chatPath, " \r\n\t"+ask+"  \r\n\t ")
	g.refuses(400, "invalid_json",
		ask+" {}", ask+ask, ask+"x", ask+"\x00", ask[:len(ask)-1]+",}", `{"model":"llama","messages":[],}`, `{"model":"llama","x":[1,]}`,
		`{"model":"llama" /* c */,"messages":[]}`, "{\"model\":\"llama\" // c\n,\"messages\":[]}", `{"model":"llama","x":NaN}`, `{"model":"llama","x":Infinity}`,
		`{"model":"llama","x":-}`, `{"model":"llama","x":01}`, `{"model":"llama","x":.5}`, `{"model":"llama","x":0x1}`, `{'model':'llama'}`, `{model:"llama"}`,
		"{\"model\":\"llama\",\"x\":\"a\nb\"}", `{"model":"llama","x":"\q"}`, `{"model":"llama","x":"\u12"}`, `{"model":"llama","x":True}`, `{"model" "llama"}`, "\v"+ask)
}

func TestB23InvalidUTF8(t *testing.T) {
	g := one(t)
	for _, s := range []string{"\xc3", "\xc3(", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xed\xb0\x80", "\xf4\x90\x80\x80", "\xff", "\x80"} {
		g.refuses(400, "invalid_json",
			`{"model":"llama","messages":[{"role":"user","content":"`+s+`"}]}`, `{"model":"llama","messages":[],"`+s+`":1}`, `{"model":"llama","metadata":{"a":["`+s+`"]}}`)
	}
	g.refuses(400, "invalid_json", "{\"model\":\"llama\",\"prompt\":\"caf\xc3")
	// A lone surrogate as an escape is valid JSON text, if no character.
	g.passes(chatPath, `{"model":"llama","messages":[{"role":"user","content":"\ud800"}]}`)
}

func TestC71BadInputIs400(t *testing.T) {
	g := one(t)
	g.refuses(400, "invalid_json", "{", `"x`, "{]", "nul")
	g.refuses(400, "", "", "  ", "[]", "null", `"x"`, "1", `{}`, `{"messages":[]}`, `{"model":1}`, `{"model":""}`, `{"model":null}`, `{"model":["llama"]}`,
		`{"model":"llama","stream":"true"}`, `{"model":"llama","n":0}`, `{"model":"llama","n":-1}`, `{"model":"llama","n":1.5}`, `{"model":"llama","n":"2"}`,
		`{"model":"llama","model":"llama"}`, `{"model":"llama","mod\u0065l":"other"}`, `{"model":"llama","tools":"x"}`, `{"model":"llama","messages":"x"}`, `{"model":"llama","messages":[null]}`)
	c := g.dial()
	for _, x := range []struct {
		what, request string
		status        int
		code          string
	}{
		{"GET on a POST path", get(chatPath), 405, "method_not_allowed"},
		{"DELETE", strings.Replace(get(chatPath), "GET", "DELETE", 1), 405, "method_not_allowed"},
		{"PUT with a body", strings.Replace(post(promptPath, ask), "POST", "PUT", 1), 405, "method_not_allowed"},
		{"POST on the list of models", post("/v1/models", ask), 405, "method_not_allowed"},
		{"text/plain", strings.Replace(post(chatPath, ask), "application/json", "text/plain", 1), 415, "unsupported_media_type"},
		{"a form", strings.Replace(post(chatPath, "model=llama"), "application/json", "application/x-www-form-urlencoded", 1), 415, "unsupported_media_type"},
		{"multipart", strings.Replace(post(chatPath, "--x--"), "application/json", "multipart/form-data; boundary=x", 1), 415, "unsupported_media_type"},
		{"unknown path", post("/v2/chat/completions", ask), 404, "unknown_url"},
		{"root", get("/"), 404, "unknown_url"},
		{"admin", get("/admin/v1/status"), 404, "unknown_url"},
		{"admin through dots", get("/v1/../admin/v1/status"), 404, "unknown_url"},
		{"metrics", get("/metrics"), 404, "unknown_url"},
		{"trailing slash", post(chatPath+"/", ask), 404, "unknown_url"},
		{"unknown model", post(chatPath, `{"model":"nobody","messages":[]}`), 404, "model_not_found"},
	} {
		r := c.do(x.request)
		r.refused(t, x.what, x.status, x.code)
		if x.what == "text/plain" && !strings.Contains(r.body, "Content-Type 'text/plain' is not supported") {
			t.Errorf("415 does not say what came: %s", r.body)
		}
		if x.status == 405 && r.Header.Get("Allow") == "" {
			t.Errorf("%s: 405 names no methods", x.what)
		}
	}
	if n := len(g.calls()); n != 2 { // those of refuses itself
		t.Errorf("%d calls", n)
	}
}

// A replica's errors reach clients in a shape they can read: JSON as it came, the
// rest in this API's, a client's mistake as one.
func TestC71OddErrorsOfReplicas(t *testing.T) {
	var engine script
	g := start(t, []func(*call) bool{engine.answer})
	f := func(what, answer string, status int, code, body string) {
		t.Helper()
		engine.next(answer, true)
		r := g.chat(ask)
		if body != "" {
			if r.StatusCode != status || r.body != body {
				t.Errorf("%s: got %d %q", what, r.StatusCode, r.body)
			}
			return
		}
		r.refused(t, what, status, code)
		for _, inside := range []string{"upstream connect", "<html", "data:", "event"} {
			if strings.Contains(r.body, inside) {
				t.Errorf("%s: %q passes %q on", what, r.body, inside)
			}
		}
	}
	f("text 400", answered(400, "text/plain", "upstream connect error"), 400, "", "")
	f("text 503", answered(503, "text/plain", "upstream connect error or disconnect"), 503, "overloaded", "")
	f("html 502", answered(502, "text/html", "<html><h1>502</h1></html>"), 502, "upstream_error", "")
	f("html 404", answered(404, "text/html", "<html><h1>404</h1></html>"), 404, "", "")
	f("error event with 400", answered(400, "text/event-stream", "event: error\ndata: too long\n\n"), 400, "", "")
	f("empty 500", answered(500, "text/plain", ""), 502, "upstream_error", "")
	f("empty 422", answered(422, "text/plain", ""), 422, "", "")
	f("array 400", jsonAnswer(400, `[{"error":"x"}]`), 400, "", "")
	f("array 500", jsonAnswer(500, `[{"error":"x"}]`), 502, "upstream_error", "")
	f("broken JSON 400", jsonAnswer(400, `{"error":`), 400, "", "")
	for what, e := range map[string]struct {
		status int
		body   string
	}{
		"OpenAI":          {400, `{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
		"older vLLM":      {400, `{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`},
		"llama.cpp":       {500, `{"error":{"code":500,"message":"no slot","type":"server_error"}}`},
		"llama.cpp's own": {400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9}}`},
		"TGI":             {422, `{"error":"Input validation error","error_type":"validation"}`},
		"FastAPI":         {422, `{"detail":[{"loc":["body","x"],"msg":"field required","type":"value_error.missing"}]}`},
	} {
		f(what, jsonAnswer(e.status, e.body), e.status, "", e.body)
	}
}
