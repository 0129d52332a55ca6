package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/hearsay-llm/hearsay/state"
)

func get(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: r\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

func TestRoutes(t *testing.T) {
	ready := Readiness{Ready: true}
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))), func(cfg *Config, s *poolSpec) {
		s.Model, s.Aliases = "org/llama", []string{"fast", "llama"}
		cfg.Ready = func() Readiness { return ready }
	})
	f := func(request string, status int, in string) reply {
		t.Helper()
		r := g.do(request)
		if r.StatusCode != status || !strings.Contains(r.body, in) {
			t.Errorf("%.60q: got %d %q", request, r.StatusCode, r.body)
		}
		if r.Header.Get("X-Request-Id") == "" {
			t.Errorf("%.60q: no request id", request)
		}
		return r
	}
	f(get("/livez"), 200, "ok")
	f(get("/health"), 200, "ok")
	f(get("/readyz"), 200, "ok")
	f(get("/readyz?verbose"), 200, `"pools":[{"name":"chat","model":"org/llama","replicas":1,"draining":0}]`)
	ready = Readiness{Reasons: map[string]string{"snapshot": "not yet"}}
	f(get("/readyz"), 503, "not ready")
	f(get("/readyz?verbose"), 503, `"reasons":{"snapshot":"not yet"}`)

	r := f(get("/v1/models"), 200, `"object":"list"`)
	var list struct{ Data []struct{ ID, Object string } }
	must(t, json.Unmarshal([]byte(r.body), &list))
	if len(list.Data) != 3 || list.Data[0].ID != "org/llama" || list.Data[1].ID != "fast" || list.Data[0].Object != "model" {
		t.Errorf("models %v", list)
	}
	f(get("/v1/models/org/llama"), 200, `"id":"org/llama"`)
	f(get("/v1/models/org%2Fllama"), 200, `"id":"org/llama"`)
	f(get("/v1/models/fast"), 200, `"id":"fast"`)
	f(get("/v1/models/Fast"), 404, "model_not_found")
	f(get("/v1/models/nobody%0a"), 404, "model_not_found")

	read := state.UnknownReading("e1")
	read.OK, read.Adapters = true, []string{"fast", "org/A b:c"}
	read.AdaptersSum, read.At = state.SumAdapters(read.Adapters), g.store.Clock().Stamp(time.Now())
	g.store.ApplyReading(read)
	r = f(get("/v1/models"), 200, `{"id":"org/A b:c","object":"model"`)
	if strings.Count(r.body, `"id":"fast"`) != 1 || strings.Count(r.body, `"parent":"org/llama"`) != 1 || !strings.Contains(r.body, `"root":"org/A b:c"`) {
		t.Errorf("models with adapters: %s", r.body)
	}
	f(get("/v1/models/org%2FA%20b:c"), 200, `"parent":"org/llama"`)
	f(get("/v1/models/org/a%20b:c"), 404, "model_not_found")

	f(get("/"), 404, "unknown_url")
	f(get("/admin/v1/status"), 404, "unknown_url")
	f(get("/v1/../admin"), 404, "unknown_url")
	f(get("//metrics"), 404, "unknown_url")
	f(post("/v1/realtime", ask, "Connection: Upgrade", "Upgrade: websocket"), 404, "unknown_url")
	if r := f(get("/v1/chat/completions"), 405, "method_not_allowed"); r.Header.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("Allow %q", r.Header.Get("Allow"))
	}
	f(post("/v1/models", ask), 405, "method_not_allowed")
	f(strings.Replace(get("/v1/models"), "GET", "GE", 1), 405, "method_not_allowed")
	if r := f("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: r\r\nOrigin: x\r\n\r\n", 204, ""); r.Header.Get("Allow") != "POST, OPTIONS" || r.body != "" {
		t.Errorf("OPTIONS: %v %q", r.Header, r.body)
	}
	f("OPTIONS * HTTP/1.1\r\nHost: r\r\n\r\n", 204, "")

	c := g.conn()
	br := bufio.NewReader(c)
	_, err := c.Write([]byte("HEAD /v1/models HTTP/1.1\r\nHost: r\r\n\r\n"))
	must(t, err)
	head, err := http.ReadResponse(br, &http.Request{Method: "HEAD"})
	must(t, err)
	if head.StatusCode != 200 || head.ContentLength <= 0 {
		t.Errorf("HEAD: %d, %d", head.StatusCode, head.ContentLength)
	}
	if r := exchangeOn(t, c, br, get("/livez")); r.body != "ok\n" {
		t.Errorf("behind HEAD: %q", r.body)
	}
	if n, _ := g.engines[0].seen(); n != 0 {
		t.Errorf("the engine got %d requests", n)
	}
	for i := range 100 {
		f(post("/v1/chat/completions", strings.Replace(ask, `"llama"`, `"stranger`+itoa(i+1)+`"`, 1)), 404, "model_not_found")
	}
	if got := g.metric("hearsay_requests_total", "pool", "unknown", "code", "404"); got < 100 {
		t.Errorf("%v requests for nobody", got)
	}
	f(post("/v1/../v1//chat/completions", ask), 200, "Hi")
	g.stop()
	if p := g.engines[0].paths; len(p) != 1 || p[0] != "/v1/chat/completions" {
		t.Errorf("paths at the engine: %q", p)
	}
}

