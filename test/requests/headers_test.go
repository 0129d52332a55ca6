package requests

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

func TestB34RequestIDsAndTheirLike(t *testing.T) {
	g := one(t)
	ids := map[string]bool{}
	f := func(what, field, want string) {
		t.Helper()
		r := g.chat(ask, field)
		id, seen := r.Header.Get("X-Request-Id"), g.last().fields["X-Request-Id"]
		if len(r.Header["X-Request-Id"]) != 1 || len(seen) != 1 || seen[0] != id {
			t.Errorf("%s: the client got %q, the engine %q", what, r.Header["X-Request-Id"], seen)
		}
		if want != "" && id != want || want == "" && (len(id) != 32 || ids[id]) {
			t.Errorf("%s: got %q", what, id)
		}
		ids[id] = true
	}
	f("given", "X-Request-Id: req-1.A_b:9", "req-1.A_b:9")
	f("none", "X-A: b", "")
	f("128 characters", "x-request-id: "+strings.Repeat("i", 128), strings.Repeat("i", 128))
	f("200 characters", "x-request-id: "+strings.Repeat("i", 200), "")
	f("no ASCII", "x-request-id: r\u00e9q", "")
	f("a blank", "x-request-id: a b", "")
	f("two", "x-request-id: a\r\nx-request-id: b", "")
	f("two alike", "x-request-id: a\r\nx-request-id: a", "")
	f("empty", "x-request-id: ", "")
	// On errors, streams and refusals too.
	for what, r := range map[string]reply{
		"stream": g.chat(askStream, "x-request-id: q"), "bad body": g.chat("{", "x-request-id: q"), "unknown path": g.do(get("/x", "x-request-id: q")),
		"list": g.do(get("/v1/models", "x-request-id: q")), "too large": g.do("POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nx-request-id: q\r\nContent-Length: 99999999999\r\n\r\n"),
	} {
		if got := r.Header.Get("X-Request-Id"); got != "q" {
			t.Errorf("%s: got id %q", what, got)
		}
	}

	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	g.chat(ask, "traceparent: "+trace, "tracestate: a=1", "X-Forwarded-For: 10.1.1.1, 10.2.2.2", "X-Forwarded-For: 10.3.3.3")
	h := g.last().fields
	if h.Get("Traceparent") != trace || h.Get("Tracestate") != "a=1" {
		t.Errorf("trace: %v", h)
	}
	if got := h.Get("X-Forwarded-For"); got != "10.1.1.1, 10.2.2.2, 10.3.3.3, 127.0.0.1" || len(h["X-Forwarded-For"]) != 1 {
		t.Errorf("forwarded for %q", h["X-Forwarded-For"])
	}
	// The body decides whether an answer is a stream.
	if r := g.chat(ask, "Accept: text/event-stream"); r.Header.Get("Content-Type") != "application/json" || r.body != good {
		t.Errorf("got %v %q", r.Header, r.body)
	}
	if r := g.chat(askStream, "Accept: application/json"); !strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") || !strings.HasSuffix(r.body, done) {
		t.Errorf("got %v %q", r.Header, r.body)
	}
}

func TestB35IdempotencyKeyIsPassedOn(t *testing.T) {
	g := one(t)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if r := g.chat(ask, "Idempotency-Key: k-1"); r.StatusCode != 200 {
				t.Errorf("%d %q", r.StatusCode, r.body)
			}
		})
	}
	both.Wait()
	if n := len(g.calls()); n != 2 {
		t.Errorf("%d calls of 2: the engine decides what the key means", n)
	}
	for _, c := range g.calls() {
		if v := c.fields["Idempotency-Key"]; len(v) != 1 || v[0] != "k-1" {
			t.Errorf("the engine got %q", v)
		}
	}
	if n := g.metric("hearsay_tokens_total", `type="output"`); n != 6 {
		t.Errorf("%v output tokens for two executed calls of 3", n)
	}
}

