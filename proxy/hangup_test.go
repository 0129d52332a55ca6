package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A client that leaves is noticed in every phase: the engine sees its connection
// closed, nothing stays counted, and the replica is not blamed.
func TestClientLeaves(t *testing.T) {
	before := func(_ *engine, _ *incoming) {}
	afterHead := func(_ *engine, in *incoming) { _ = in.write(streamHead) }
	midStream := func(_ *engine, in *incoming) { _ = in.write(streamHead + chunk(role) + chunk(word)) }
	over(t, func(t *testing.T, w wire) {
		f := func(name, body string, begin func(*engine, *incoming), wait int, phase string) {
			t.Helper()
			g := newRig(t, w, handlers(func(e *engine, in *incoming) bool {
				begin(e, in)
				e.waitGone(in)
				return false
			}))
			c := g.conn()
			_, err := io.WriteString(c, post("/v1/chat/completions", body))
			must(t, err)
			until(t, name+": engine has the request", func() bool { n, _ := g.engines[0].seen(); return n == 1 })
			_, err = io.CopyN(io.Discard, c, int64(wait))
			must(t, err)
			if n := g.inFlight(); n != 1 {
				t.Errorf("%s: in-flight %d before", name, n)
			}
			_ = c.Close()
			left := time.Now()
			until(t, name+": engine sees the close", func() bool { _, n := g.engines[0].seen(); return n == 1 })
			if d := time.Since(left); g.timed() && d > time.Second {
				t.Errorf("%s: engine saw the close after %v", name, d)
			}
			until(t, name+": in-flight 0", func() bool { return g.inFlight() == 0 })
			until(t, name+": counted", func() bool { return g.metric("hearsay_requests_total", "code", "499") == 1 }) // as the last of its books
			if got := g.metric("hearsay_client_disconnects_total", "phase", phase); got != 1 {
				t.Errorf("%s: %v left while %s", name, got, phase)
			}
			if s := g.reports.take(); s != "e1 aborted" {
				t.Errorf("%s: reports %q", name, s)
			}
			g.stop()
		}
		f("stream, before the head", askStream, before, 0, "waiting")
		f("no stream, before the head", ask, before, 0, "waiting")
		f("after the head, before an event", askStream, afterHead, 0, "waiting")
		f("mid-stream", askStream, midStream, len(role+word), "streaming")
	})
}

func TestClientLeavesWhileConnecting(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		dialed := make(chan struct{})
		var failed atomic.Bool
		g := newRig(t, w, handlers(says(jsonAnswer(200, good))), func(cfg *Config, spec *poolSpec) {
			spec.ConnectTimeout = time.Hour
			cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
				close(dialed)
				<-ctx.Done()
				failed.Store(true)
				return nil, ctx.Err()
			}
		})
		c := g.conn()
		_, err := io.WriteString(c, post("/v1/chat/completions", ask))
		must(t, err)
		<-dialed
		_ = c.Close()
		until(t, "in-flight 0", func() bool { return failed.Load() && g.inFlight() == 0 })
		if got := g.metric("hearsay_client_disconnects_total", "phase", "connecting"); got != 1 {
			t.Errorf("disconnects while connecting: %v", got)
		}
		if s := g.reports.take(); s != "e1 aborted" {
			t.Errorf("reports %q", s)
		}
	})
}

func TestClientLeavesBehindTLS(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	g := newRig(t, loopback{t}, handlers(func(e *engine, in *incoming) bool {
		_ = in.write(streamHead + chunk(role))
		e.waitGone(in)
		return false
	}), func(cfg *Config, _ *poolSpec) {
		cfg.Listeners[0] = tls.NewListener(cfg.Listeners[0], &tls.Config{Certificates: cert.TLS.Certificates})
	})
	c := tls.Client(g.conn(), &tls.Config{InsecureSkipVerify: true})
	_, err := io.WriteString(c, post("/v1/chat/completions", askStream))
	must(t, err)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	must(t, err)
	_, err = io.CopyN(io.Discard, resp.Body, int64(len(role)))
	must(t, err)
	_ = c.NetConn().Close()
	until(t, "engine sees the close", func() bool { _, n := g.engines[0].seen(); return n == 1 })
}