func TestBadBodies(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))))
	c := g.conn()
	br := bufio.NewReader(c)
	f := func(body string, status int, fields ...string) {
		t.Helper()
		r := exchangeOn(t, c, br, post("/v1/chat/completions", body, fields...))
		if r.StatusCode != status {
			t.Errorf("%.60q %q: got %d %q", body, fields, r.StatusCode, r.body)
		}
		var e struct {
			Error struct {
				Message, Type string
				Param, Code   any
			}
		}
		if status != 200 && (json.Unmarshal([]byte(r.body), &e) != nil || e.Error.Message == "" || e.Error.Type == "" || !strings.Contains(r.body, `"param":`)) {
			t.Errorf("%.60q: shape %q", body, r.body)
		}
		if strings.Contains(r.body, "invalid character") || strings.Contains(r.body, "goroutine") {
			t.Errorf("%.60q: inner text %q", body, r.body)
		}
	}
	for _, body := range []string{
		"", "{", "[]", "null", `"x"`, `{}`, `{"model":1}`, `{"model":""}`, `{"model":null}`, `{"model":"llama","messages":"x"}`,
		`{"model":"llama","messages":[null]}`, `{"model":"llama","messages":[],"tools":"x"}`, `{"model":"llama","messages":[],"stream":"true"}`,
		`{"model":"llama","messages":[],"n":0}`, ask + " {}", ask[:len(ask)-1] + ",}", "{\"model\":\"llama\",\"messages\":[],\"x\":\"\xc3\"}",
		`{"model":"llama","messages":[],"x":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}`, "{'model':'llama'}",
	} {
		f(body, 400)
	}
	f(ask, 415, "Content-Encoding: foo")
	f(ask, 415, "Content-Encoding: gzip, gzip")
	f(ask, 400, "Content-Encoding: gzip")
	f(" "+ask+"\n", 200)
	f("\xef\xbb\xbf"+ask, 200)
	f(ask, 200, "Content-Encoding: identity")
	bad := strings.NewReplacer("application/json", "text/csv")
	if r := g.do(bad.Replace(post("/v1/chat/completions", ask))); r.StatusCode != 415 {
		t.Errorf("text/csv: %d", r.StatusCode)
	}
	if r := g.do(strings.Replace(post("/v1/chat/completions", ask), "application/json", "application/json; charset=utf-16", 1)); r.StatusCode != 415 {
		t.Errorf("utf-16: %d", r.StatusCode)
	}
	if r := g.do(strings.Replace(post("/v1/chat/completions", ask), "Content-Type: application/json\r\n", "", 1)); r.StatusCode != 200 {
		t.Errorf("no type: %d", r.StatusCode)
	}
	if n, _ := g.engines[0].seen(); n != 4 {
		t.Errorf("the engine got %d requests", n)
	}
}

