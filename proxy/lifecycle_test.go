package proxy

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

func TestHTTP10Clients(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			if strings.Contains(string(in.body), `"stream":true`) {
				_ = in.write(streamHead + chunk(role) + chunk(word))
				if strings.Contains(string(in.body), "odd") {
					return false
				}
				return in.write(chunk(done)+lastChunk) == nil
			}
			return in.write(jsonAnswer(200, good)) == nil
		}))
		old := func(body string) string {
			return g.raw(strings.Replace(post("/v1/chat/completions", body), "HTTP/1.1", "HTTP/1.0", 1))
		}
		got := old(ask)
		if !strings.HasSuffix(got, good) || strings.Contains(got, "chunked") {
			t.Errorf("got %q", got)
		}
		got = old(askStream)
		if !strings.HasPrefix(got, "HTTP/1.0 200 OK\r\n") || !strings.HasSuffix(got, "\r\n\r\n"+role+word+done) || strings.Contains(got, "chunked") || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("stream: got %q", got)
		}
		if got = old(strings.Replace(askStream, "Hello", "odd", 1)); strings.Contains(got, "[DONE]") {
			t.Errorf("broken stream: got %q", got)
		}
		until(t, "in-flight 0", func() bool { return g.inFlight() == 0 })
	})
}

func TestPanicsAreContained(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))), func(cfg *Config, _ *poolSpec) {
		dial := cfg.Dial
		n := 0
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if n++; n == 1 {
				panic("odd")
			}
			return dial(ctx, addr)
		}
		cfg.Logger = cfg.Logger.Level(7)
	})
	r := g.chat(ask)
	if r.StatusCode != 500 || !strings.Contains(r.body, `"code":"internal_error"`) || strings.Contains(r.body, "odd") || !r.Close {
		t.Errorf("got %d %q", r.StatusCode, r.body)
	}
	if g.metric("hearsay_panics_total") != 1 || g.inFlight() != 0 {
		t.Errorf("panics %v, in-flight %d", g.metric("hearsay_panics_total"), g.inFlight())
	}
	if r := g.chat(ask); r.StatusCode != 200 {
		t.Errorf("afterwards: %d", r.StatusCode)
	}
}

func TestShutdown(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		release := make(chan struct{})
		drain := time.Second
		if _, ok := w.(sim); !ok {
			drain = 4 * time.Second // the quick one has to end in it
		}
		g := newRig(t, w, handlers(func(e *engine, in *incoming) bool {
			_ = in.write(streamHead + chunk(role))
			if strings.Contains(string(in.body), "quick") {
				<-release
				return in.write(chunk(done)+lastChunk) == nil
			}
			e.waitGone(in)
			return false
		}), func(cfg *Config, _ *poolSpec) { cfg.Limits.Drain = drain })
		start := func(body string) (net.Conn, *bufio.Reader) {
			c := g.conn()
			_, err := c.Write([]byte(post("/v1/chat/completions", body)))
			must(t, err)
			br := bufio.NewReader(c)
			_, err = br.Peek(1)
			must(t, err)
			return c, br
		}
		idle := g.conn()
		idleReader := bufio.NewReader(idle)
		if r := exchangeOn(t, idle, idleReader, get("/livez")); r.StatusCode != 200 {
			t.Fatal(r.StatusCode)
		}
		_, quick := start(strings.Replace(askStream, "Hello", "quick", 1))
		_, endless := start(askStream)
		began := time.Now()
		g.cancel()
		if _, err := idleReader.ReadByte(); err == nil {
			t.Error("the idle connection got bytes")
		}
		until(t, "no more connections", func() bool {
			c, err := w.dial(context.Background(), "client", g.addr)
			if err == nil {
				_ = c.Close()
			}
			return err != nil
		})
		close(release)
		if r := readReply(t, quick); r.err != nil || r.body != role+done {
			t.Errorf("a stream that ends in time: %q, %v", r.body, r.err)
		}
		r := readReply(t, endless)
		if r.err == nil || !strings.Contains(r.body, `data: {"error":`) {
			t.Errorf("a stream that does not: %q, %v", r.body, r.err)
		}
		if !strings.Contains(r.body, "shutting down") {
			t.Errorf("the farewell does not say why: %q", r.body)
		}
		g.stop()
		if d := time.Since(began); d < drain || g.timed() && d > 3*drain {
			t.Errorf("took %v", d)
		}
		if _, n := g.engines[0].seen(); n != 1 {
			t.Errorf("the engine saw %d closes", n)
		}
	})
}