func TestWatchers(t *testing.T) {
	linux, err := newWatcher()
	must(t, err)
	for name, w := range map[string]watcher{"system": linux, "poll": newPollWatcher()} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := w.run(ctx); err != nil {
					t.Error(err)
				}
			})
			defer w.close()
			defer wg.Wait()
			defer cancel()

			ln, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			defer ln.Close()
			open := func() (client net.Conn, server *clientConn) {
				client, err := net.Dial("tcp", ln.Addr().String())
				must(t, err)
				c, err := ln.Accept()
				must(t, err)
				server = &clientConn{Conn: c, limits: &Limits{}, watch: w}
				_, server.hang.raw = unwrap(c)
				must(t, w.add(&server.hang))
				return client, server
			}
			fired := func(n *atomic.Int32) func() { return func() { n.Add(1) } }

			var closed, quiet, disarmed, late, unread atomic.Int32
			a, as := open()
			as.OnHangup(fired(&closed))
			b, bs := open()
			bs.OnHangup(fired(&quiet))
			c, cs := open()
			cs.OnHangup(fired(&disarmed))()
			d, ds := open()
			d.(*net.TCPConn).SetLinger(0)
			e, es := open()
			es.OnHangup(fired(&unread))
			_, _ = io.WriteString(e, "pipelined and unread")
			_ = a.Close()
			_ = c.Close()
			_ = d.Close()
			until(t, "close", func() bool { return closed.Load() == 1 })
			if unread.Load() != 0 {
				t.Error("unread bytes count as a hang-up")
			}
			_ = e.Close()
			if name == "system" {
				until(t, "close behind unread bytes", func() bool { return unread.Load() == 1 })
			}
			ds.OnHangup(fired(&late))
			until(t, "reset before it was armed", func() bool { return late.Load() == 1 })
			if quiet.Load() != 0 || disarmed.Load() != 0 {
				t.Errorf("quiet %d, disarmed %d", quiet.Load(), disarmed.Load())
			}
			for _, s := range []*clientConn{as, bs, cs, ds, es} {
				_ = s.Close()
			}
			_ = b.Close()
			// The same descriptors come back: nothing old fires.
			var again atomic.Int32
			f, fs := open()
			fs.OnHangup(fired(&again))
			if again.Load() != 0 {
				t.Error("a new connection inherited a hang-up")
			}
			_ = f.Close()
			until(t, "new connection's own close", func() bool { return again.Load() == 1 })
			_ = fs.Close()
		})
	}
}

// The client that does not read stops the engine from being read, and is ended
// after the write-stall limit.
func TestClientThatDoesNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		big := "data: " + strings.Repeat("x", 8000) + "\n\n"
		var sent atomic.Int64
		g := newRig(t, w, handlers(func(e *engine, in *incoming) bool {
			_ = in.write(streamHead)
			for in.write(chunk(big)) == nil {
				if sent.Add(int64(len(big))) > 200<<20 {
					t.Error("the engine could send 200 MB")
					break
				}
			}
			e.mu.Lock()
			e.closes++
			e.mu.Unlock()
			return false
		}), func(cfg *Config, _ *poolSpec) { cfg.Limits.WriteStall = 20 * time.Second })
		c := g.conn()
		_, err := io.WriteString(c, post("/v1/chat/completions", askStream))
		must(t, err)
		_, err = io.CopyN(io.Discard, c, 4096)
		must(t, err)
		time.Sleep(15 * time.Second)
		// A window in each direction and the relay's buffers.
		if n := sent.Load(); n > 2<<20 {
			t.Errorf("%d bytes were taken from the engine", n)
		}
		if g.inFlight() != 1 {
			t.Error("ended before the limit")
		}
		time.Sleep(10 * time.Second)
		if _, n := g.engines[0].seen(); n != 1 || g.inFlight() != 0 {
			t.Errorf("after the limit: engine closed %d, in-flight %d", n, g.inFlight())
		}
	})
}

// A closed window is no vanished peer: it has as long as the write-stall limit says.
func TestClientThatReadsLater(t *testing.T) {
	const pieces = 150
	big := chunk("data: " + strings.Repeat("x", 8000) + "\n\n")
	g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
		_ = in.write(streamHead)
		for range pieces {
			if in.write(big) != nil {
				return false
			}
		}
		return in.write(chunk(done)+lastChunk) == nil
	}), func(cfg *Config, _ *poolSpec) {
		cfg.Limits.WriteStall, cfg.Limits.Unacked = 10*time.Second, 500*time.Millisecond
		cfg.Limits.ClientBuffer = 16 << 10
	})
	c := g.conn()
	must(t, c.(*net.TCPConn).SetReadBuffer(16<<10))
	_, err := io.WriteString(c, post("/v1/chat/completions", askStream))
	must(t, err)
	<-time.After(2 * time.Second)
	must(t, c.(*net.TCPConn).SetReadBuffer(1<<20))
	if r := readReply(t, bufio.NewReader(c)); r.err != nil || len(r.body) != pieces*8008+len(done) {
		t.Errorf("got %d bytes, %v", len(r.body), r.err)
	}
}
