package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAnswersArriveByteForByte(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		odd := ` {"id" : "c1", "choices":[{"index":0,"message":{"content":"\u00e9 \ud83c\udf0d \ud83c"}}] ,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12},"x":[1,{"y":null}]}` + "\n"
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			if in.URL.Path == "/v1/embeddings" {
				return in.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"+
					chunk(odd[:7])+chunk(odd[7:])+lastChunk) == nil
			}
			return in.write(jsonAnswer(200, odd, "openai-processing-ms: 12", "Set-Cookie: a=b", "Keep-Alive: timeout=5", "x-request-id: theirs")) == nil
		}))
		r := g.chat(ask, "x-request-id: mine-1")
		if r.StatusCode != 200 || r.body != odd || r.err != nil {
			t.Fatalf("got %d %q, %v", r.StatusCode, r.body, r.err)
		}
		if got := r.Header; got.Get("Openai-Processing-Ms") != "12" || got.Get("Set-Cookie") != "" || got.Get("Keep-Alive") != "" || got.Get("X-Request-Id") != "mine-1" {
			t.Errorf("headers %v", got)
		}
		if r := g.do(post("/v1/embeddings", `{"model":"llama","input":["a","b"]}`)); r.body != odd {
			t.Errorf("embeddings: %q", r.body)
		}
		if got := g.metric("hearsay_tokens_total", "pool", "chat", "type", "output"); got != 6 {
			t.Errorf("output tokens %v", got)
		}
		if s := g.reports.take(); s != "e1 served, e1 served" {
			t.Errorf("reports %q", s)
		}
	})
}

func TestStreamArrivesAsSentButForUsageNobodyAskedFor(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(streams(role, word, word, finish, usage, done)))
		r := g.chat(askStream)
		if want := role + word + word + finish + done; r.body != want || r.err != nil {
			t.Errorf("got %q, %v", r.body, r.err)
		}
		if r.ContentLength >= 0 || r.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
			t.Errorf("head %v", r.Header)
		}
		r = g.chat(askUsage)
		if want := role + word + word + finish + usage + done; r.body != want {
			t.Errorf("asked for usage: %q", r.body)
		}
		g.stop()
		e := g.engines[0]
		if !strings.Contains(e.bodies[0], `"stream_options":{"include_usage":true}`) || e.bodies[1] != askUsage {
			t.Errorf("engine got %q", e.bodies)
		}
		for name, want := range map[string]float64{
			"hearsay_reported_cached_tokens_total": 8, "hearsay_time_to_first_token_seconds": 2,
			"hearsay_requests_total": 2, "hearsay_picks_total": 2,
		} {
			if got := g.metric(name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// Each event leaves when it comes, however the network cuts it.
func TestEventsAreNotHeldBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			_ = in.write(streamHead)
			for range 20 {
				_ = in.write(chunk(word))
				time.Sleep(100 * time.Millisecond)
			}
			for range 3 {
				time.Sleep(4 * time.Second)
				_ = in.write(chunk(word))
			}
			return in.write(chunk(done)+lastChunk) == nil
		}))
		c := g.conn()
		_, err := io.WriteString(c, post("/v1/chat/completions", askStream))
		must(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		buf := make([]byte, 4096)
		last := time.Now()
		var gaps []time.Duration
		for {
			n, err := resp.Body.Read(buf)
			if n > 0 {
				if s := string(buf[:n]); s != word && !strings.HasSuffix(s, done) {
					t.Errorf("one read brought %q", s)
				}
				gaps = append(gaps, time.Since(last))
				last = time.Now()
			}
			if err != nil {
				break
			}
		}
		if len(gaps) != 23 && len(gaps) != 24 {
			t.Fatalf("%d pieces", len(gaps))
		}
		for i, d := range gaps[1:20] {
			if d < 90*time.Millisecond || d > 110*time.Millisecond {
				t.Errorf("piece %d came after %v", i+1, d)
			}
		}
	})
}

func TestStreamCutAfterEveryByte(t *testing.T) {
	events := []string{
		role,
		`data: {"choices":[{"index":0,"delta":{"content":"那个 🌍 é"},"finish_reason":null}]}` + "\n\n",
		`data: {"choices":[{"index":0,"delta":{"content":"\ud83c"},"finish_reason":null}]}` + "\n\n",
		`data: {"choices":[{"index":0,"delta":{"content":"\udf0d"},"finish_reason":null}]}` + "\n\n",
		finish, done,
	}
	all := strings.Join(events, "")
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
			_ = in.write(streamHead)
			for i := range len(all) {
				_ = in.write(chunk(all[i : i+1]))
				time.Sleep(time.Millisecond)
			}
			return in.write(lastChunk) == nil
		}))
		for _, body := range []string{askStream, strings.Replace(askStream, "llama", "fast", 1)} {
			if r := g.chat(body); r.body != all || r.err != nil {
				t.Errorf("got %q, %v", r.body, r.err)
			}
		}
	})
}

