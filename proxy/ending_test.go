package proxy

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

const (
	sseHead    = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	errorEvent = `data: {"error":{"message":"EngineCore died","type":"InternalServerError","code":500}}` + "\n\n"
)

// then answers and does something to the connection that ends it. A reset is for
// bubbles: what was not read when it comes is lost, and in real time nobody knows.
func then(answer string, end func(*engine, *incoming)) func(*engine, *incoming) bool {
	return func(e *engine, in *incoming) bool {
		_ = in.write(answer)
		if end != nil {
			_ = in.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			in.gone() // let the bytes arrive
			_ = in.conn.SetReadDeadline(time.Time{})
			end(e, in)
		}
		return false
	}
}

func reset(_ *engine, in *incoming) {
	if l, ok := in.conn.(*net.TCPConn); ok {
		_ = l.SetLinger(0)
	}
	_ = in.conn.Close()
}

func silence(e *engine, in *incoming) { e.waitGone(in) }

// What was said to its last event is an answer, whatever the engine does to its
// framing afterwards. A client gets nothing behind [DONE].
func TestStreamIsWholeAtItsLastEvent(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		f := func(name string, end func(*engine, *incoming)) {
			t.Helper()
			for _, body := range []string{askStream, askUsage} {
				g := newRig(t, w, handlers(then(streamHead+chunk(role)+chunk(word+finish+done), end)))
				began := time.Now()
				r := g.chat(body)
				if r.body != role+word+finish+done || r.err != nil {
					t.Errorf("%s: got %q, %v", name, r.body, r.err)
				}
				if d := time.Since(began); g.timed() && d > 3*time.Second {
					t.Errorf("%s: took %v", name, d)
				}
				until(t, "in-flight back to 0", func() bool { return g.inFlight() == 0 })
				if s := g.reports.take(); s != "e1 served" {
					t.Errorf("%s: reports %q", name, s)
				}
				g.stop()
			}
		}
		f("FIN", nil)
		if _, ok := w.(sim); ok {
			f("reset", reset)
		}
		f("silence", silence)
	})
}

// An error event ends a stream as well: nothing is waited for or written behind it.
func TestErrorEventEndsAStream(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		f := func(name, head string, end func(*engine, *incoming)) {
			t.Helper()
			g := newRig(t, w, handlers(then(head+role+errorEvent, end)))
			began := time.Now()
			r := g.chat(askStream)
			if r.body != role+errorEvent || r.err != nil || time.Since(began) > 3*time.Second {
				t.Errorf("%s: got %q, %v after %v", name, r.body, r.err, time.Since(began))
			}
			if s := g.reports.take(); s != "e1 failed" {
				t.Errorf("%s: reports %q", name, s)
			}
			g.stop()
		}
		f("until close", sseHead+"Connection: close\r\n\r\n", nil)
		f("with its length", sseHead+"Content-Length: "+itoa(len(role+errorEvent))+"\r\n\r\n", silence)
	})
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(then(streamHead+chunk(role)+chunk(errorEvent), nil)))
		if r := g.chat(askStream); r.body != role+errorEvent || r.err == nil {
			t.Errorf("chunked and cut: got %q, %v", r.body, r.err)
		}
	})
}