func TestCompressedBodies(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))), func(cfg *Config, _ *poolSpec) { cfg.Limits.BodyBytes = 1 << 20 })
	pack := func(enc, s string) string {
		var b strings.Builder
		switch enc {
		case "gzip":
			w := gzip.NewWriter(&b)
			_, _ = w.Write([]byte(s))
			_ = w.Close()
		case "deflate":
			w := zlib.NewWriter(&b)
			_, _ = w.Write([]byte(s))
			_ = w.Close()
		case "zstd":
			w, err := zstd.NewWriter(&b)
			must(t, err)
			_, _ = w.Write([]byte(s))
			_ = w.Close()
		}
		return b.String()
	}
	for _, enc := range []string{"gzip", "deflate", "zstd"} {
		if r := g.chat(pack(enc, ask), "Content-Encoding: "+enc); r.StatusCode != 200 {
			t.Errorf("%s: %d %q", enc, r.StatusCode, r.body)
		}
		if r := g.chat(pack(enc, strings.Repeat("a", 32<<20)), "Content-Encoding: "+enc); r.StatusCode != 413 {
			t.Errorf("%s bomb: %d %q", enc, r.StatusCode, r.body)
		}
	}
	g.stop()
	e := g.engines[0]
	for i, b := range e.bodies {
		if b != ask || e.heads[i].Get("Content-Encoding") != "" {
			t.Errorf("engine got %q %v", b, e.heads[i])
		}
	}
}

func TestHeadersThatGoUpstream(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))), func(cfg *Config, s *poolSpec) {
		s.APIKeyEnv = "ENGINE_KEY"
		cfg.Getenv = func(k string) string { return map[string]string{"ENGINE_KEY": "engine-secret"}[k] }
	})
	r := g.chat(ask, "Authorization: Bearer client-secret", "x-api-key: client-secret", "Cookie: a=b", "Proxy-Authorization: x",
		"Te: trailers", "Upgrade: h2c", "Connection: keep-alive, X-Foo", "X-Foo: a", "Keep-Alive: 5", "Forwarded: for=x", "Range: bytes=0-1",
		"X-Forwarded-For: 10.1.1.1", "traceparent: 00-aa-bb-01", "x-request-id: id-7", "User-Agent: test", "x-hearsay-debug: 1")
	if r.Header.Get("X-Request-Id") != "id-7" || r.Header.Get("X-Hearsay-Router") != "r1" || r.Header.Get("X-Hearsay-Policy") != "in_order" ||
		r.Header.Get("X-Hearsay-Ttft-Ms") != "50" || r.Header.Get("X-Hearsay-Prompt-Tokens") == "" || r.Header.Get("X-Hearsay-Matched-Tokens") != "0" {
		t.Errorf("client got %v", r.Header)
	}
	g.stop()
	h := g.engines[0].heads[0]
	for name, want := range map[string]string{
		"Authorization": "Bearer engine-secret", "X-Request-Id": "id-7", "Traceparent": "00-aa-bb-01", "X-Forwarded-For": "10.1.1.1, 127.0.0.1",
		"User-Agent": "test", "Content-Type": "application/json", "X-Api-Key": "", "Cookie": "", "Proxy-Authorization": "", "Te": "",
		"Upgrade": "", "Connection": "", "X-Foo": "", "Keep-Alive": "", "Forwarded": "", "Range": "", "X-Hearsay-Debug": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("engine got %s %q, want %q", name, got, want)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))))
	f := func(given, want string) {
		t.Helper()
		got := g.chat(ask, given).Header.Get("X-Request-Id")
		if want != "" && got != want || want == "" && (len(got) != 32 || strings.Contains(given, got)) {
			t.Errorf("%q: got %q", given, got)
		}
	}
	f("x-request-id: a-B.1", "a-B.1")
	f("X-A: b", "")
	f("x-request-id: "+strings.Repeat("a", 128), strings.Repeat("a", 128))
	f("x-request-id: "+strings.Repeat("a", 129), "")
	f("x-request-id: a b", "")
	f("x-request-id: \xc3\xa9", "")
	f("x-request-id: a\r\nx-request-id: b", "")
}