func TestB36MethodsThatNoReplicaNeeds(t *testing.T) {
	t.Parallel() // waits for a leader
	g := one(t, pool(func(p *node.PoolConfig) { p.Model, p.Aliases = "org/llama", []string{"llama", "a b", "a:b%2f"} }))
	c := g.dial()
	f := func(request string, status int, allow string) reply {
		t.Helper()
		method, _, _ := strings.Cut(request, " ")
		r := c.send(request).replyTo(method)
		if r.StatusCode != status || allow != "" && r.Header.Get("Allow") != allow || r.err != nil {
			t.Errorf("%.80q: got %d, %v", request, r.StatusCode, r.Header)
		}
		if method == "HEAD" && r.body != "" || status == 204 && r.body != "" {
			t.Errorf("%.80q: a body: %q", request, r.body)
		}
		return r
	}
	as := func(method, path string, fields ...string) string {
		return strings.Replace(get(path, fields...), "GET", method, 1)
	}
	for _, path := range []string{chatPath, promptPath, embedPath} {
		f(as("OPTIONS", path), 204, "POST, OPTIONS")
		f(as("OPTIONS", path, "Origin: https://x.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization"), 204, "POST, OPTIONS")
		f(as("HEAD", path), 405, "POST, OPTIONS")
		f(as("PATCH", path), 405, "POST, OPTIONS")
		f(as("TRACE", path), 405, "POST, OPTIONS")
	}
	f("OPTIONS * HTTP/1.1\r\nHost: r\r\n\r\n", 204, "")
	f(as("CONNECT", "/v1/models"), 405, "GET, HEAD, OPTIONS")
	whole := f(get("/v1/models"), 200, "")
	if r := f(as("HEAD", "/v1/models"), 200, ""); r.ContentLength != int64(len(whole.body)) {
		t.Errorf("HEAD tells %d bytes, GET sends %d", r.ContentLength, len(whole.body))
	}
	f(as("OPTIONS", "/v1/models"), 204, "GET, HEAD, OPTIONS")
	f(as("HEAD", "/v1/nothing"), 404, "")
	f(as("OPTIONS", "/v1/nothing"), 404, "")
	until(t, "ready", func() bool { return g.do(get("/readyz")).StatusCode == 200 })
	for _, path := range []string{"/livez", "/readyz", "/health"} {
		f(as("HEAD", path), 200, "")
	}
	for path, id := range map[string]string{
		"/v1/models/org/llama": "org/llama", "/v1/models/org%2Fllama": "org/llama", "/v1/models/org%2fllama": "org/llama", "/v1/models/a%20b": "a b",
		"/v1/models/a:b%252f": "a:b%2f",
	} {
		if r := f(get(path), 200, ""); !strings.Contains(r.body, `"id":"`+id+`"`) {
			t.Errorf("%s: %q", path, r.body)
		}
	}
	for _, path := range []string{"/v1/models/Llama", "/v1/models/org", "/v1/models/org/llama/", "/v1/models/llama%00", "/v1/models/%ff"} {
		f(get(path), 404, "")
	}
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// Nothing but HTTP/1 is spoken, and no tunnel is opened. An offer of HTTP/2 is
// declined by answering in HTTP/1.1, as clients that make it expect.
func TestB37Upgrades(t *testing.T) {
	g := one(t)
	ws := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	for what, x := range map[string]struct {
		request string
		status  int
		code    string
	}{
		"realtime":               {get("/v1/realtime?model=llama", ws...), 404, "unknown_url"},
		"websocket by GET":       {get(chatPath, ws...), 405, "method_not_allowed"},
		"websocket by POST":      {post(chatPath, ask, ws...), 400, "upgrade_refused"},
		"websocket among others": {post(chatPath, ask, "Connection: keep-alive, upgrade", "Upgrade: h2c, WebSocket"), 400, "upgrade_refused"},
	} {
		c := g.dial().send(x.request + "\x81\x85frame")
		c.reply().refused(t, what, x.status, x.code)
		if got := c.rest(); strings.Contains(got, "101") {
			t.Errorf("%s: got %q", what, got)
		}
	}
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
	c := g.dial()
	r := c.do(post(chatPath, ask, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"))
	if r.StatusCode != 200 || r.Proto != "HTTP/1.1" || r.body != good {
		t.Errorf("h2c: %d %s %q", r.StatusCode, r.Proto, r.body)
	}
	for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
		if v := g.last().fields.Get(name); v != "" {
			t.Errorf("the engine got %s %q", name, v)
		}
	}
	if r := c.do(post(chatPath, ask)); r.StatusCode != 200 {
		t.Errorf("behind h2c: %d", r.StatusCode)
	}
}

// Headers end at each hop; credentials and what the engine has no use for end here.
func TestC70HeadersOfRequests(t *testing.T) {
	g := one(t)
	g.chat(ask, "Authorization: Bearer client-secret", "x-api-key: client-secret", "Cookie: a=b", "Proxy-Authorization: x", "TE: trailers", "Trailer: X-A",
		"Connection: keep-alive, X-Foo", "X-Foo: a", "Keep-Alive: timeout=5", "Range: bytes=0-1", "If-None-Match: x", "X-Hearsay-Debug: 1", "Host-Override: evil",
		"User-Agent: test/1", "OpenAI-Organization: org", "OpenAI-Project: p", "X-Session-Id: s1")
	h := g.last().fields
	for _, name := range []string{
		"Authorization", "X-Api-Key", "Cookie", "Proxy-Authorization", "Te", "Trailer", "Connection", "X-Foo", "Keep-Alive", "Range", "If-None-Match",
		"X-Hearsay-Debug", "Transfer-Encoding", "Host-Override",
	} {
		if v, ok := h[name]; ok {
			t.Errorf("the engine got %s %q", name, v)
		}
	}
	for name, want := range map[string]string{
		"User-Agent": "test/1", "Openai-Organization": "org", "Openai-Project": "p", "X-Session-Id": "s1", "Content-Type": "application/json",
		"Host": strings.TrimPrefix(g.engines[0].url, "http://"),
	} {
		if got := h.Get(name); got != want {
			t.Errorf("the engine got %s %q, want %q", name, got, want)
		}
	}
}

// However a replica frames its answer, the client gets one framing, right for its
// version of HTTP, and all of the answer.
func TestC70FramingOfAnswers(t *testing.T) {
	var engine script
	g := start(t, []func(*call) bool{engine.answer})
	stream := role + word + finish + done
	ct := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	chunks := chunk(role) + chunk(word+finish) + chunk(done) + lastChunk
	for _, x := range []struct {
		what, answer string
		keep         bool
		body         string
	}{
		{"length and chunked", ct + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, true, stream},
		{"chunked and length", ct + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunks, true, stream},
		{"odd case", ct + "TRANSFER-ENCODING: Chunked\r\n\r\n" + chunks, true, stream},
		{"Connection: close, X-Foo", ct + "Connection: close, X-Foo\r\nX-Foo: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, false, stream},
		{"Keep-Alive", ct + "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, true, stream},
		{"HTTP/1.0 without length", strings.Replace(ct, "1.1", "1.0", 1) + "\r\n" + stream, false, stream},
		{"HTTP/1.0, JSON without length", "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + good, false, good},
		{"a length too small", ct + "Content-Length: 20\r\n\r\n" + stream, false, stream},
		{"trailers", ct + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.TrimSuffix(chunks, "\r\n") + "X-Sum: 1\r\n\r\n", true, stream},
		{"1xx before", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ct + "Transfer-Encoding: chunked\r\n\r\n" + chunks, true, stream},
		{"headers of 60 kB", ct + "X-A: " + strings.Repeat("a", 60<<10) + "\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, true, stream},
		{"a JSON answer in chunks", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(good[:9]) + chunk(good[9:]) + lastChunk, true, good},
	} {
		engine.next(x.answer, x.keep)
		request := askStream
		if x.body == good {
			request = ask
		}
		for _, version := range []string{"1.1", "1.0"} {
			what := x.what + " to HTTP/" + version
			c := g.dial().send(strings.Replace(post(chatPath, request, "Connection: close"), "HTTP/1.1", "HTTP/"+version, 1))
			r := c.reply()
			if r.StatusCode != 200 || r.body != x.body || r.err != nil {
				t.Errorf("%s: %d, %v, got %.400q", what, r.StatusCode, r.err, r.body)
			}
			if n := len(r.TransferEncoding); r.ContentLength >= 0 && n > 0 || n > 0 && version == "1.0" || n == 0 && r.ContentLength < 0 && version == "1.1" {
				t.Errorf("%s: length %d, encodings %q", what, r.ContentLength, r.TransferEncoding)
			}
			for _, name := range []string{"X-Foo", "Keep-Alive", "Trailer", "X-Sum", "Link", "X-A"} {
				if v := r.Header.Get(name); v != "" || r.Trailer.Get(name) != "" {
					t.Errorf("%s: the client got %s %.80q", what, name, v)
				}
			}
			c.closed(what)
		}
	}
	// A JSON answer that is shorter than it says is no answer.
	engine.next("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"+good, false)
	g.chat(ask).refused(t, "a length too large", 502, "upstream_error")
	// Nor is one that says twice that it comes in chunks: which of them it means is
	// anybody's guess.
	engine.next(ct+"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks, true)
	g.chat(askStream).refused(t, "chunked twice", 502, "upstream_error")
}

func TestC70HeadersOfAnswers(t *testing.T) {
	for what, answer := range map[string]string{"whole": jsonAnswer(200, good, fields...), "stream": strings.Replace(events(role, word, finish, done), "\r\n\r\n", "\r\n"+strings.Join(fields, "\r\n")+"\r\n\r\n", 1), "error": jsonAnswer(429, `{"error":{"message":"m"}}`, fields...)} {
		t.Run(what, func(t *testing.T) {
			g := start(t, []func(*call) bool{says(answer)})
			body := ask
			if what == "stream" {
				body = askStream
			}
			r := g.chat(body, "x-request-id: mine")
			for name, want := range map[string]string{
				"X-Request-Id": "mine", "X-Ratelimit-Remaining-Tokens": "7", "Openai-Processing-Ms": "12", "Retry-After": "3", "Retry-After-Ms": "2500",
				"Connection": "", "X-Foo": "", "Keep-Alive": "", "Set-Cookie": "", "Server": "", "Proxy-Authenticate": "", "Upgrade": "", "Access-Control-Allow-Origin": "",
			} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("the client got %s %q, want %q", name, got, want)
				}
			}
			if len(r.Header[http.CanonicalHeaderKey("x-request-id")]) != 1 {
				t.Errorf("request ids %q", r.Header["X-Request-Id"])
			}
		})
	}
}

// fields are a replica's.
var fields = []string{
	"X-Request-Id: theirs", "x-ratelimit-remaining-tokens: 7", "openai-processing-ms: 12", "retry-after: 3", "retry-after-ms: 2500",
	"Connection: keep-alive, X-Foo", "X-Foo: a", "Keep-Alive: timeout=5", "Set-Cookie: a=b", "Server: uvicorn", "Proxy-Authenticate: Basic", "Upgrade: h2c", "Access-Control-Allow-Origin: *",
}
