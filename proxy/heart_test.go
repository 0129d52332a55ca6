package proxy

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// after answers when so much time has passed.
func after(d time.Duration, then func(*engine, *incoming) bool) func(*engine, *incoming) bool {
	return func(e *engine, in *incoming) bool { time.Sleep(d); return then(e, in) }
}

// heard is a client that notes when it heard what.
type heard struct {
	reply
	beats []time.Duration // when comments came
	rest  string
}

func (g *rig) listen(body string, fields ...string) (h heard) {
	c := g.conn()
	defer func() { _ = c.Close() }()
	began := time.Now()
	_, err := io.WriteString(c, post("/v1/chat/completions", body, fields...))
	must(g.t, err)
	h.Response, err = http.ReadResponse(bufio.NewReader(c), nil)
	must(g.t, err)
	p := make([]byte, 64<<10)
	for {
		n, err := h.Response.Body.Read(p)
		s := string(p[:n])
		for range strings.Count(s, comment) {
			h.beats = append(h.beats, time.Since(began).Round(100*time.Millisecond))
		}
		h.body += s
		h.rest += strings.ReplaceAll(s, comment, "")
		if err == io.EOF {
			return h
		} else if err != nil {
			h.err = err
			return h
		}
	}
}

func TestHeartbeats(t *testing.T) {
	run := func(name string, every time.Duration, engines []func(*engine, *incoming) bool, check func(t *testing.T, g *rig)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w wire) {
				check(t, newRig(t, w, engines, func(_ *Config, s *poolSpec) {
					s.Heartbeat, s.FirstByteTimeout, s.IdleTimeout = every, 5*time.Minute, 30*time.Second
				}))
			})
		})
	}
	every := func(n int) (at []time.Duration) {
		for i := range n {
			at = append(at, time.Duration(i+1)*10*time.Second)
		}
		return at
	}
	events := streams(role, word, finish, usage, done)
	whole := role + word + finish + done
	run("silent for 70 s, then a stream", 10*time.Second, handlers(after(75*time.Second, events)), func(t *testing.T, g *rig) {
		h := g.listen(askStream)
		if h.rest != whole || h.err != nil || !slices.Equal(h.beats, every(7)) {
			t.Errorf("got %q at %v, %v", h.rest, h.beats, h.err)
		}
		if n := g.metric("hearsay_tokens_total", "type", "output"); n != 3 {
			t.Errorf("%v output tokens", n)
		}
		until(t, "served", func() bool { return g.reports.take() == "e1 served" })
		if p := g.srv.Picks().Latest(1); len(p) != 1 || (p[0].Observed < 74*time.Second || p[0].Observed > 76*time.Second) {
			t.Errorf("first token after %v", p[0].Observed)
		}
	})
	run("dies at 45 s, another one answers", 10*time.Second, handlers(after(45*time.Second, func(*engine, *incoming) bool { return false }), after(10*time.Second, events)), func(t *testing.T, g *rig) {
		h := g.listen(askStream, "x-hearsay-debug: 1")
		if h.rest != whole || h.err != nil || !slices.Equal(h.beats, every(5)) {
			t.Errorf("got %q at %v, %v", h.rest, h.beats, h.err)
		}
		if s := g.reports.take(); s != "e1 failed, e2 served" {
			t.Errorf("reports %q", s)
		}
	})
	run("alone and dead", 10*time.Second, handlers(after(15*time.Second, func(*engine, *incoming) bool { return false })), func(t *testing.T, g *rig) {
		h := g.listen(askStream)
		if h.err == nil || !strings.HasPrefix(h.rest, `data: {"error":{`) || strings.Count(h.rest, "\n\n") != 1 || h.StatusCode != 200 {
			t.Errorf("got %q, %v", h.body, h.err)
		}
	})
	slow := func(_ *engine, in *incoming) bool {
		_ = in.write(streamHead + chunk(role) + chunk(word[:20]))
		time.Sleep(25 * time.Second)
		return in.write(chunk(word[20:]+finish)+chunk(done)+lastChunk) == nil
	}
	run("half an event", 10*time.Second, handlers(slow), func(t *testing.T, g *rig) {
		if h := g.listen(askUsage); h.body != whole || h.err != nil {
			t.Errorf("passed on as it came: %q, %v", h.body, h.err)
		}
		if h := g.listen(askStream); h.body != role+comment+comment+word+finish+done || h.err != nil {
			t.Errorf("held back here: %q, %v", h.body, h.err)
		}
	})
	run("silent mid-stream", time.Second, handlers(func(e *engine, in *incoming) bool {
		_ = in.write(streamHead + chunk(role))
		e.waitGone(in)
		return false
	}), func(t *testing.T, g *rig) {
		began := time.Now()
		h := g.listen(askStream)
		if d := time.Since(began); d < 30*time.Second || d > 31*time.Second {
			t.Errorf("comments hold the idle limit up: ended after %v", d)
		}
		if n := len(h.beats); n != 29 && n != 30 || !strings.Contains(h.rest, "upstream_timeout") {
			t.Errorf("%d comments, %q", n, h.rest)
		}
	})
	run("a stream that lives", time.Second, handlers(func(_ *engine, in *incoming) bool {
		_ = in.write(streamHead)
		for range 20 {
			_ = in.write(chunk(word))
			time.Sleep(900 * time.Millisecond)
		}
		return in.write(chunk(done)+lastChunk) == nil
	}), func(t *testing.T, g *rig) {
		if h := g.listen(askStream); len(h.beats) != 0 || h.err != nil {
			t.Errorf("comments at %v", h.beats)
		}
	})
	run("a byte order mark", time.Second, handlers(after(1500*time.Millisecond, streams("\xEF\xBB\xBF"+role, done))), func(t *testing.T, g *rig) {
		if h := g.listen(askUsage); h.body != comment+role+done {
			t.Errorf("got %q", h.body)
		}
	})
	run("an engine's comments, for longer than it may be idle", 0, handlers(func(_ *engine, in *incoming) bool {
		_ = in.write(streamHead)
		for range 3 {
			_ = in.write(chunk(": ping\n\n"))
			time.Sleep(40 * time.Second)
		}
		return in.write(chunk(role+done)+lastChunk) == nil
	}), func(t *testing.T, g *rig) {
		if h := g.listen(askUsage); h.body != strings.Repeat(": ping\n\n", 3)+role+done || h.err != nil {
			t.Errorf("got %q, %v", h.body, h.err)
		}
	})
	run("an HTTP/1.0 client", time.Second, handlers(after(3*time.Second, events)), func(t *testing.T, g *rig) {
		s := g.raw(strings.Replace(post("/v1/chat/completions", askStream), "HTTP/1.1", "HTTP/1.0", 1))
		if !strings.HasSuffix(s, "\r\n\r\n"+whole) {
			t.Errorf("got %q", s)
		}
	})
	run("what is no stream", time.Second, handlers(after(3*time.Second, says(jsonAnswer(200, good)))), func(t *testing.T, g *rig) {
		if h := g.listen(ask); h.body != good || len(h.beats) != 0 {
			t.Errorf("got %q", h.body)
		}
		if h := g.listen(askStream); h.err == nil || !strings.HasPrefix(h.rest, `data: {"error":{`) {
			t.Errorf("an object in a stream's place: %q, %v", h.body, h.err)
		}
	})
}
