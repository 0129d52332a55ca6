package cases

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// Keys of clients, as they send them.
const (
	keyA = "sk-a-7f1c2b"
	keyB = "sk-b-55aa01"
)

// keyed is a key of the configuration.
func keyed(name, secret string) node.KeyConfig {
	sum := sha256.Sum256([]byte(secret))
	return node.KeyConfig{Name: name, Hash: node.KeyHash("sha256:" + hex.EncodeToString(sum[:]))}
}

func bearer(key string) string { return "Authorization: Bearer " + key }

// at sends a body to a path and reads the answer, as far as one comes.
func (r *router) at(path, body string, fields ...string) answer {
	r.t.Helper()
	s := r.send(strings.Replace(post(body, fields...), "/v1/chat/completions", path, 1))
	defer func() { _ = s.conn.Close() }()
	return s.rest()
}

// endpoints are those by which limits are tried, each with a body, and the body of one
// that is streamed; empty where nothing is.
var endpoints = []struct{ path, whole, streamed, answer, events string }{
	{"/v1/chat/completions", ask, askStream, good, role + finish + done},
	{
		"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`,
		`{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`, good, role + finish + done,
	},
	{
		"/v1/responses", `{"model":"m","input":"Hi"}`, `{"model":"m","stream":true,"input":"Hi"}`,
		`{"id":"resp_1","object":"response","status":"completed","model":"m","output":[],"usage":{"input_tokens":9,"output_tokens":3,"total_tokens":12}}`,
		typed("response.created", `"response":{"id":"resp_1","object":"response","status":"in_progress","output":[]}`) +
			typed("response.output_text.delta", `"item_id":"i","output_index":0,"content_index":0,"delta":"Hi"`) +
			typed("response.completed", `"response":{"id":"resp_1","object":"response","status":"completed","output":[],"usage":{"input_tokens":9,"output_tokens":3,"total_tokens":12}}`),
	},
	{"/v1/embeddings", `{"model":"m","input":"Hi"}`, "", `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":9,"total_tokens":9}}`, ""},
}

// typed is an event of Responses.
func typed(kind, fields string) string {
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"," + fields + ",\"sequence_number\":0}\n\n"
}

