package proxy

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// The usage we ask for is ours: an engine that refuses the field is asked without
// it, and not again.
func TestEngineThatRefusesStreamOptions(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
		if strings.Contains(string(in.body), "stream_options") {
			return in.write(jsonAnswer(400, `{"error":{"message":"unknown field stream_options","code":400}}`)) == nil
		}
		return in.write(streamHead+chunk(role)+chunk(word)+chunk(done)+lastChunk) == nil
	}))
	for range 2 {
		if r := g.chat(askStream); r.StatusCode != 200 || r.body != role+word+done {
			t.Errorf("got %d %q", r.StatusCode, r.body)
		}
	}
	if n, _ := g.engines[0].seen(); n != 3 {
		t.Errorf("%d requests", n)
	}
	// A client that asks itself hears the engine.
	if r := g.chat(askUsage); r.StatusCode != 400 {
		t.Errorf("got %d", r.StatusCode)
	}
	if s := g.reports.take(); s != "e1 served, e1 served, e1 rejected" {
		t.Errorf("reports %q", s)
	}
}

func TestTimeouts(t *testing.T) {
	opts := func(_ *Config, s *poolSpec) {
		s.ConnectTimeout, s.FirstByteTimeout, s.IdleTimeout, s.TotalTimeout = time.Second, 45*time.Second, 5*time.Second, 10*time.Minute
	}
	run := func(name string, handlers []func(*engine, *incoming) bool, f func(t *testing.T, g *rig)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w wire) { f(t, newRig(t, w, handlers, opts)) })
		})
	}
	run("a slow but living stream goes on", handlers(func(_ *engine, in *incoming) bool {
		_ = in.write(streamHead)
		for range 100 {
			_ = in.write(chunk(word))
			time.Sleep(4 * time.Second)
		}
		return in.write(chunk(done)+lastChunk) == nil
	}), func(t *testing.T, g *rig) {
		if r := g.chat(askStream); r.err != nil || r.body != strings.Repeat(word, 100)+done {
			t.Errorf("got %d bytes, %v", len(r.body), r.err)
		}
	})
	run("an answer that needs 40 s", handlers(func(_ *engine, in *incoming) bool {
		time.Sleep(40 * time.Second)
		return in.write(jsonAnswer(200, good)) == nil
	}), func(t *testing.T, g *rig) {
		if r := g.chat(ask); r.StatusCode != 200 {
			t.Errorf("got %d", r.StatusCode)
		}
	})
	run("a stream that falls silent", handlers(func(e *engine, in *incoming) bool {
		_ = in.write(streamHead + chunk(word+word+word))
		e.waitGone(in)
		return false
	}), func(t *testing.T, g *rig) {
		began := time.Now()
		r := g.chat(askStream)
		if d := time.Since(began); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("ended after %v", d)
		}
		if r.err == nil || !strings.HasPrefix(r.body, word+word+word+`data: {"error":`) || strings.Contains(r.body, "[DONE]") {
			t.Errorf("got %q, %v", r.body, r.err)
		}
		time.Sleep(time.Second)
		if _, n := g.engines[0].seen(); n != 1 || g.inFlight() != 0 {
			t.Errorf("engine closed %d, in-flight %d", n, g.inFlight())
		}
		if s := g.reports.take(); s != "e1 timeout" {
			t.Errorf("reports %q", s)
		}
	})
	run("a head and then nothing goes to another", handlers(func(e *engine, in *incoming) bool {
		_ = in.write(streamHead)
		e.waitGone(in)
		return false
	}, streams(role, done)), func(t *testing.T, g *rig) {
		began := time.Now()
		if r := g.chat(askStream); r.body != role+done {
			t.Errorf("got %q", r.body)
		}
		if d := time.Since(began); d < 45*time.Second || d > 46*time.Second {
			t.Errorf("moved after %v", d)
		}
		if s := g.reports.take(); s != "e1 timeout, e2 served" {
			t.Errorf("reports %q", s)
		}
	})
	run("the total limit ends everything", handlers(func(_ *engine, in *incoming) bool {
		_ = in.write(streamHead)
		for in.write(chunk(word)) == nil {
			time.Sleep(time.Second)
		}
		return false
	}), func(t *testing.T, g *rig) {
		began := time.Now()
		r := g.chat(askStream)
		if d := time.Since(began); d < 10*time.Minute || d > 10*time.Minute+2*time.Second {
			t.Errorf("ended after %v", d)
		}
		if r.err == nil || !strings.Contains(r.body, "upstream_timeout") {
			t.Errorf("got %.100q, %v", r.body, r.err)
		}
		until(t, "report", func() bool { return g.reports.take() == "e1 aborted" })
	})
	run("a half event waits for its rest", handlers(func(_ *engine, in *incoming) bool {
		_ = in.write(streamHead + chunk(role) + chunk(word[:20]))
		time.Sleep(4 * time.Second)
		return in.write(chunk(word[20:])+chunk(done)+lastChunk) == nil
	}), func(t *testing.T, g *rig) {
		if r := g.chat(askStream); r.body != role+word+done || r.err != nil {
			t.Errorf("got %q, %v", r.body, r.err)
		}
	})
}

func TestConnectTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(says(jsonAnswer(200, good)), says(jsonAnswer(200, good))), func(cfg *Config, _ *poolSpec) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				if addr == "e1:80" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return dial(ctx, addr)
			}
		})
		began := time.Now()
		if r := g.chat(ask); r.StatusCode != 200 {
			t.Errorf("got %d", r.StatusCode)
		}
		if d := time.Since(began); d < 2*time.Second || d > 3*time.Second {
			t.Errorf("took %v", d)
		}
		if s := g.reports.take(); s != "e1 timeout, e2 served" {
			t.Errorf("reports %q", s)
		}
	})
}
