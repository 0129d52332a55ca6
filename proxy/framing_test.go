package proxy

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"
)

// Requests whose end two parsers could see in different places are refused with
// 400 and the connection is closed: what stands behind them is never a request.
func TestAmbiguousFraming(t *testing.T) {
	const smuggled = "POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 70\r\n\r\n" + ask
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))))
	f := func(name, request string) {
		t.Helper()
		got := g.raw(request + smuggled)
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "Connection: close\r\n") || !strings.Contains(got, `{"error":{"message":"`) {
			t.Errorf("%s: got %q", name, got)
		}
		if n := strings.Count(got, "HTTP/1.1 "); n != 1 {
			t.Errorf("%s: %d answers", name, n)
		}
		if n, _ := g.engines[0].seen(); n != 0 {
			t.Errorf("%s: the engine got %d requests", name, n)
		}
	}
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
	f("length and chunked", head+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f("chunked and length", head+"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n")
	f("chunked in odd case and length", head+"tRANSFER-eNCODING: Chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n")
	f("two lengths", head+"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello")
	f("two equal lengths", head+"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello")
	f("list of lengths", head+"Content-Length: 5, 5\r\n\r\nhello")
	f("negative length", head+"Content-Length: -5\r\n\r\nhello")
	f("length with a sign", head+"Content-Length: +5\r\n\r\nhello")
	f("length of 2^63", head+"Content-Length: 9223372036854775808\r\n\r\nhello")
	f("blank before the colon", head+"Content-Length : 5\r\n\r\nhello")
	f("blank in a name", head+"Content Length: 5\r\n\r\n")
	f("unknown encoding", head+"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n")
	f("encodings in a list", head+"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
	f("two encodings", head+"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f("identity", head+"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello")
	f("encoding with a vertical tab", head+"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n")
	f("chunk size 1x", head+"Transfer-Encoding: chunked\r\n\r\n1x\r\na\r\n0\r\n\r\n")
	f("chunk size 0_0", head+"Transfer-Encoding: chunked\r\n\r\n0_0\r\n\r\n")
	f("chunk size +5", head+"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n")
	f("chunk size 0x5", head+"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n")
	f("chunk size too large", head+"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\nhello\r\n0\r\n\r\n")
	f("chunk longer than its size", head+"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n")
	f("folded header", head+"X-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello")
	f("bare LF in the head", head+"X-A: b\nContent-Length: 5\r\n\r\nhello")
	f("chunked in HTTP/1.0", "POST /v1/chat/completions HTTP/1.0\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f("no host", "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
	f("two hosts", "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 5\r\n\r\nhello")
	f("no HTTP at all", "hello there\r\n\r\n")
}

func TestFramingLooksAtEveryLine(t *testing.T) {
	f := func(raw, want string) {
		t.Helper()
		if _, got := framing([]byte(raw)); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
	f("", "")
	f("Host: a\r\n\r\n", "")
	f("Transfer-Encoding: chunked\r\n\r\n", "")
	f("X: y\r\nContent-Length: 1\r\nTRANSFER-ENCODING:chunked\r\n\r\n", "both Content-Length and Transfer-Encoding")
	f("X: y", "header block is not terminated")
	f("X: a\rb\r\n\r\n", "stray CR in a header")
	f(": y\r\n\r\n", "header line without a name")
}

func TestPipelinedPairs(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))))
	one := post("/v1/chat/completions", ask)
	got := g.raw(one + one + strings.Replace(one, "Host: r", "Host: r\r\nConnection: close", 1))
	if n := strings.Count(got, good); n != 3 {
		t.Errorf("%d answers in %q", n, got)
	}
	if n, _ := g.engines[0].seen(); n != 3 {
		t.Errorf("the engine got %d requests", n)
	}
}