// Fields nobody knows arrive with the same bytes, by a plain name, an alias and
// after a retry; only the model's name and our usage field differ.
func TestUnknownFieldsArrive(t *testing.T) {
	rest := `"chat_template_kwargs":{"enable_thinking":false}, "top_k":1,"nvext":{"a":[]},"extra":{"deep":[1,{"x":null}]},"f":1.50e+3,"model2":"fast","messages":[{"role":"user","content":"\u00e9","zz":"model"}]}`
	g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
		return in.write(jsonAnswer(500, `{}`)) == nil
	}, says(jsonAnswer(200, good))), func(_ *Config, s *poolSpec) { s.UpstreamModel = "../models/x.gguf" })
	for _, name := range []string{"llama", "fast"} {
		if r := g.chat(`{ "model" : "` + name + `" ,` + rest); r.StatusCode != 200 {
			t.Errorf("%s: %d %q", name, r.StatusCode, r.body)
		}
	}
	g.stop()
	for _, e := range g.engines {
		for _, b := range e.bodies {
			if b != `{ "model" : "../models/x.gguf" ,`+rest {
				t.Errorf("%s got %q", e.name, b)
			}
		}
	}
}

func TestExplainAndPicks(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(500, `{}`)), streams(role, word, done)))
	x, err := g.srv.Core().Explain(context.Background(), "/v1/chat/completions", []byte(ask))
	must(t, err)
	if x.Replica != "e1" || x.Policy != "in_order" || x.Pool != "chat" || len(x.Candidates) != 2 || x.Marks == 0 || x.PromptTokens == 0 {
		t.Errorf("explanation %+v", x)
	}
	if g.inFlight() != 0 || len(g.srv.Picks().Latest(9)) != 0 {
		t.Error("explaining left a trace")
	}
	if _, err := g.srv.Core().Explain(context.Background(), "/v1/chat/completions", []byte("{")); err == nil {
		t.Error("a bad body was explained")
	}
	g.chat(askStream, "x-request-id: one")
	picks := g.srv.Picks().Of("one")
	if len(picks) != 2 || picks[0].Replica != "e1" || picks[1].Replica != "e2" || picks[1].Attempt != 2 || picks[1].Candidates[0].Replica != "e2" || picks[1].Candidates[1].Excluded != "tried" {
		t.Errorf("picks %+v", picks)
	}
	if picks[0].Observed != 0 || picks[1].Observed <= 0 {
		t.Errorf("first tokens after %v and %v; only the second attempt had one", picks[0].Observed, picks[1].Observed)
	}
	if raw, err := json.Marshal(picks[1]); err != nil || !strings.Contains(string(raw), `"slow_start":`) || strings.Contains(string(raw), `"Own"`) {
		t.Errorf("terms are not in snake case: %s, %v", raw, err)
	}
	for range 2000 {
		g.srv.Picks().note(&Pick{RequestID: "x"}, &g.srv.core.jobs.Get().(*Job).choice)
	}
	if len(g.srv.Picks().Of("one")) != 0 || len(g.srv.Picks().Of("x")) != 1024 || len(g.srv.Picks().Latest(5)) != 5 {
		t.Error("the memory of picks is not bounded")
	}
	g.srv.Picks().first(1, time.Hour)
	g.srv.Picks().first(2002, time.Minute)
	for i, k := range g.srv.Picks().Latest(1024) {
		if (i > 0 && k.Observed != 0) || (i == 0 && k.Observed != time.Minute) {
			t.Fatalf("pick %d from the last had its first token after %v", i, k.Observed)
		}
	}
	g.store.SetReplicas(state.SourceStatic, "chat", nil)
	if x, err := g.srv.Core().Explain(context.Background(), "/v1/chat/completions", []byte(ask)); err != nil || x.Refused == "" {
		t.Errorf("without replicas: %+v, %v", x, err)
	}
	// Releases the rig's own look at the replicas.
	if r := g.chat(ask); r.StatusCode != 503 || r.Header.Get("Retry-After") != "5" {
		t.Errorf("without replicas: %d %v", r.StatusCode, r.Header)
	}
	if got := g.metric("hearsay_shed_total", "pool", "chat"); got != 1 {
		t.Errorf("shed %v", got)
	}
}

// Pick headers name replicas: a router that does not allow them gives none,
// whatever a client asks for.
func TestPickHeadersOnlyWhereAllowed(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))), func(cfg *Config, _ *poolSpec) { cfg.Debug = allowed })
		r := g.chat(`{"model":"llama","messages":[]}`, "X-Hearsay-Debug: 1")
		if got := r.Header.Get("X-Hearsay-Replica") != ""; got != allowed {
			t.Errorf("allowed %v: replica header %q", allowed, r.Header.Get("X-Hearsay-Replica"))
		}
	}
}
