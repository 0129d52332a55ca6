package cases

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// An engine at its limit is left alone for as long as it asks, within reason, and
// busy is neither broken nor healthy.
func TestC19RetryAfter(t *testing.T) {
	t.Parallel()
	inBubble(t, retryAfter)
}

func retryAfter(t *testing.T, w *world) {
	one, two := w.engine(t, nil), w.engine(t, nil)
	one.models = []string{"m2"}
	p := pool(one, two)
	p.Breaker = node.BreakerConfig{Failures: 1, Open: time.Hour, MaxEjected: 1}
	other := pool()
	other.Name, other.Model, other.Aliases = "q", "m2", nil
	// An address is one replica of one pool: the same engine under another name.
	other.Replicas = []node.ReplicaConfig{{URL: one.alias}}
	limit := func(answer string) func(*got) bool {
		return func(g *got) bool {
			if strings.Contains(g.body, `"m2"`) {
				return healthy(g)
			}
			return g.write(answer)
		}
	}
	mentions := func(e *engine, model string) (n int) {
		for _, g := range e.requests() {
			if strings.Contains(g.body, `"`+model+`"`) {
				n++
			}
		}
		return n
	}
	// f sends requests from the first 429 on, until the engine that gave it is asked
	// again, and returns after how long that was.
	f := func(name, answer string, most time.Duration) time.Duration {
		r := w.start(t, setup{}, p, other)[0]
		one.becomes(limit(answer))
		two.becomes(healthy)
		one.forget()
		two.forget()
		// Work on the other engine is more, so that this one would be preferred.
		until(t, name+": it says so", func() bool {
			if a := r.chat(ask); a.StatusCode != 200 {
				t.Errorf("%s: %d %q", name, a.StatusCode, a.body)
			}
			return mentions(one, "m") == 1
		})
		began := one.requests()[0].at
		one.becomes(healthy)
		n := 0
		for ; mentions(one, "m") == 1 && time.Since(began) < most; n++ {
			if a := r.chat(ask); a.StatusCode != 200 {
				t.Errorf("%s: %d %q", name, a.StatusCode, a.body)
			}
			if n < 5 {
				if a := r.chat(strings.Replace(ask, `"m"`, `"m2"`, 1)); a.StatusCode != 200 {
					t.Errorf("%s: the other model: %d %q", name, a.StatusCode, a.body)
				}
			}
			if r.is(one, "ejected") {
				t.Errorf("%s: busy opens the breaker", name)
			}
			<-time.After(50 * time.Millisecond)
		}
		if m := mentions(one, "m2"); m != min(n, 5) {
			t.Errorf("%s: the other model went there %d times of %d", name, m, min(n, 5))
		}
		if mentions(one, "m") == 1 {
			return most
		}
		return one.requests()[len(one.requests())-1].at.Sub(began)
	}
	if d := f("1 s", reply(429, `{"error":{"message":"slow down"}}`, "Retry-After: 1"), 15*time.Second); d < time.Second || d > 10*time.Second {
		t.Errorf("asked for 1 s, got %v", d)
	}
	if d := f("no header", reply(429, tgiBusy), 8*time.Second); d > 4*time.Second {
		t.Errorf("did not ask, and was left alone for %v", d)
	}
	if d := f("a date", reply(429, tgiBusy, "Retry-After: "+time.Now().Add(2*time.Second).UTC().Format(http.TimeFormat)), 15*time.Second); d < 500*time.Millisecond || d > 10*time.Second {
		t.Errorf("asked for less than 2 s by a date, got %v", d)
	}
	if d := f("a week", reply(429, tgiBusy, "Retry-After: 561635"), time.Second); d < time.Second {
		t.Errorf("asked for a week, got %v", d)
	}

	// All at their limit: the client hears the least wait, and it shrinks.
	r := w.start(t, setup{}, p, other)[0]
	one.becomes(limit(reply(429, tgiBusy, "Retry-After: 561635")))
	two.becomes(says(reply(429, tgiBusy, "Retry-After: 4")))
	one.forget()
	two.forget()
	wait := func() int {
		a := r.chat(ask)
		n, err := strconv.Atoi(a.Header.Get("Retry-After"))
		if a.StatusCode != 429 || err != nil || !strings.Contains(a.body, `"error"`) {
			t.Errorf("all at their limit: %d %q %v", a.StatusCode, a.body, a.Header)
		}
		return n
	}
	if n := wait(); n != 4 {
		t.Errorf("Retry-After %d, want 4", n)
	}
	until(t, "the wait shrinks", func() bool { n := wait(); return n > 0 && n < 4 })
	if n, m := mentions(one, "m"), mentions(two, "m"); n != 1 || m != 1 {
		t.Errorf("they were asked %d and %d times all the same", n, m)
	}
	// Alone with a huge wait: what the client hears is capped.
	solo := pool(one)
	solo.Breaker = p.Breaker
	r = w.start(t, setup{}, solo)[0]
	if n := wait(); n != 60 {
		t.Errorf("Retry-After %d, want 60", n)
	}
	// Nor is a 429 a good answer: a replica on trial stays on trial.
	solo.Breaker.Open = 200 * time.Millisecond
	r = w.start(t, setup{}, solo)[0]
	one.becomes(says(reply(500, oops)))
	r.chat(ask)
	until(t, "on trial", func() bool { return r.is(one, "half_open") })
	one.becomes(says(reply(429, tgiBusy)))
	for range 5 {
		if a := r.chat(ask); a.StatusCode != 429 {
			t.Errorf("on trial: %d %q", a.StatusCode, a.body)
		}
		<-time.After(30 * time.Millisecond)
		if !r.is(one, "half_open") {
			t.Fatal("a 429 counts as proof, of health or of failure")
		}
	}
}