// Whatever becomes of a request, its place among its key's parallel ones is free again
// when the client has the answer.
func TestC44PlacesComeBack(t *testing.T) {
	t.Parallel()
	const most = 4
	e := newEngine(t, nil)
	p := pool(e)
	p.Timeouts.FirstByte, p.Timeouts.Idle = 1500*time.Millisecond, 1500*time.Millisecond
	p.Breaker = node.BreakerConfig{Failures: 100000}
	p.Retry.Attempts = 1
	gone := newEngine(t, nil)
	gone.vanish()
	q := pool(gone)
	q.Name, q.Model, q.Aliases, q.Breaker = "q", "gone", nil, p.Breaker
	held := newEngine(t, nil) // its answers wait for the test
	held.model = "held"
	h := pool(held)
	h.Name, h.Model, h.Aliases = "h", "held", nil
	routers := start(t, setup{routers: 2, node: func(c *node.Config) {
		k := keyed("batch", keyA)
		k.MaxParallel = most
		c.Gateway = node.GatewayConfig{RequireKey: true, Keys: []node.KeyConfig{k, keyed("free", keyB)}}
	}}, p, q, h)
	r := routers[0]
	inUse := func(r *router) float64 { return r.metric("hearsay_key_inflight", `key="batch"`) }
	idle := func(name string) {
		t.Helper()
		for _, r := range routers {
			if n := inUse(r); n != 0 {
				t.Errorf("%s: %v in use on a router", name, n)
			}
		}
	}
	// f sends as many requests as may be under way; none of them may be refused for that.
	f := func(name, path, body string, status int, answers func(*got) bool) {
		t.Helper()
		e.becomes(answers)
		var wg sync.WaitGroup
		for range most {
			wg.Go(func() {
				if a := r.at(path, body, bearer(keyA)); a.StatusCode != status {
					t.Errorf("%s at %s: %d %.200q, want %d", name, path, a.StatusCode, a.body, status)
				}
			})
		}
		wg.Wait()
	}
	hang := func(g *got) bool { g.gone(); return false }
	idle("before")
	for _, x := range endpoints {
		whole := says(reply(200, x.answer))
		f("an answer", x.path, x.whole, 200, whole)
		f("502", x.path, x.whole, 502, says(reply(502, oops)))
		f("a hang", x.path, x.whole, 504, hang)
		f("400", x.path, x.whole, 400, says(reply(400, `{"error":{"message":"no","type":"BadRequestError","code":400}}`)))
		f("odd usage", x.path, x.whole, 200, says(reply(200, strings.Replace(x.answer, `"usage":{`, `"usage":"x","more":{`, 1))))
		f("a reset within", x.path, x.whole, 502, func(g *got) bool {
			g.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n" + x.answer)
			g.reset()
			return false
		})
		f("hung up", x.path, x.whole, 502, func(g *got) bool { g.reset(); return false })
		f("refused", x.path, strings.Replace(x.whole, `"m"`, `"gone"`, 1), 503, nil)
		f("a body that is none", x.path, "{", 400, whole)
		if x.streamed == "" {
			continue
		}
		stream := func(events string, end func(*got)) func(*got) bool {
			return func(g *got) bool {
				g.stream(events)
				end(g)
				return false
			}
		}
		f("a stream", x.path, x.streamed, 200, streams(x.events))
		begun := x.events[:strings.LastIndex(strings.TrimSuffix(x.events, "\n\n"), "\n\n")+2]
		f("a reset in mid-stream", x.path, x.streamed, 200, stream(begun, (*got).reset))
		f("silence in mid-stream", x.path, x.streamed, 200, stream(begun, func(g *got) { g.gone() }))
		f("odd usage in a stream", x.path, x.streamed, 200, streams(strings.Replace(x.events, `"choices"`, `"usage":"x","choices"`, 1)))
	}
	// Clients that leave: the router notices, which is not waited for here.
	for _, x := range endpoints {
		for _, body := range []string{x.whole, x.streamed} {
			if body == "" {
				continue
			}
			e.forget()
			e.becomes(hang)
			for range most {
				s := r.send(strings.Replace(post(body, bearer(keyA)), "/v1/chat/completions", x.path, 1))
				until(t, "they are there", func() bool { return len(e.requests()) > 0 })
				_ = s.conn.Close()
			}
			within(t, time.Second, "the router notices", func() bool { return inUse(r) == 0 })
		}
	}

	// The last ones run at once; one more is told which limit it is.
	for _, x := range endpoints {
		body := strings.Replace(x.whole, `"m"`, `"held"`, 1)
		held.forget()
		release := make(chan struct{})
		held.becomes(func(g *got) bool { <-release; return g.write(reply(200, x.answer)) })
		done := make(chan answer, most)
		for range most {
			go func() { done <- r.at(x.path, body, bearer(keyA)) }()
		}
		until(t, "all of them run", func() bool { return len(held.requests()) == most })
		if n := inUse(r); n != most {
			t.Errorf("%s: %v in use", x.path, n)
		}
		before := r.metric("hearsay_limit_rejections_total", `kind="parallel"`)
		a := r.at(x.path, body, "x-api-key: "+keyA)
		shape := `"code":"rate_limit_exceeded"`
		if x.path == "/v1/messages" {
			shape = `{"type":"error","error":{"type":"rate_limit_error"`
		}
		if a.StatusCode != 429 || !strings.Contains(a.body, shape) || !strings.Contains(a.body, "concurrency limit") || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: one too many: %d %q %v", x.path, a.StatusCode, a.body, a.Header)
		}
		if n := r.metric("hearsay_limit_rejections_total", `kind="parallel"`); n != before+1 {
			t.Errorf("%s: %v refusals counted, %v before", x.path, n, before)
		}
		if n := inUse(routers[1]); n != 0 {
			t.Errorf("%v in use at the other router", n)
		}
		close(release)
		for range most {
			if a := <-done; a.StatusCode != 200 {
				t.Errorf("%s: %d %q", x.path, a.StatusCode, a.body)
			}
		}
	}
	idle("after")
	if n := r.metric("hearsay_panics_total"); n != 0 {
		t.Errorf("%v panics", n)
	}
	settled(t, routers, e, held)
}

// A client that asks again the moment it has the end of its stream is not too early.
func TestPlacesAreFreeWhenTheStreamEnds(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	r := start(t, setup{node: func(c *node.Config) {
		k := keyed("one", keyA)
		k.MaxParallel = 1
		c.Gateway.Keys = []node.KeyConfig{k}
	}}, pool(e))[0]
	for name, answers := range map[string]func(*got) bool{
		"events one by one": streams(role, token("Hi"), finish, done),
		"all at once":       streams(role + token("Hi") + finish + done),
		"broken off": func(g *got) bool {
			g.stream(role, token("Hi"))
			g.reset()
			return false
		},
	} {
		e.becomes(answers)
		last := done
		if name == "broken off" {
			last = `"error"`
		}
		for range 100 {
			s := r.open(askStream, bearer(keyA))
			body := ""
			for b := make([]byte, 4096); !strings.Contains(body, last); { // not the end of its framing
				n, err := s.head().Body.Read(b)
				if body += string(b[:n]); err != nil {
					break
				}
			}
			if s.resp.StatusCode != 200 || !strings.Contains(body, last) {
				t.Fatalf("%s: %d %q", name, s.resp.StatusCode, body)
			}
		}
	}
}

