package requests

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func TestB28ChunkedUploads(t *testing.T) {
	g := one(t)
	const head = "POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
	c := g.dial()
	f := func(what, request string) {
		t.Helper()
		if r := c.do(request); r.StatusCode != 200 || string(g.last().body) != ask {
			t.Errorf("%s: %d %q, the engine got %q", what, r.StatusCode, r.body, g.last().body)
		}
	}
	f("chunks of one byte", chunked(chatPath, ask, 1))
	f("one chunk", chunked(chatPath, ask, 1<<20))
	whole := fmt.Sprintf("%x", len(ask))
	f("extensions", head+whole+";name=value;other=\"a;b\"\r\n"+ask+"\r\n0;last\r\n\r\n")
	f("upper case and zeros before", head+"000"+strings.ToUpper(whole)+"\r\n"+ask+"\r\n000\r\n\r\n")
	f("trailers", head+whole+"\r\n"+ask+"\r\n0\r\nX-Sum: 1\r\nContent-Length: 7\r\nAuthorization: x\r\n\r\n")
	f("behind trailers", post(chatPath, ask))
	for _, x := range g.calls() {
		if x.fields.Get("X-Sum") != "" || x.fields.Get("Trailer") != "" {
			t.Errorf("the engine got trailers: %v", x.fields)
		}
	}
	before := len(g.calls())
	for what, body := range map[string]string{
		"size 1x":             "1x\r\na\r\n0\r\n\r\n",
		"size with a blank":   " 5\r\nhello\r\n0\r\n\r\n",
		"no size":             "\r\nhello\r\n0\r\n\r\n",
		"size and bare LF":    "5\nhello\r\n0\r\n\r\n",
		"size line of 100 kB": "5;x=" + strings.Repeat("a", 100<<10) + "\r\nhello\r\n0\r\n\r\n",
		"negative":            "-5\r\nhello\r\n0\r\n\r\n",
		"2^64 and more":       "10000000000000005\r\nhello\r\n0\r\n\r\n",
		"2^63":                "8000000000000000\r\nhello\r\n0\r\n\r\n",
		"trailers of 1 MB":    whole + "\r\n" + ask + "\r\n0\r\n" + strings.Repeat("X-A: "+strings.Repeat("b", 1000)+"\r\n", 1000) + "\r\n",
	} {
		c := g.dial().send(head + body + post(chatPath, ask))
		r := c.reply()
		if what == "2^63" && r.StatusCode == 413 {
			r.refused(t, what, 413, "request_too_large")
		} else {
			r.refused(t, what, 400, "bad_http")
		}
		c.closed(what)
	}
	if n := len(g.calls()) - before; n != 0 {
		t.Errorf("%d calls of bad uploads", n)
	}
}

// A slow sender is waited for, and holds nothing of a replica meanwhile; one that
// has stopped is told so.
func TestB28SlowUploads(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := startOn(t, w, []func(*call) bool{serves})
		c := g.dial().send("POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n")
		for i := range len(ask) {
			if i%10 == 0 {
				time.Sleep(20 * time.Second)
			}
			c.send("1\r\n" + ask[i:i+1] + "\r\n")
		}
		if n := len(g.calls()); n != 0 {
			t.Errorf("%d calls before the body is whole", n)
		}
		c.send(lastChunk)
		if r := c.reply(); r.StatusCode != 200 || string(g.last().body) != ask {
			t.Errorf("slow: %d %q", r.StatusCode, r.body)
		}
		for what, request := range map[string]string{
			"length":        "Content-Length: 99\r\n\r\n{",
			"chunks":        "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
			"no last chunk": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
			"asked first":   "Expect: 100-continue\r\nContent-Length: 99\r\n\r\n",
		} {
			began := time.Now()
			c := g.dial().send("POST " + chatPath + " HTTP/1.1\r\nHost: r\r\n" + request)
			if what == "asked first" {
				for range 2 {
					_, _ = c.br.ReadString('\n')
				}
			}
			c.reply().refused(t, what, 408, "request_timeout")
			c.closed(what)
			if d := time.Since(began); d < 25*time.Second || d > 40*time.Second {
				t.Errorf("%s: after %v", what, d)
			}
		}
		if n := len(g.calls()); n != 1 {
			t.Errorf("%d calls", n)
		}
		g.stop()
	})
}