// A 200 that is no JSON object is no answer: another replica may have one.
func TestAnswersThatAreNone(t *testing.T) {
	json := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	over(t, func(t *testing.T, w wire) {
		f := func(name, answer string) {
			t.Helper()
			for _, body := range []string{ask, askStream} {
				g := newRig(t, w, handlers(then(answer, nil), says(jsonAnswer(200, good))))
				if r := g.chat(body); r.StatusCode != 200 || r.body != good || r.err != nil {
					t.Errorf("%s: got %d %q, %v", name, r.StatusCode, r.body, r.err)
				}
				if s := g.reports.take(); s != "e1 failed, e2 served" {
					t.Errorf("%s: reports %q", name, s)
				}
				g.stop()
			}
		}
		f("cut, until close", json+"\r\n"+good[:60])
		f("cut by its own length", json+"Content-Length: 60\r\n\r\n"+good)
		f("empty", json+"Content-Length: 0\r\n\r\n")
		f("a list", json+"Content-Length: 2\r\n\r\n[]")
		f("a page", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>")
		f("a text without a type", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		f("no status", "HTTP/1.1 600 X\r\nContent-Type: application/json\r\nContent-Length: "+itoa(len(good))+"\r\n\r\n"+good)
	})
	over(t, func(t *testing.T, w wire) {
		f := func(name, body string, whole bool) {
			t.Helper()
			g := newRig(t, w, handlers(then(json+"\r\n"+body, nil)))
			r := g.chat(ask)
			if r.StatusCode != 200 || r.body != body || (r.err == nil) != whole {
				t.Errorf("%s: got %d, %d bytes of %d, %v", name, r.StatusCode, len(r.body), len(body), r.err)
			}
			g.stop()
		}
		long := strings.Replace(good, "Hi", strings.Repeat("x", 3<<20), 1) + "\n"
		f("long, until close", long, true)
		f("long and cut, until close", long[:2<<20], false)
	})
	over(t, func(t *testing.T, w wire) {
		bytes := "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 3\r\n\r\n\x00\x01\x02"
		g := newRig(t, w, handlers(says(bytes)))
		if r := g.do(post("/v1/embeddings", `{"model":"llama","input":"a","encoding_format":"bytes"}`)); r.body != "\x00\x01\x02" || r.StatusCode != 200 {
			t.Errorf("embeddings as bytes: %d %q", r.StatusCode, r.body)
		}
	})
}

// We ask for no encoding; what comes encoded all the same is not looked into.
func TestEncodedAnswersPassAsTheyAre(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		f := func(name, head, plain string, chunked bool, end func(*engine, *incoming)) {
			t.Helper()
			zip := pack(t, "gzip", plain)
			body := zip
			if chunked {
				body = chunk(zip[:20]) + chunk(zip[20:]) + lastChunk
			}
			g := newRig(t, w, handlers(then(strings.Replace(head, "LEN", itoa(len(zip)), 1)+"Content-Encoding: gzip\r\n\r\n"+body, end)))
			began := time.Now()
			r := g.chat(askStream)
			if r.StatusCode != 200 || r.body != zip || r.err != nil || r.Header.Get("Content-Encoding") != "gzip" {
				t.Errorf("%s: got %d %q, %v", name, r.StatusCode, r.body, r.err)
			}
			if d := time.Since(began); g.timed() && d > 3*time.Second {
				t.Errorf("%s: took %v", name, d)
			}
			if s := g.reports.take(); s != "e1 served" {
				t.Errorf("%s: reports %q", name, s)
			}
			g.stop()
		}
		events := role + word + finish + done
		f("stream", sseHead+"Transfer-Encoding: chunked\r\n", events, true, silence)
		f("stream with its length", sseHead+"Content-Length: LEN\r\n", events, false, silence)
		f("stream until close", sseHead, events, false, nil)
		f("JSON", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: LEN\r\n", good, false, silence)
		f("JSON until close", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", good, false, nil)
	})
}

func TestErrorsThatBreakOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		f := func(name, answer string, end func(*engine, *incoming), status int, report string) {
			t.Helper()
			g := newRig(t, w, handlers(then(answer, end)))
			began := time.Now()
			r := g.chat(ask)
			if r.StatusCode != status || !strings.Contains(r.body, `{"error":{`) {
				t.Errorf("%s: got %d %q", name, r.StatusCode, r.body)
			}
			if d := time.Since(began); d > 6*time.Second { // the idle limit is 5 s, that for the first byte a minute
				t.Errorf("%s: took %v", name, d)
			}
			if s := g.reports.take(); s != report {
				t.Errorf("%s: reports %q", name, s)
			}
			if n := g.metric("hearsay_retries_total"); n != 0 {
				t.Errorf("%s: %v retries of a replica that is alone", name, n)
			}
			g.stop()
		}
		head := func(status string) string {
			return "HTTP/1.1 " + status + " X\r\nContent-Type: application/json\r\nRetry-After: 7\r\nContent-Length: 200\r\n\r\n"
		}
		f("500, then silence", head("500"), silence, 504, "e1 timeout")
		f("400, then silence", head("400"), silence, 400, "e1 rejected")
		f("503, cut", head("503")+"{", nil, 503, "e1 busy 7s")
		f("429, cut", head("429")+"{", nil, 429, "e1 busy 7s")
		f("500, cut", head("500")+"{", nil, 502, "e1 failed")
	})
}

