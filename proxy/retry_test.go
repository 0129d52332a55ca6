package proxy

import (
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

const tooLongPrompt = `{"error":{"message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}}`

// A client's mistake goes back as the engine said it, is tried nowhere else, and
// neither blames nor clears the replica.
func TestClientMistakesAreNotRetried(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(says(jsonAnswer(400, tooLongPrompt)), says(jsonAnswer(200, good))))
		for range 3 {
			if r := g.chat(ask); r.StatusCode != 400 || r.body != tooLongPrompt {
				t.Errorf("got %d %q", r.StatusCode, r.body)
			}
		}
		if n, _ := g.engines[1].seen(); n != 0 {
			t.Errorf("the other engine got %d", n)
		}
		if s := g.reports.take(); s != "e1 rejected, e1 rejected, e1 rejected" {
			t.Errorf("reports %q", s)
		}
	})
}

// llama.cpp's server answers what it can't make anything of with 500, as it does its own
// failures: the bytes are those of a real one.
func TestLlamaCppsWordForAClientsMistake(t *testing.T) {
	recorded := func(name string) string {
		b, err := os.ReadFile("../test/engines/testdata/llamacpp-b10434/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	f := func(name string, kind state.EngineKind, body, want string) {
		t.Helper()
		g := newRig(t, loopback{t}, handlers(says(jsonAnswer(500, body)), says(jsonAnswer(200, good))), func(_ *Config, s *poolSpec) { s.Engine = kind })
		r := g.chat(ask)
		if got := g.reports.take(); got != want || want == "e1 rejected" && (r.StatusCode != 500 || r.body != body) {
			t.Errorf("%s: reports %q, got %d %q", name, got, r.StatusCode, r.body)
		}
		g.stop()
	}
	image, tools := recorded("error-image.json"), recorded("error-tools.json")
	f("an image for a model of text", state.EngineLlamaCpp, image, "e1 rejected")
	f("odd tools", state.EngineLlamaCpp, tools, "e1 rejected")
	f("another engine", state.EngineVLLM, image, "e1 failed, e2 served")
	f("its own failure", state.EngineLlamaCpp, `{"error":{"code":500,"message":"Compute error.","type":"server_error"}}`, "e1 failed, e2 served")
	f("no error in JSON", state.EngineLlamaCpp, "image input is not supported", "e1 failed, e2 served")
}

func TestBrokenReplicaIsLeftForAnother(t *testing.T) {
	ok := says(jsonAnswer(200, good))
	f := func(name string, w wire, reason, report string, first func(*engine, *incoming) bool, opts ...option) {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, w, handlers(first, ok), opts...)
			r := g.chat(ask, "x-hearsay-debug: 1")
			if r.StatusCode != 200 || r.body != good || r.Header.Get("X-Hearsay-Attempts") != "2" || r.Header.Get("X-Hearsay-Replica") != "e2" {
				t.Errorf("got %d %q %v", r.StatusCode, r.body, r.Header)
			}
			if s := g.reports.take(); s != report+", e2 served" {
				t.Errorf("reports %q", s)
			}
			if got := g.metric("hearsay_retries_total", "pool", "chat", "reason", reason); got != 1 {
				t.Errorf("retries for %s: %v", reason, got)
			}
			g.stop()
		})
	}
	w := loopback{t}
	f("500", w, "status_5xx", "e1 failed", says(jsonAnswer(500, `{"error":{"message":"x"}}`)))
	f("empty 500", w, "status_5xx", "e1 failed", says("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"))
	f("503", w, "busy", "e1 busy 2s", says(jsonAnswer(503, `{"error":{"message":"The request queue is full."}}`, "Retry-After: 2")))
	f("429 without a word on when", w, "busy", "e1 busy", says(jsonAnswer(429, `{"error":"Model is overloaded","error_type":"overloaded"}`)))
	f("429 that asks for a week", w, "busy", "e1 busy 1m0s", says(jsonAnswer(429, `{}`, "Retry-After: 561635")))
	f("closes without an answer", w, "transport", "e1 failed", func(*engine, *incoming) bool { return false })
	f("half a head", w, "transport", "e1 failed", func(_ *engine, in *incoming) bool { _ = in.write("HTTP/1.1 200 OK\r\nContent-"); return false })
	f("no HTTP", w, "bad_response", "e1 failed", says("what?\r\n\r\n"))
	f("redirect", w, "bad_response", "e1 failed", says("HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"))
	f("switching protocols", w, "bad_response", "e1 failed", says("HTTP/1.1 101 X\r\n\r\n"))
	f("half a body", w, "transport", "e1 failed", func(_ *engine, in *incoming) bool {
		_ = in.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		return false
	})
	f("error in a 200", w, "error_event", "e1 failed", says(jsonAnswer(200, `{"object":"error","message":"x","code":500}`)))
	f("refused", w, "connect", "e1 failed", ok, func(cfg *Config, _ *poolSpec) {
		dial, n := cfg.Dial, new(atomic.Int32)
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if n.Add(1) == 1 {
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, addr)
		}
	})
}