func TestLimitsOfRequests(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))), func(cfg *Config, _ *poolSpec) {
		cfg.Limits.BodyBytes = 1 << 20
		cfg.Limits.ReadStall = 3 * time.Second
	})
	f := func(name, request string, status, code string) {
		t.Helper()
		got := g.raw(request)
		if !strings.HasPrefix(got, "HTTP/1.1 "+status+" ") || !strings.Contains(got, `"code":"`+code+`"`) || strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("%s: got %.300q", name, got)
		}
	}
	pad := strings.Repeat("a", 1<<20)
	f("header of 100 kB", "GET /v1/models HTTP/1.1\r\nHost: r\r\nX-A: "+pad[:100<<10]+"\r\n\r\n", "431", "headers_too_large")
	f("path of 100 kB", "GET /"+pad[:100<<10]+" HTTP/1.1\r\nHost: r\r\n\r\n", "431", "headers_too_large")
	f("body over the limit", post("/v1/chat/completions", `{"model":"llama","messages":[],"x":"`+pad+`"}`), "413", "request_too_large")
	f("body far over the limit", post("/v1/chat/completions", strings.Repeat(pad, 16)), "413", "request_too_large")
	f("chunked body over the limit", "POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"+
		chunk(pad)+chunk(pad), "413", "request_too_large")
	f("asks before a body over the limit", "POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n", "413", "request_too_large")
	f("asks before a body for nobody", "POST /v1/nothing HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n", "404", "unknown_url")
	f("body that stops coming", "POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 99\r\n\r\n{", "408", "request_timeout")
	f("chunked body that stops coming", "POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "408", "request_timeout")
	if n, _ := g.engines[0].seen(); n != 0 {
		t.Errorf("the engine got %d requests", n)
	}
	small := strings.Replace(ask, `"Hello there"`, `"`+pad[:900<<10]+`"`, 1)
	if r := g.chat(small); r.StatusCode != 200 {
		t.Errorf("under the limit: %d", r.StatusCode)
	}
	got := g.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 70\r\n\r\n" + ask)
	if !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ") {
		t.Errorf("asks first: %q", got)
	}
	if len(ask) != 70 {
		t.Fatalf("ask has %d bytes", len(ask))
	}
}

func TestBytesOfAllRequestsAreBounded(t *testing.T) {
	release := make(chan struct{})
	g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
		<-release
		return in.write(jsonAnswer(200, good)) == nil
	}), func(cfg *Config, _ *poolSpec) { cfg.Limits.BodyBudget = 1 << 20 })
	big := strings.Replace(ask, "Hello there", strings.Repeat("a", 700<<10), 1)
	first := g.conn()
	_, err := io.WriteString(first, post("/v1/chat/completions", big))
	must(t, err)
	until(t, "the first is with the engine", func() bool { n, _ := g.engines[0].seen(); return n == 1 })
	got := g.raw(post("/v1/chat/completions", big))
	if !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "Retry-After: 1\r\n") || !strings.Contains(got, `"code":"overloaded"`) {
		t.Errorf("over the budget: %q", got)
	}
	close(release)
	if r := readReply(t, bufio.NewReader(first)); r.StatusCode != 200 {
		t.Errorf("the first got %d", r.StatusCode)
	}
	if r := g.chat(big); r.StatusCode != 200 {
		t.Errorf("afterwards: %d %q", r.StatusCode, r.body)
	}
	until(t, "all given back", func() bool { return g.srv.budget.used.Load() == 0 })
}

func TestSlowUploadIsNoStall(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(says(jsonAnswer(200, good))))
		c := g.conn()
		request := "POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
		_, err := io.WriteString(c, request)
		must(t, err)
		for i := range len(ask) {
			time.Sleep(5 * time.Second) // 5 min in all, far over one stall
			if i == 10 && g.inFlight() != 0 {
				t.Error("a slow sender holds a replica's slot")
			}
			_, err := io.WriteString(c, "1;ext=1\r\n"+ask[i:i+1]+"\r\n")
			must(t, err)
		}
		_, err = io.WriteString(c, "0\r\nX-Trailer: a\r\n\r\n")
		must(t, err)
		b, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
			t.Errorf("got %q", b)
		}
		g.stop()
		if g.engines[0].bodies[0] != ask {
			t.Errorf("engine got %q", g.engines[0].bodies)
		}
	})
}

func TestTooManyConnections(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))), func(cfg *Config, _ *poolSpec) { cfg.Limits.Conns = 1 })
	first := g.conn()
	_, err := io.WriteString(first, "G")
	must(t, err)
	got := g.raw("")
	if !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "Retry-After: 1\r\n") || !strings.Contains(got, `"code":"too_many_connections"`) {
		t.Errorf("got %q", got)
	}
	_ = first.Close()
	until(t, "room again", func() bool {
		return strings.HasPrefix(g.raw("GET /livez HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n"), "HTTP/1.1 200 ")
	})
}
