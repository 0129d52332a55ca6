package requests

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// client is one connection of a client.
type client struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

// patience bounds every wait of a test; in a bubble it costs nothing.
const patience = 30 * time.Second

func (g *router) dial() *client {
	g.t.Helper()
	c, err := g.w.dial(context.Background(), g.api)
	must(g.t, err)
	g.t.Cleanup(func() { _ = c.Close() })
	limit := patience
	if _, ok := g.w.(bubble); ok {
		limit = time.Hour
	}
	must(g.t, c.SetDeadline(time.Now().Add(limit)))
	return &client{c, g.t, bufio.NewReader(c)}
}

// send writes bytes. A router that has answered and closed may break it off.
func (c *client) send(s string) *client {
	// In pieces: a socket would have a copy made of a long string.
	_, _ = io.Copy(c.Conn, struct{ io.Reader }{strings.NewReader(s)})
	return c
}

// reply is a response as a client saw it; err is what its body ended with, nil for
// its proper end.
type reply struct {
	*http.Response
	body string
	err  error
}

// reply reads one response, interim ones apart.
func (c *client) reply() reply {
	c.t.Helper()
	return c.replyTo("POST")
}

func (c *client) replyTo(method string) reply {
	c.t.Helper()
	resp, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("no response: %v", err)
	}
	b, err := io.ReadAll(resp.Body)
	return reply{resp, string(b), err}
}

// do sends a request and reads its response.
func (c *client) do(request string) reply {
	c.t.Helper()
	return c.send(request).reply()
}

// rest is everything that still comes, to the end of the connection.
func (c *client) rest() string {
	b, _ := io.ReadAll(c.br)
	return string(b)
}

// closed fails unless the router has closed the connection behind its last answer.
func (c *client) closed(what string) {
	c.t.Helper()
	if b, err := io.ReadAll(c.br); len(b) > 0 || errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		c.t.Errorf("%s: the connection stays open, or says %q (%v)", what, b, err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// do sends one request on a connection of its own.
func (g *router) do(request string) reply {
	g.t.Helper()
	c := g.dial()
	defer func() { _ = c.Close() }()
	return c.do(request)
}

func (g *router) post(path, body string, fields ...string) reply {
	g.t.Helper()
	return g.do(post(path, body, fields...))
}

const (
	chatPath   = "/v1/chat/completions"
	promptPath = "/v1/completions"
	embedPath  = "/v1/embeddings"

	ask       = `{"model":"llama","messages":[{"role":"user","content":"Hello there"}]}`
	askStream = `{"model":"llama","stream":true,"messages":[{"role":"user","content":"Hello there"}]}`
)

func (g *router) chat(body string, fields ...string) reply {
	g.t.Helper()
	return g.post(chatPath, body, fields...)
}

// post is a request with a JSON body and further header lines.
func post(path, body string, fields ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		path, len(body), strings.Join(append(fields, ""), "\r\n"), body)
}

func get(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: r\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

// refused checks an error as clients must get it.
func (r reply) refused(t testing.TB, what string, status int, code string) {
	t.Helper()
	var e struct {
		Error *struct {
			Message, Type string
			Param, Code   *string
		}
	}
	if err := json.Unmarshal([]byte(r.body), &e); err != nil || e.Error == nil || e.Error.Message == "" || e.Error.Type == "" ||
		!strings.Contains(r.body, `"param":`) || !strings.Contains(r.body, `"code":`) {
		t.Errorf("%s: not an error of this API: %d %.300q", what, r.StatusCode, r.body)
		return
	}
	got := ""
	if e.Error.Code != nil {
		got = *e.Error.Code
	}
	if r.StatusCode != status || got != code {
		t.Errorf("%s: got %d %q, want %d %q: %.300q", what, r.StatusCode, got, status, code, r.body)
	}
	if r.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s: no request id", what)
	}
	if ct := r.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("%s: content type %q", what, ct)
	}
	for _, inner := range []string{"invalid character", "goroutine", "fasthttp", "unexpected EOF", "strconv", "127.0.0.1"} {
		if strings.Contains(r.body, inner) {
			t.Errorf("%s: shows the inside: %q", what, r.body)
		}
	}
}