func TestNothingLeftToTry(t *testing.T) {
	f := func(name string, handlers []func(*engine, *incoming) bool, status int, in, retryAfter string) {
		t.Helper()
		g := newRig(t, loopback{t}, handlers)
		r := g.chat(ask)
		if r.StatusCode != status || !strings.Contains(r.body, in) || !strings.Contains(r.body, `"error"`) || r.Header.Get("Retry-After") != retryAfter {
			t.Errorf("%s: got %d %q %v", name, r.StatusCode, r.body, r.Header)
		}
		if ct := r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
			t.Errorf("%s: content type %q", name, ct)
		}
		g.stop()
	}
	text := func(status, body string) func(*engine, *incoming) bool {
		return says("HTTP/1.1 " + status + " X\r\nContent-Type: text/plain\r\nContent-Length: " + seconds(time.Duration(len(body))*time.Second) + "\r\n\r\n" + body)
	}
	f("no replica at all", nil, 503, `"code":"no_replica"`, "5")
	f("all refuse with 500 in JSON", handlers(says(jsonAnswer(500, `{"error":{"message":"mine"}}`))), 500, "mine", "")
	f("HTML", handlers(text("500", "<html>oops</html>")), 502, `"code":"upstream_error"`, "")
	f("JSON array", handlers(says(jsonAnswer(500, `[1]`))), 502, `"code":"upstream_error"`, "")
	f("text with 404", handlers(text("404", "nope")), 404, `"type":"invalid_request_error"`, "")
	f("older error form", handlers(says(jsonAnswer(400, `{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400,"x":"error"}`))), 400, `"object":"error"`, "")
	f("all at 429", handlers(says(jsonAnswer(429, `{"error":{"message":"a"}}`, "Retry-After: 7")), says(jsonAnswer(429, `{"error":{"message":"b"}}`, "Retry-After: 9"))), 429, `"b"`, "7")
	f("loading", handlers(says(jsonAnswer(503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`))), 503, "Loading model", "1")
	f("text with 503", handlers(text("503", "The request queue is full.")), 503, `"code":"overloaded"`, "1")
	f("stream without an event", handlers(streams()), 502, `"code":"upstream_error"`, "")
}

// Replicas that are away, all of them, are no failed answer: 503 and when to ask
// again. What one said that was reached comes first.
func TestReplicasThatAreNotReached(t *testing.T) {
	refuse := func(context.Context) error { return syscall.ECONNREFUSED }
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	breaks := func(*engine, *incoming) bool { return false }
	busy := says(jsonAnswer(429, `{"error":{"message":"a"}}`, "Retry-After: 7"))
	f := func(name string, status int, in, retryAfter string, shed float64, away []func(context.Context) error, handlers []func(*engine, *incoming) bool) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w wire) {
				g := newRig(t, w, handlers, func(cfg *Config, s *poolSpec) {
					s.ConnectTimeout = 20 * time.Millisecond
					dial, n := cfg.Dial, new(atomic.Int32)
					cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
						if i := int(n.Add(1)); i <= len(away) && away[i-1] != nil {
							return nil, away[i-1](ctx)
						}
						return dial(ctx, addr)
					}
				})
				defer g.stop()
				r := g.chat(ask)
				if r.StatusCode != status || !strings.Contains(r.body, in) || r.Header.Get("Retry-After") != retryAfter {
					t.Errorf("got %d %q %v", r.StatusCode, r.body, r.Header)
				}
				if got := g.metric("hearsay_shed_total", "pool", "chat", "reason", "all_unreachable"); got != shed {
					t.Errorf("%v shed as unreachable, want %v", got, shed)
				}
			})
		})
	}
	type dials = []func(context.Context) error
	f("all refuse the connection", 503, `"code":"no_replica"`, "2", 1, dials{refuse, refuse}, handlers(breaks, breaks))
	f("the only one does", 503, `"type":"server_error"`, "2", 1, dials{refuse}, handlers(breaks))
	f("no connection in time", 503, `"code":"no_replica"`, "2", 1, dials{silent, refuse}, handlers(breaks, breaks))
	f("one breaks, the other is away", 502, `"code":"upstream_error"`, "", 0, dials{nil, refuse}, handlers(breaks, breaks))
	f("one is away, the other breaks", 502, `"code":"upstream_error"`, "", 0, dials{refuse, nil}, handlers(breaks, breaks))
	f("one is busy, the other is away", 429, `"a"`, "7", 0, dials{nil, refuse}, handlers(busy, breaks))
}

func TestAttemptsAreBounded(t *testing.T) {
	bad := says(jsonAnswer(500, `{"error":{"message":"x"}}`))
	g := newRig(t, loopback{t}, handlers(bad, bad, says(jsonAnswer(200, good))))
	if r := g.chat(ask); r.StatusCode != 500 {
		t.Errorf("got %d", r.StatusCode)
	}
	if s := g.reports.take(); s != "e1 failed, e2 failed" {
		t.Errorf("reports %q", s)
	}
}

// What a replica is believed to hold: the prompt once it had a first token, and
// nothing of an attempt that never had one.
func TestPlacementsFollowTheOutcome(t *testing.T) {
	held := func(answer func(*engine, *incoming) bool, request string) int {
		g := newRig(t, loopback{t}, handlers(answer))
		defer g.stop()
		g.chat(request)
		until(t, "ended", func() bool { return g.inFlight() == 0 && g.metric("hearsay_requests_total") == 1 })
		r := g.store.View().Replica("e1")
		marks, err := new(prefix.Hasher).Marks(nil, prefix.Seed{Model: "llama"}, prefix.Input{Kind: prefix.Chat, Messages: []byte(`[{"role":"user","content":"Hello there"},{"role":"assistant","content":"Hi"}]`)})
		must(t, err)
		m := make([]sketch.Match, 1)
		g.index.Lookup(m, marks, []state.Slot{r.Slot}, time.Now())
		if m[0].Pending != 0 {
			t.Error("a placement is still pending")
		}
		return m[0].Live
	}
	for name, c := range map[string]struct {
		answer  func(*engine, *incoming) bool
		request string
		want    int
	}{
		"answer":                  {says(jsonAnswer(200, good)), ask, 2},
		"stream":                  {streams(role, word, finish, done), askStream, 2},
		"stream that breaks":      {func(_ *engine, in *incoming) bool { _ = in.write(streamHead + chunk(role)); return false }, askStream, 1},
		"refused":                 {says(jsonAnswer(400, tooLongPrompt)), ask, 0},
		"failed":                  {says(jsonAnswer(500, `{}`)), ask, 0},
		"dies before any answer":  {func(*engine, *incoming) bool { return false }, askStream, 0},
		"error as its only event": {streams(`data: {"error":{"message":"x","code":500}}` + "\n\n"), askStream, 0},
	} {
		if got := held(c.answer, c.request); got != c.want {
			t.Errorf("%s: %d messages are held, want %d", name, got, c.want)
		}
	}
}

// The engine closes idle connections after 5 s, as uvicorn does: no request may be
// lost to that, and none executed twice.
func TestKeepAliveRace(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		big := strings.Replace(ask, "Hello there", strings.Repeat("word ", 600<<10), 1)
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			if in.write(jsonAnswer(200, good)) != nil {
				return false
			}
			_ = in.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, err := in.br.Peek(1)
			_ = in.conn.SetReadDeadline(time.Time{})
			return err == nil
		}), func(_ *Config, s *poolSpec) { s.RetryAttempts = 1 })
		n := 0
		for _, gap := range []time.Duration{100 * time.Millisecond, 3900 * time.Millisecond, 3999 * time.Millisecond, 4 * time.Second, 4900 * time.Millisecond, 4999 * time.Millisecond, 5 * time.Second, 5001 * time.Millisecond, 5100 * time.Millisecond} {
			for i := range 6 {
				body := ask
				if i == 5 {
					body = big
				}
				time.Sleep(gap)
				if r := g.chat(body); r.StatusCode != 200 {
					t.Errorf("gap %v: %d %q", gap, r.StatusCode, r.body)
				}
				n++
			}
		}
		if got, _ := g.engines[0].seen(); got != n {
			t.Errorf("%d requests were executed, want %d", got, n)
		}
		if g.engines[0].dials >= n {
			t.Error("no connection was reused")
		}
	})
}

// late is a connection on which something happens between the router's decision to
// use it and its next write.
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

// A request that the engine can't have read, since it had closed the connection when
// it came, is sent once more on a new one, without blame. One that it may have read
// is not.
func TestOneResendOnAReusedConnection(t *testing.T) {
	f := func(name string, end func(g *rig), answer func(*engine, *incoming) bool, status, requests int, report string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			var g *rig
			var armed atomic.Bool
			if answer == nil {
				answer = says(jsonAnswer(200, good))
			}
			g = newRig(t, loopback{t}, handlers(answer), func(cfg *Config, _ *poolSpec) {
				dial := cfg.Dial
				cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
					c, err := dial(ctx, addr)
					if err != nil {
						return nil, err
					}
					return late{c, func() {
						if armed.Swap(false) {
							end(g)
						}
					}}, nil
				}
			})
			big := strings.Replace(ask, "Hello there", strings.Repeat("word ", 600<<10), 1)
			both := g.pair()
			if r := both(ask); r.StatusCode != 200 {
				t.Fatalf("got %d %q", r.StatusCode, r.body)
			}
			armed.Store(true)
			if r := both(big); r.StatusCode != status {
				t.Errorf("got %d %q", r.StatusCode, r.body)
			}
			if armed.Load() {
				t.Error("nothing was written")
			}
			if n, _ := g.engines[0].seen(); n != requests {
				t.Errorf("the engine read %d requests", n)
			}
			if s := g.reports.take(); s != report {
				t.Errorf("reports %q", s)
			}
		})
	}
	closes := func(linger int) func(*rig) {
		return func(g *rig) {
			e := g.engines[0]
			e.mu.Lock()
			defer e.mu.Unlock()
			for c := range e.conns {
				_ = c.(*net.TCPConn).SetLinger(linger)
				_ = c.Close()
			}
		}
	}
	f("closed while idle", closes(-1), nil, 200, 2, "e1 served, e1 served")
	f("reset while idle", closes(0), nil, 200, 2, "e1 served, e1 served")
	reads := func(linger int) func(*engine, *incoming) bool {
		return func(_ *engine, in *incoming) bool {
			if in.n == 1 {
				return in.write(jsonAnswer(200, good)) == nil
			}
			_ = in.conn.(*net.TCPConn).SetLinger(linger)
			return false
		}
	}
	f("read and closed", func(*rig) {}, reads(-1), 502, 2, "e1 served, e1 failed")
	f("read and reset", func(*rig) {}, reads(0), 502, 2, "e1 served, e1 failed")
}

// Once a byte of an answer has come, the request was read: it is not sent again.
func TestNoResendAfterAByte(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			if in.n == 2 {
				_ = in.write("HTTP/1.1 2")
				return false
			}
			return in.write(jsonAnswer(200, good)) == nil
		}))
		both := g.pair()
		both(ask)
		if r := both(ask); r.StatusCode != 502 {
			t.Errorf("got %d %q", r.StatusCode, r.body)
		}
		if n, _ := g.engines[0].seen(); n != 2 {
			t.Errorf("%d requests", n)
		}
		if s := g.reports.take(); s != "e1 served, e1 failed" {
			t.Errorf("reports %q", s)
		}
	})
}

// A replica that gave up an adapter since it was read says so: one that has it still is
// asked. Where none has, the client hears it in the replica's words.
func TestAdapterThatHasJustGone(t *testing.T) {
	const ask = `{"model":"a1","messages":[{"role":"user","content":"Hi"}]}`
	const gone = `{"error":{"message":"The model ` + "`a1`" + ` does not exist.","type":"NotFoundError","param":"model","code":404}}`
	const never = `{"object":"error","message":"Got LoRA adapter that has never been loaded: a1","type":"BadRequestError","param":null,"code":400}`
	const other = `{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`
	inBubble(t, func(t *testing.T, w wire) {
		f := func(kind state.EngineKind, first, second string, want int, outcome string) {
			t.Helper()
			g := newRig(t, w, handlers(says(first), says(second)), func(_ *Config, s *poolSpec) { s.Engine = kind })
			for _, e := range []state.ReplicaID{"e1", "e2"} {
				read := state.UnknownReading(e)
				read.OK, read.Adapters = true, []string{"a1"}
				read.AdaptersSum, read.At = state.SumAdapters(read.Adapters), g.store.Clock().Stamp(time.Now())
				g.store.ApplyReading(read)
			}
			if r := g.chat(ask); r.StatusCode != want {
				t.Errorf("%s: %d %s, want %d", first, r.StatusCode, r.body, want)
			}
			until(t, "nothing in flight", func() bool { return g.inFlight() == 0 })
			if s := g.reports.take(); s != outcome {
				t.Errorf("%s: reports %q", first, s)
			}
			g.stop()
		}
		f(state.EngineVLLM, jsonAnswer(404, gone), jsonAnswer(200, good), 200, "e1 rejected, e2 served")
		f(state.EngineVLLM, jsonAnswer(404, gone), jsonAnswer(404, gone), 404, "e1 rejected, e2 rejected")
		f(state.EngineSGLang, jsonAnswer(400, never), jsonAnswer(200, good), 200, "e1 rejected, e2 served")
		f(state.EngineSGLang, jsonAnswer(400, other), jsonAnswer(200, good), 400, "e1 rejected")
	})
}
