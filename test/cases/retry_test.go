package cases

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

const tooLong = `{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 9000.","type":"BadRequestError","param":null,"code":400}}`

// What a client did wrong says nothing of the replica, in neither direction.
func TestC16ClientMistakesAndTheBreaker(t *testing.T) {
	t.Parallel()
	inBubble(t, mistakesAndTheBreaker)
}

func mistakesAndTheBreaker(t *testing.T, w *world) {
	e := w.engine(t, nil)
	p := pool(e)
	p.Breaker = node.BreakerConfig{Failures: 5, Open: 300 * time.Millisecond, MaxEjected: 1}
	r := w.start(t, setup{}, p)[0]
	bad := strings.Replace(ask, "Hello there", "oversize", 1)
	answers := func(goodOne func(*got) bool) func(*got) bool {
		return func(g *got) bool {
			if strings.Contains(g.body, "oversize") {
				return g.write(reply(400, tooLong))
			}
			return goodOne(g)
		}
	}
	refused := func() {
		t.Helper()
		if a := r.chat(bad); a.StatusCode != 400 || a.body != tooLong {
			t.Errorf("a mistake: got %d %q", a.StatusCode, a.body)
		}
	}
	e.becomes(answers(healthy))
	for range 30 {
		refused()
	}
	for range 5 {
		if a := r.chat(ask); a.StatusCode != 200 {
			t.Errorf("a good one: got %d %q", a.StatusCode, a.body)
		}
	}
	if n := len(e.requests()); n != 35 || r.is(e, "ejected") {
		t.Errorf("the engine got %d requests of 35, ejected: %v", n, r.is(e, "ejected"))
	}

	out := func() bool { return r.is(e, "ejected") || r.is(e, "half_open") }
	e.becomes(answers(says(reply(500, oops))))
	for i := range 40 {
		if a := r.chat(bad); a.StatusCode != 400 && a.StatusCode != 503 {
			t.Errorf("a mistake, while the engine fails: %d", a.StatusCode)
		}
		if a := r.chat(ask); a.StatusCode != 500 && a.StatusCode != 503 {
			t.Errorf("a good one, while the engine fails: %d", a.StatusCode)
		}
		if i >= 5 && out() {
			break
		}
	}
	until(t, "ejected", out)

	e.becomes(answers(healthy))
	until(t, "half open", func() bool { return r.is(e, "half_open") })
	e.forget()
	until(t, "mistakes on trial", func() bool { // one trial at a time, others are told to come back
		if a := r.chat(bad); a.StatusCode == 400 && a.body != tooLong || a.StatusCode != 400 && a.StatusCode != 503 {
			t.Errorf("a mistake on trial: got %d %q", a.StatusCode, a.body)
		}
		if !r.is(e, "half_open") {
			t.Fatal("a mistake counts as proof, of health or of failure")
		}
		return len(e.requests()) >= 4
	})
	until(t, "the good trial", func() bool { return r.chat(ask).StatusCode == 200 })
	if n := r.metric("hearsay_retries_total"); n != 0 {
		t.Errorf("%v retries", n)
	}
	until(t, "in traffic again", func() bool { return !r.is(e, "half_open") && !r.is(e, "ejected") })
}

// late is a connection on which something happens between the router's decision to
// reuse it and what it writes.
type late struct {
	net.Conn
	before func()
}

func (l late) Write(p []byte) (int, error) {
	l.before()
	return l.Conn.Write(p)
}

// SyscallConn lets the router look at the connection as at any.
func (l late) SyscallConn() (syscall.RawConn, error) { return l.Conn.(*net.TCPConn).SyscallConn() }

// An engine closes idle connections without notice. No client notices, and nothing
// is executed twice.
func TestC17ReusedConnections(t *testing.T) {
	t.Parallel()
	var armed atomic.Pointer[func()]
	arm := func(f func()) { armed.Store(&f) }
	e := newEngine(t, healthy)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil && "http://"+addr == e.url {
			c = late{c, func() {
				if f := armed.Swap(nil); f != nil {
					(*f)()
				}
			}}
		}
		return c, err
	}
	p := pool(e)
	p.Retry.Attempts = 1
	fresh := func() *router {
		reads := e.readings()
		// Readings use the same dialer: they are far apart.
		r := start(t, setup{dial: dial, readEvery: time.Hour}, p)[0]
		until(t, "read once", func() bool { return e.readings() > reads })
		return r
	}
	big := strings.Replace(ask, "Hello there", strings.Repeat("word ", 600<<10), 1)
	closes := func(linger int) func() {
		return func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			for c := range e.conns {
				_ = c.(*net.TCPConn).SetLinger(linger)
				_ = c.Close()
			}
		}
	}
	f := func(name string, between func(), says func(*got) bool, status, executed int) {
		for _, body := range []string{ask, big} {
			r := fresh() // one that has learned nothing of the engine's habits
			e.becomes(healthy)
			s := r.open(ask)
			if a := s.rest(); a.StatusCode != 200 {
				t.Fatalf("%s: at first %d %q", name, a.StatusCode, a.body)
			}
			e.becomes(says)
			e.forget()
			arm(between)
			if a := s.again(body); a.StatusCode != status {
				t.Errorf("%s, %d bytes: %d %q, %v", name, len(body), a.StatusCode, a.body, a.err)
			}
			n := 0
			for _, g := range e.requests() {
				if g.body == body {
					n++
				}
			}
			if n != executed {
				t.Errorf("%s, %d bytes: executed %d times, want %d", name, len(body), n, executed)
			}
			if armed.Swap(nil) != nil {
				t.Errorf("%s: nothing was written", name)
			}
		}
	}
	f("closed before the request came", closes(-1), healthy, 200, 1)
	f("reset before the request came", closes(0), healthy, 200, 1)
	f("closed on the request, which it has read", func() {}, func(*got) bool { return false }, 502, 1)
	f("reset on the request, which it has read", func() {}, func(g *got) bool { g.reset(); return false }, 502, 1)

	// Gaps about the engine's own limit.
	const keep = 30 * time.Millisecond
	r := fresh()
	e.becomes(healthy)
	e.mu.Lock()
	e.idle = keep
	e.mu.Unlock()
	s := r.open(ask)
	s.rest()
	until(t, "the engine closes", e.closed)
	s.again(ask) // it is known by now that this engine keeps connections for a short time
	e.forget()
	const many = 60
	for i := range many {
		body := ask
		if i%10 == 9 {
			body = big
		}
		if a := r.chat(body); a.StatusCode != 200 {
			t.Errorf("request %d: %d %q", i, a.StatusCode, a.body)
		}
		<-time.After(keep + time.Duration(i%3-1)*time.Millisecond)
	}
	if n := len(e.requests()); n != many {
		t.Errorf("executed %d requests of %d", n, many)
	}
	settled(t, []*router{r}, e)
}