// Busy is forgotten as soon as the engine says that it has room.
func TestC20OverloadIsForgotten(t *testing.T) {
	t.Parallel()
	inBubble(t, overloadIsForgotten)
}

func overloadIsForgotten(t *testing.T, w *world) {
	e := w.engine(t, nil)
	routers := w.start(t, setup{routers: 3}, pool(e))
	for name, busy := range map[string]string{
		"queue full, JSON":   reply(503, full),
		"queue full, text":   "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 26\r\n\r\nThe request queue is full.",
		"queue full, in 200": streamHead + chunks(errorEvent("ServiceUnavailable", 503), done) + lastChunk,
	} {
		e.becomes(says(busy))
		for _, r := range routers { // all of them at once
			a := r.chat(askStream)
			if a.StatusCode != 503 || a.Header.Get("Retry-After") != "1" || !strings.Contains(a.body, `"error"`) {
				t.Errorf("%s: %d %q %v", name, a.StatusCode, a.body, a.Header)
			}
		}
		e.becomes(healthy)
		reads := e.readings()
		until(t, "a reading", func() bool { return e.readings() > reads })
		for _, r := range routers {
			until(t, name+": no longer busy", func() bool { return !r.is(e, "busy") })
			for range 20 {
				if a := r.chat(ask); a.StatusCode != 200 {
					t.Errorf("%s, afterwards: %d %q", name, a.StatusCode, a.body)
				}
			}
		}
	}
	settled(t, routers, e)

	// All of a pool at once.
	many := []*engine{w.engine(t, says(reply(503, full))), w.engine(t, says(reply(503, full))), w.engine(t, says(reply(503, full)))}
	p := pool(many...)
	p.Retry.Attempts = 3
	r := w.start(t, setup{}, p)[0]
	if a := r.chat(ask); a.StatusCode != 503 || a.body != full {
		t.Errorf("all are full: %d %q", a.StatusCode, a.body)
	}
	for _, e := range many {
		if len(e.requests()) != 1 {
			t.Errorf("one of three was asked %d times", len(e.requests()))
		}
		e.becomes(healthy)
	}
	for _, e := range many {
		until(t, "no longer busy", func() bool { return !r.is(e, "busy") })
	}
	for range 20 {
		if a := r.chat(ask); a.StatusCode != 200 {
			t.Errorf("afterwards: %d %q", a.StatusCode, a.body)
		}
	}
}