// An engine's complaint may quote what a client wrote: nobody's usage is lost to it.
func TestComplaintsThatQuoteTheClient(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
		if strings.Contains(string(in.body), "Hello there") {
			return in.write(streamHead+chunk(role)+chunk(word)+chunk(usage)+chunk(done)+lastChunk) == nil
		}
		return in.write(jsonAnswer(400, `{"error":{"message":"bad input: 'stream_options include_usage'","code":400}}`)) == nil
	}))
	odd := strings.Replace(askStream, "Hello there", "stream_options include_usage", 1)
	if r := g.chat(odd); r.StatusCode != 400 || !strings.Contains(r.body, "bad input") {
		t.Errorf("got %d %q", r.StatusCode, r.body)
	}
	if r := g.chat(askStream); r.body != role+word+done {
		t.Errorf("got %q", r.body)
	}
	if n := g.metric("hearsay_tokens_total"); n == 0 {
		t.Error("the usage of others is asked for no more")
	}
}

// A replica may answer before it has read a long body, and read no more of it.
func TestAnswerBeforeTheBodyIsRead(t *testing.T) {
	const refusal = `{"error":{"message":"too long","code":413}}`
	f := func(name, answer string, status int, report string, end func(net.Conn)) {
		t.Helper()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		released := make(chan struct{})
		over := make(chan struct{})
		go func() {
			defer close(over)
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1000))
			_, _ = io.WriteString(c, answer)
			end(c)
			<-released
			_ = c.Close()
		}()
		g := newRig(t, loopback{t}, handlers(says("unused")), func(cfg *Config, s *poolSpec) {
			s.IdleTimeout = 2 * time.Second
			cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
			}
		})
		r := g.chat(strings.Replace(ask, "Hello there", strings.Repeat("a", 30<<20), 1))
		if r.StatusCode != status || status == 413 && r.body != refusal {
			t.Errorf("%s: got %d %q", name, r.StatusCode, r.body)
		}
		if s := g.reports.take(); s != report {
			t.Errorf("%s: reports %q", name, s)
		}
		close(released)
		_ = ln.Close()
		<-over
		g.stop()
	}
	f("stays", jsonAnswer(413, refusal), 413, "e1 rejected", func(net.Conn) {})
	f("says no more", jsonAnswer(413, refusal), 413, "e1 rejected", func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() })
	f("does not answer", "", 504, "e1 timeout", func(net.Conn) {})
	f("closes", "", 502, "e1 failed", func(c net.Conn) { _ = c.Close() })
}

// A stream that ends with its connection may be cut anywhere: half an event is
// neither an end nor anything to pass on behind one.
func TestStreamUntilCloseCutAnywhere(t *testing.T) {
	const sent, seen = role + word + finish + usage + done, role + word + finish + done
	whole := map[int]string{ // where a cut leaves an answer, and what of it
		len(sent): seen, len(sent) - 1: seen[:len(seen)-1], len(sent) - 2: seen[:len(seen)-2],
		len(role + word + finish): role + word + finish, len(role+word+finish) - 1: seen[:len(role+word+finish)-1],
		len(role+word+finish) - 2:         seen[:len(role+word+finish)-2],
		len(role + word + finish + usage): role + word + finish, len(role+word+finish+usage) - 1: role + word + finish,
		len(role+word+finish+usage) - 2: role + word + finish,
	}
	inBubble(t, func(t *testing.T, w wire) {
		for _, body := range []string{askStream, askUsage} {
			cut := 0
			g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
				_ = in.write(sseHead + "\r\n" + sent[:cut])
				return false
			}))
			for cut = len(role + word); cut <= len(sent); cut++ {
				r := g.chat(body)
				want, ok := whole[cut]
				if body == askUsage {
					want = sent[:cut]
				}
				if (r.err == nil) != ok {
					t.Errorf("cut at %d, %q: %v", cut, sent[:cut][max(0, cut-20):], r.err)
				}
				got, fault, _ := strings.Cut(r.body, "data: {\"error\"")
				if ok && (got != want || fault != "") || !strings.HasPrefix(sent, got) && !strings.HasPrefix(seen, got) {
					t.Errorf("cut at %d: got %q", cut, r.body)
				}
				if !ok && body == askStream && !strings.HasSuffix(got, "\n\n") {
					t.Errorf("cut at %d: half an event in %q", cut, r.body)
				}
				if fault != "" && !strings.HasSuffix(got, "\n\n") {
					t.Errorf("cut at %d: an error within an event: %q", cut, r.body)
				}
				until(t, "in-flight back to 0", func() bool { return g.inFlight() == 0 })
			}
			g.stop()
		}
	})
}