func TestB29ContentLength(t *testing.T) {
	g := one(t)
	head := "POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
	// Larger than what comes, then closed: nobody is left to answer.
	c := g.dial().send(head + "Content-Length: 500\r\n\r\n" + ask)
	must(t, c.Conn.(*net.TCPConn).CloseWrite())
	if got := c.rest(); strings.Contains(got, "200 OK") {
		t.Errorf("larger: got %q", got)
	}
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls with a cut body", n)
	}
	// Smaller: the body is cut, what follows is no request.
	c = g.dial().send(head + "Content-Length: 20\r\n\r\n" + ask + "\r\n\r\n")
	c.reply().refused(t, "smaller", 400, "invalid_json")
	c.reply().refused(t, "behind smaller", 400, "bad_http")
	c.closed("smaller")
	c = g.dial().send(head + "Content-Length: 0\r\n\r\n" + ask + "\r\n\r\n")
	c.reply().refused(t, "0 with a body", 400, "")
	c.reply().refused(t, "behind 0", 400, "bad_http")
	c.closed("0 with a body")
	c = g.dial().send(head + "\r\n")
	c.reply().refused(t, "missing", 400, "")
	if r := c.do(post(chatPath, ask)); r.StatusCode != 200 {
		t.Errorf("behind missing: %d", r.StatusCode)
	}
	for _, v := range []string{"-1", "-0", "9223372036854775808", "18446744073709551617", "1e3", "0x10", "5,5", "", "5 5", "٣"} {
		c := g.dial().send(head + "Content-Length: " + v + "\r\n\r\n" + ask)
		c.reply().refused(t, "length "+v, 400, "bad_http")
		c.closed(v)
	}
	c = g.dial().send(head + "Content-Length: 9223372036854775807\r\n\r\n" + ask)
	c.reply().refused(t, "2^63-1", 413, "request_too_large")
	c.closed("2^63-1")
	if n := len(g.calls()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// What two parsers could read in two ways is refused, and what stands behind it is
// never a request.
func TestC70AmbiguousRequests(t *testing.T) {
	g := one(t)
	head := "POST " + chatPath + " HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
	const none = "0\r\n\r\n"
	for what, x := range map[string]string{
		"length and chunked":     head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + none,
		"chunked and length":     head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + none,
		"odd case and length":    head + "tRANSFER-eNCODING: CHUNKED\r\ncontent-LENGTH: 5\r\n\r\n" + none,
		"two lengths":            head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"two equal lengths":      head + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"chunk size 1x":          head + "Transfer-Encoding: chunked\r\n\r\n1x\r\na\r\n" + none,
		"chunk size 0_0":         head + "Transfer-Encoding: chunked\r\n\r\n0_0\r\n\r\n",
		"chunk size +5":          head + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n" + none,
		"folded field":           head + "X-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello",
		"folded length":          head + "Content-Length:\r\n 5\r\n\r\nhello",
		"folded encoding":        head + "Transfer-Encoding:\r\n chunked\r\n\r\n" + none,
		"encoding x":             head + "Transfer-Encoding: xchunked\r\n\r\n" + none,
		"encoding in quotes":     head + "Transfer-Encoding: \"chunked\"\r\n\r\n" + none,
		"chunked, identity":      head + "Transfer-Encoding: chunked, identity\r\n\r\n" + none,
		"encoding twice":         head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + none,
		"blank before the colon": head + "Transfer-Encoding : chunked\r\n\r\n" + none,
		"a NUL in a name":        head + "Transfer\x00-Encoding: chunked\r\n\r\n" + none,
		"a NUL in a value":       head + "X-A: a\x00b\r\nContent-Length: 5\r\n\r\nhello",
		"bare CR":                head + "X-A: a\rTransfer-Encoding: chunked\r\n\r\n" + none,
		"bare LF":                head + "X-A: a\nContent-Length: 5\r\n\r\nhello",
		"head ends in LF":        head + "Content-Length: 5\r\n\nhello",
		"chunked in HTTP/1.0":    strings.Replace(head, "1.1", "1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n" + none,
		"two hosts":              head + "Host: s\r\nContent-Length: 5\r\n\r\nhello",
		"no host":                "POST " + chatPath + " HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/2 preface":         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"no version":             "POST " + chatPath + "\r\nHost: r\r\n\r\n",
		"TLS":                    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x05", 200) + "\r\n\r\n",
	} {
		c := g.dial().send(x + post(chatPath, ask))
		r := c.reply()
		r.refused(t, what, 400, "bad_http")
		if !r.Close {
			t.Errorf("%s: does not say that it closes", what)
		}
		c.closed(what)
	}
	for _, version := range []string{"HTTP/3.0", "HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/1.10", "http/1.1", "HTTP/1.1.1", "ICY/1.1"} {
		c := g.dial().send(strings.Replace(head, "HTTP/1.1", version, 1) + "Content-Length: 5\r\n\r\nhello" + post(chatPath, ask))
		r := c.reply()
		if r.StatusCode == 400 {
			r.refused(t, version, 400, "bad_http")
		} else {
			r.refused(t, version, 505, "http_version")
		}
		c.closed(version)
	}
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
	// Odd, and clear all the same.
	c := g.dial()
	for what, x := range map[string]string{
		"TE in odd case":       strings.Replace(chunked(chatPath, ask, 9), "Transfer-Encoding: chunked", "tRaNsFeR-eNcOdInG:  CHUNKED\t", 1),
		"blanks round length":  strings.Replace(post(chatPath, ask), "Content-Length: ", "CONTENT-LENGTH: \t ", 1),
		"empty lines before":   "\r\n\r\n" + post(chatPath, ask),
		"absolute form":        strings.Replace(post(chatPath, ask), "POST ", "POST http://r", 1),
		"dots and two slashes": post("/v1/x/..//chat/./completions", ask),
		"escapes in the path":  post("/v1/ch%61t/completions", ask),
		"a query":              post(chatPath+"?api-version=1", ask),
	} {
		if r := c.do(x); r.StatusCode != 200 || g.last().path() != chatPath || string(g.last().body) != ask {
			t.Errorf("%s: %d %q at %s", what, r.StatusCode, r.body, g.last().path())
		}
	}
}

func TestC70LargeHeads(t *testing.T) {
	g := one(t)
	long := strings.Repeat("a", 100<<10)
	for what, x := range map[string]string{
		"a field of 100 kB":      post(chatPath, ask, "X-A: "+long),
		"10,000 fields":          post(chatPath, ask, strings.TrimSuffix(strings.Repeat("X-A: b\r\n", 10_000), "\r\n")),
		"a path of 100 kB":       get("/v1/" + long),
		"a method of 100 kB":     long + get("/v1/models"),
		"a field without an end": "GET /v1/models HTTP/1.1\r\nHost: r\r\nX-A: " + long,
	} {
		c := g.dial().send(x)
		c.reply().refused(t, what, 431, "headers_too_large")
		c.closed(what)
	}
	if r := g.chat(ask, "X-A: "+long[:12<<10]); r.StatusCode != 200 {
		t.Errorf("12 kB: %d", r.StatusCode)
	}
	if n := len(g.calls()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestC70PipelinedRequests(t *testing.T) {
	g := one(t)
	pair := post(chatPath, ask) + chunked(promptPath, `{"model":"llama","prompt":"x"}`, 3)
	c := g.dial().send(pair + post(chatPath, "{") + get("/v1/models") + pair + post(chatPath, askStream, "Connection: close") + post(chatPath, ask))
	for i, status := range []int{200, 200, 400, 200, 200, 200, 200} {
		if r := c.reply(); r.StatusCode != status || r.err != nil {
			t.Errorf("answer %d: %d %q", i, r.StatusCode, r.body)
		}
	}
	c.closed("behind the last")
	if n := len(g.calls()); n != 5 {
		t.Errorf("%d calls of 5", n)
	}
}

func TestB38OldAndClosingClients(t *testing.T) {
	g := one(t)
	old := func(body string, fields ...string) string {
		return strings.Replace(post(chatPath, body, fields...), "HTTP/1.1", "HTTP/1.0", 1)
	}
	stream := role + word + finish + done
	for what, x := range map[string]struct{ request, body string }{
		"1.0 stream":             {old(askStream), stream},
		"1.0 stream, kept":       {old(askStream, "Connection: keep-alive"), stream},
		"1.0 stream, no host":    {strings.Replace(old(askStream), "Host: r\r\n", "", 1), stream},
		"1.0 whole":              {old(ask), good},
		"1.1 stream that closes": {post(chatPath, askStream, "Connection: close"), stream},
		"1.1 whole that closes":  {post(chatPath, ask, "Connection: close"), good},
	} {
		c := g.dial().send(x.request)
		got := c.rest() // to the connection's end
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		if strings.Contains(strings.ToLower(head), "transfer-encoding: chunked") {
			if strings.Contains(x.request, "HTTP/1.0") {
				t.Errorf("%s: chunked: %q", what, got)
			}
			var whole strings.Builder
			for rest := body; ; {
				var n int
				line, after, _ := strings.Cut(rest, "\r\n")
				if _, err := fmt.Sscanf(line, "%x", &n); err != nil || len(after) < n+2 {
					t.Fatalf("%s: chunks of %q", what, body)
				}
				whole.WriteString(after[:n])
				if rest = after[n+2:]; n == 0 {
					break
				}
			}
			body = whole.String()
		}
		if !strings.Contains(head, " 200 ") || body != x.body || !strings.Contains(head, "Connection: close") {
			t.Errorf("%s: got %q", what, got)
		}
	}
	// HTTP/2 is not offered: neither by its preface (TestC70AmbiguousRequests) nor by
	// an upgrade (TestB37Upgrades).
}
