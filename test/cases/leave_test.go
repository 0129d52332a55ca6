package cases

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// A client that leaves during the prefill takes its upstream request with it, at
// once, and no router counts it any more.
func TestC12ClientLeavesDuringPrefill(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	p := pool(e)
	p.Breaker.Failures = 1
	routers := start(t, setup{routers: 3}, p)
	left := 0.0
	f := func(name, body, head string, leave func(*stream)) {
		e.becomes(func(g *got) bool { g.write(head); g.gone(); return false })
		e.forget()
		s := routers[0].open(body)
		for _, r := range routers { // the others know of it
			until(t, name+": counted", func() bool { return r.inFlight(e) == 1 })
		}
		leave(s)
		within(t, time.Second, name+": the engine sees the close", func() bool { return e.gones() == 1 })
		within(t, time.Second, name+": in-flight 0 at once", func() bool { return routers[0].inFlight(e) == 0 })
		settled(t, routers, e)
		left++
		until(t, name+": counted as left", func() bool {
			return routers[0].metric("hearsay_client_disconnects_total", `phase="waiting"`) == left && routers[0].metric("hearsay_requests_total", `code="499"`) == left
		})
		if len(e.requests()) != 1 || routers[0].is(e, "ejected") || routers[0].metric("hearsay_retries_total") != 0 {
			t.Errorf("%s: the replica is blamed, or asked again: %d requests", name, len(e.requests()))
		}
	}
	closes := func(s *stream) { _ = s.conn.Close() }
	resets := func(s *stream) { reset(s.conn) }
	f("a stream, behind the head", askStream, streamHead, closes)
	f("a stream, before the head", askStream, "", closes)
	f("a stream, by a reset", askStream, streamHead, resets)
	f("no stream, before the head", ask, "", closes)
	f("no stream, behind the head", ask, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", closes)
	f("no stream, within the body", ask, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"id\"", resets)
	f("within the first event", askStream, streamHead+chunks("data: {\"id\""), closes)
	e.becomes(healthy)
	if a := routers[0].chat(ask); a.StatusCode != 200 {
		t.Errorf("afterwards: %d %q", a.StatusCode, a.body)
	}
}

// What runs stays counted for as long as it runs, on every router, through all the
// readings, sweeps and exchanges meanwhile.
func TestC14CountsOfLivingRequests(t *testing.T) {
	t.Parallel()
	inBubble(t, countsOfLivingRequests)
}

func countsOfLivingRequests(t *testing.T, w *world) {
	const long = 8
	end, endFree := make(chan struct{}), make(chan struct{})
	stop := sync.OnceFunc(func() { close(end) })
	hold := func(end chan struct{}) func(*got) bool {
		return func(g *got) bool {
			if !strings.Contains(g.body, "hold") {
				return healthy(g)
			}
			if !g.stream(role) {
				return false
			}
			<-end
			return g.write(chunks(finish, done) + lastChunk)
		}
	}
	busy, free := w.engine(t, hold(end)), w.engine(t, hold(endFree))
	t.Cleanup(stop) // before the engines are
	p := pool(busy, free)
	p.Policy = "least_outstanding"
	p.Timeouts.Idle = time.Minute
	routers := w.start(t, setup{routers: 3}, p)
	prefix := strings.Repeat("Once upon a time. ", 200)
	body := func(what string) string {
		return fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`, prefix, what)
	}
	var held []*stream
	for len(busy.requests()) < long { // as many go to the other one, and end there
		s := routers[0].open(body("hold"))
		s.expect(role)
		held = append(held, s)
	}
	running := float64(len(busy.requests()))
	close(endFree)
	for _, r := range routers {
		within(t, 3*time.Second, "counted everywhere", func() bool { return r.inFlight(busy) == running && r.inFlight(free) == 0 })
	}
	free.forget()
	reads := busy.readings()
	for n := 0; n < 30 || busy.readings() < reads+25; n++ { // 25 readings are 2.5 s: sweeps, rows and weights come more often
		r := routers[n%3]
		if a := r.chat(body("short")); a.err != nil || a.StatusCode != 200 {
			t.Fatalf("a short one: %d %q, %v", a.StatusCode, a.body, a.err)
		}
		if n := r.inFlight(busy); n != running {
			t.Fatalf("%v in flight, while %v run", n, running)
		}
		<-time.After(50 * time.Millisecond)
	}
	if n, m := len(busy.requests())-int(running), len(free.requests()); n != 0 || m < 30 {
		t.Errorf("the engine that is held up got %d short ones, the free one %d", n, m)
	}
	stop()
	for _, s := range held {
		if a := s.rest(); a.err != nil {
			t.Errorf("a long one: %v", a.err)
		}
	}
	for _, r := range routers {
		within(t, 3*time.Second, "none counted", func() bool { return r.inFlight(busy) == 0 && r.inFlight(free) == 0 })
	}
}