func TestVeryLongEvents(t *testing.T) {
	for _, size := range []int{65537, 1<<20 + 1, 4 << 20} {
		long := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("a", size) + `"}}]},"finish_reason":null}]}` + "\n\n"
		g := newRig(t, loopback{t}, handlers(streams(role, long, usage, done)))
		if r := g.chat(askStream); r.body != role+long+done || r.err != nil {
			t.Errorf("size %d: got %d bytes, %v", size, len(r.body), r.err)
		}
		if r := g.chat(askUsage); r.body != role+long+usage+done || r.err != nil {
			t.Errorf("size %d: asked for usage: got %d bytes, %v", size, len(r.body), r.err)
		}
		if got := g.metric("hearsay_tokens_total", "type", "output"); got != 6 {
			t.Errorf("size %d: output tokens %v", size, got)
		}
		g.stop()
	}
	tooLong := "data: " + strings.Repeat("a", 17<<20) + "\n\n"
	g := newRig(t, loopback{t}, handlers(streams(role, tooLong, done)))
	r := g.chat(askStream)
	if r.err == nil || !strings.HasPrefix(r.body, role) || !strings.Contains(r.body, `data: {"error":`) || strings.Contains(r.body, "[DONE]") {
		t.Errorf("over the bound: %d bytes, %v", len(r.body), r.err)
	}
}

// A stream that breaks never looks like one that ended.
func TestEngineDiesMidStream(t *testing.T) {
	over(t, func(t *testing.T, w wire) {
		head, frame := streamHead, chunk
		f := func(name, body string, die func(c net.Conn)) {
			t.Helper()
			g := newRig(t, w, handlers(func(_ *engine, in *incoming) bool {
				_ = in.write(head + frame(role) + frame(word) + frame(word))
				_ = in.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				in.gone() // let the bytes arrive
				die(in.conn)
				return false
			}))
			r := g.chat(body)
			if r.err == nil {
				t.Errorf("%s: the body ended as if it were whole: %q", name, r.body)
			}
			rest, ok := strings.CutPrefix(r.body, role+word+word)
			if !ok || strings.Contains(rest, "[DONE]") || strings.Contains(rest, "finish_reason") {
				t.Errorf("%s: got %q", name, r.body)
			}
			if !strings.HasPrefix(rest, `data: {"error":{`) || !strings.HasSuffix(rest, "\n\n") {
				t.Errorf("%s: ends with %q", name, rest)
			}
			until(t, "in-flight back to 0", func() bool { return g.inFlight() == 0 })
			if s := g.reports.take(); s != "e1 failed" {
				t.Errorf("%s: reports %q", name, s)
			}
			g.stop()
		}
		reset := func(c net.Conn) {
			if l, ok := c.(*net.TCPConn); ok {
				_ = l.SetLinger(0)
			}
			_ = c.Close()
		}
		if _, ok := w.(sim); ok { // in real time a reset may overtake what was written
			f("reset", askStream, reset)
		}
		head = "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
		frame = func(s string) string { return s }
		f("FIN of a stream that ends with its connection", askStream, func(c net.Conn) { _ = c.Close() })
		head, frame = streamHead, chunk
		f("FIN without the last chunk", askUsage, func(c net.Conn) { _ = c.Close() })
	})
}

func TestFirstEventIsAnError(t *testing.T) {
	event := func(code string) string {
		return `data: {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": null, "code": ` + code + `}}` + "\n\n"
	}
	over(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(streams(event("500"), done), streams(role, word, finish, done)))
		r := g.chat(askStream, "x-hearsay-debug: 1")
		if r.body != role+word+finish+done || r.err != nil || r.Header.Get("X-Hearsay-Attempts") != "2" {
			t.Errorf("code 500: got %q, %v, %v", r.body, r.err, r.Header)
		}
		if s := g.reports.take(); s != "e1 failed, e2 served" {
			t.Errorf("code 500: reports %q", s)
		}
		if got := g.metric("hearsay_retries_total", "pool", "chat", "reason", "error_event"); got != 1 {
			t.Errorf("retries %v", got)
		}
	})
	over(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(streams(event("500"), done)))
		if r := g.chat(askStream); r.StatusCode != 502 || !strings.Contains(r.body, "EngineCore") {
			t.Errorf("alone: got %d %q", r.StatusCode, r.body)
		}
	})
	over(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(streams(event("400"), done), streams(role, done)))
		r := g.chat(askStream)
		if r.StatusCode != 400 || !strings.Contains(r.body, "EngineCore encountered an issue.") {
			t.Errorf("code 400: got %d %q", r.StatusCode, r.body)
		}
		if n, _ := g.engines[1].seen(); n != 0 {
			t.Error("code 400 was retried")
		}
		if s := g.reports.take(); s != "e1 rejected" {
			t.Errorf("code 400: reports %q", s)
		}
	})
}