// llama.cpp's server offers to keep a connection after a stream, and closes it. While it
// is busy with other things the next request may be there first, and is lost with it.
func TestC17EngineThatClosesAfterStreams(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	p := pool(e)
	p.Retry.Attempts = 1
	r := start(t, setup{readEvery: time.Hour}, p)[0]
	f := func(name, body string, n int) {
		t.Helper()
		for i := range n {
			if a := r.chat(body); a.StatusCode != 200 || a.err != nil {
				t.Errorf("%s, request %d: %d %q, %v", name, i, a.StatusCode, a.body, a.err)
			}
		}
	}
	stream := streams(role, finish, done)
	e.becomes(func(g *got) bool { stream(g); return false })
	f("closed at once", askStream, 1)
	until(t, "it is closed", e.closed)
	f("closed at once, which is found out", askStream, 1)
	e.becomes(func(g *got) bool { return g.nth == 1 && stream(g) }) // it closes on the request that came meanwhile
	f("closed late", askStream, 20)
	// Answers of a stated length are another matter.
	e.becomes(healthy)
	if n := dials(t, r, e, ask); n != 0 {
		t.Errorf("%d new connections for answers of a stated length", n)
	}
}

// Connections are kept after streams where an engine keeps them.
func TestC17StreamsReuseConnections(t *testing.T) {
	t.Parallel()
	e := newEngine(t, streams(role, finish, done))
	r := start(t, setup{readEvery: time.Hour}, pool(e))[0]
	if n := dials(t, r, e, askStream); n != 0 {
		t.Errorf("%d new connections", n)
	}
}

// dials asks eleven times, one after the other, and returns how often the router
// dialled its engine for the last ten.
func dials(t *testing.T, r *router, e *engine, body string) int {
	t.Helper()
	s := r.open(body)
	s.rest()
	before := e.dialled()
	for i := range 10 {
		if a := s.again(body); a.StatusCode != 200 || a.err != nil {
			t.Errorf("request %d: %d %q, %v", i, a.StatusCode, a.body, a.err)
		}
	}
	return e.dialled() - before
}

// A replica with a warm cache that fails is left alone soon, by all routers, and comes
// back.
func TestC18BrokenReplicaWithAWarmCache(t *testing.T) {
	t.Parallel()
	f := func(name string, breaks, mends func(*engine)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { brokenReplica(t, w, breaks, mends) })
		})
	}
	f("500", func(e *engine) { e.becomes(says(reply(500, oops))) }, func(e *engine) { e.becomes(healthy) })
	f("refused", (*engine).refuse, func(e *engine) { e.mu.Lock(); e.refuses = false; e.mu.Unlock() })
}

func brokenReplica(t *testing.T, w *world, breaks, mends func(*engine)) {
	engines := []*engine{w.engine(t, healthy), w.engine(t, healthy)}
	p := pool(engines...)
	p.Breaker = node.BreakerConfig{Failures: 2, Open: 2 * time.Second, MaxEjected: 0.5}
	routers := w.start(t, setup{routers: 3}, p)
	prompt := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("Once upon a time. ", 600))
	for range 3 {
		if a := routers[0].chat(prompt); a.StatusCode != 200 {
			t.Fatalf("warming up: %d %q", a.StatusCode, a.body)
		}
	}
	warm, cold := engines[0], engines[1]
	if len(cold.requests()) > len(warm.requests()) {
		warm, cold = cold, warm
	}
	for _, r := range routers {
		until(t, "all know where it is warm", func() bool {
			n := len(warm.requests())
			r.chat(prompt)
			return len(warm.requests()) > n
		})
	}
	warm.forget()
	cold.forget()
	breaks(warm)
	for i := range 100 {
		if a := routers[i%3].chat(prompt); a.StatusCode != 200 || a.body != good {
			t.Errorf("request %d: %d %q", i, a.StatusCode, a.body)
		}
		<-time.After(5 * time.Millisecond)
	}
	if n := len(warm.requests()); n > 10 {
		t.Errorf("the broken engine got %d of 100", n)
	}
	for _, r := range routers {
		within(t, 3*time.Second, "out everywhere", func() bool {
			return r.is(warm, "ejected") || r.is(warm, "half_open") || r.is(warm, "unreachable")
		})
	}
	mends(warm)
	warm.forget()
	for _, r := range routers {
		until(t, "back", func() bool {
			n := len(warm.requests())
			if a := r.chat(prompt); a.StatusCode != 200 {
				t.Errorf("while it comes back: %d %q", a.StatusCode, a.body)
			}
			return len(warm.requests()) > n
		})
	}
}