// Who has a key and who has not, in both families; probes need none, and no key goes on.
func TestKeysOfClients(t *testing.T) {
	t.Parallel()
	e := newEngine(t, healthy)
	config := func(require bool) func(c *node.Config) {
		return func(c *node.Config) {
			c.Gateway = node.GatewayConfig{RequireKey: require, Keys: []node.KeyConfig{keyed("a", keyA), keyed("b", keyB)}}
		}
	}
	closed, open := start(t, setup{node: config(true)}, pool(e))[0], start(t, setup{node: config(false)}, pool(e))[0]
	const message = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`
	f := func(name string, want int, fields ...string) {
		t.Helper()
		for path, body := range map[string]string{"/v1/chat/completions": ask, "/v1/messages": message, "/v1/messages/count_tokens": message, "/v1/embeddings": `{"model":"m","input":"x"}`, "/rerank": `{"model":"m"}`} {
			a := closed.at(path, body, fields...)
			shape := `"code":"invalid_api_key"`
			if strings.HasPrefix(path, "/v1/messages") {
				shape = `{"type":"error","error":{"type":"authentication_error"`
			}
			if a.StatusCode != want || want == 401 && (!strings.Contains(a.body, shape) || a.Header.Get("WWW-Authenticate") != "Bearer") {
				t.Errorf("%s at %s: %d %q, want %d", name, path, a.StatusCode, a.body, want)
			}
			sum := sha256.Sum256([]byte(keyA))
			if strings.Contains(a.body, "sk-") || strings.Contains(a.body, hex.EncodeToString(sum[:4])) {
				t.Errorf("%s: the answer tells of keys: %q", name, a.body)
			}
			if a := open.at(path, body, fields...); a.StatusCode != 200 {
				t.Errorf("%s where none is needed, at %s: %d %q", name, path, a.StatusCode, a.body)
			}
		}
	}
	f("a bearer", 200, bearer(keyA))
	f("a bearer in another spelling", 200, "authorization: bearer  "+keyB)
	f("x-api-key", 200, "x-api-key: "+keyB)
	f("both", 200, "x-api-key: other", bearer(keyA))
	f("both, the other way", 200, "x-api-key: "+keyA, bearer("sk-unknown"))
	f("none", 401)
	f("an empty one", 401, "Authorization: Bearer ", "x-api-key: ")
	f("another scheme", 401, "Authorization: Basic "+keyA)
	f("a wrong one", 401, bearer("sk-wrong"))
	f("a wrong one of the other kind", 401, "x-api-key: sk-wrong")
	f("half of one", 401, bearer(keyA[:len(keyA)-1]))
	for _, g := range e.requests() {
		if strings.Contains(g.head+g.body, "sk-") {
			t.Errorf("a key went to an engine: %s", g.head)
		}
	}

	get := func(r *router, method, path string, fields ...string) answer {
		s := r.send(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: r\r\n%s\r\n", method, path, strings.Join(append(fields, ""), "\r\n")))
		defer func() { _ = s.conn.Close() }()
		return s.rest()
	}
	for _, x := range []struct {
		method, path string
		status       int
		fields       []string
	}{
		{"GET", "/v1/models", 401, nil},
		{"GET", "/v1/models/m", 401, nil},
		{"GET", "/v1/models", 200, []string{bearer(keyA)}},
		{"GET", "/v1/responses/resp_1", 401, nil},
		{"GET", "/livez", 200, nil},
		{"GET", "/readyz?verbose", 200, nil},
		{"GET", "/health", 200, nil},
		{"OPTIONS", "/v1/chat/completions", 204, nil},
		{"GET", "/nothing", 404, nil},
	} {
		until(t, x.path, func() bool { return x.path != "/readyz?verbose" || get(closed, "GET", "/readyz").StatusCode == 200 })
		if a := get(closed, x.method, x.path, x.fields...); a.StatusCode != x.status {
			t.Errorf("%s %s: %d %q, want %d", x.method, x.path, a.StatusCode, a.body, x.status)
		}
	}
	if closed.get("/metrics") == "" {
		t.Error("metrics need a key")
	}

	// A stranger's long body is not waited for; one that asks first is not let in.
	s := closed.send("POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n{")
	if a := s.rest(); a.StatusCode != 401 || !a.Close {
		t.Errorf("before its body: %d, closes %v", a.StatusCode, a.Close)
	}
	for _, x := range []struct {
		key    string
		status int
	}{{"sk-wrong", 401}, {keyA, 100}} {
		s := closed.send(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\n%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", bearer(x.key), len(ask)))
		if resp := s.head(); resp.StatusCode != x.status {
			t.Errorf("asks first with %s: %d", x.key, resp.StatusCode)
		}
	}
	// A refused request leaves a connection in order behind it.
	s = closed.send(post(ask) + post(ask, bearer(keyA)))
	if a := s.rest(); a.StatusCode != 401 {
		t.Errorf("the first one: %d", a.StatusCode)
	}
	s.resp = nil
	if a := s.rest(); a.StatusCode != 200 {
		t.Errorf("behind a refused one: %d %q", a.StatusCode, a.body)
	}
}
