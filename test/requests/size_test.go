package requests

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// limit sets the largest body.
func limit(bytes int) option { return func(c *node.Config) { c.API.MaxBody = node.Bytes(bytes) } }

// image is a data URL of so many bytes.
func image(size int, seed byte) string {
	raw := make([]byte, size*3/4)
	for i := range raw {
		raw[i] = byte(i*7+i>>8) + seed
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(raw)
}

func picture(url, text string) string {
	return `{"model":"llama","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `","detail":"low"}},{"type":"text","text":"` + text + `"}]}]}`
}

// chunked is a body in chunks of so many bytes.
func chunked(path, body string, size int, fields ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n%s\r\n", path, strings.Join(append(fields, ""), "\r\n"))
	for len(body) > 0 {
		n := min(size, len(body))
		b.WriteString(chunk(body[:n]))
		body = body[n:]
	}
	b.WriteString(lastChunk)
	return b.String()
}

// taken is how many bytes were allocated meanwhile, by the whole process.
func taken(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestB04ImagesAndOtherParts(t *testing.T) {
	g := one(t, func(c *node.Config) { c.API.Debug = true })
	// Nobody fetches what a client names.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	fetched := make(chan bool, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_ = c.Close()
		}
		fetched <- err == nil
	}()
	g.passes(chatPath, picture("http://"+ln.Addr().String()+"/a.png", "what is it"))
	for _, part := range []string{
		`{"type":"input_audio","input_audio":{"data":"` + image(100<<10, 3) + `","format":"wav"}}`,
		`{"type":"file","file":{"file_data":"` + image(50<<10, 4) + `","filename":"a \"b\".pdf"}}`, `{"type":"file","file":{"file_id":"f1"}}`,
		`{"type":"video_url","video_url":{"url":"https://127.0.0.1:1/v"}}`,
		`{"type":"image_url","image_url":{"url":"` + image(10<<10, 5) + `"}},{"type":"image_url","image_url":{"url":"` + image(20<<10, 6) + `"}}`,
	} {
		g.passes(chatPath, `{"model":"llama","messages":[{"role":"user","content":[{"type":"text","text":"a"},`+part+`,{"type":"text","text":"b"}]}]}`)
	}
	// One after the other, each body is held once here and once by the engine.
	for _, mb := range []int{3, 8, 20} {
		bytes := mb << 20 / heavy
		request := post(chatPath, picture(image(bytes, 1), "what is it"))
		var r reply
		if got := taken(func() { r = g.do(request) }); got > uint64(3*bytes+2<<20) {
			t.Errorf("%d MiB: %d MiB were taken", mb, got>>20)
		}
		if r.StatusCode != 200 || string(g.last().body) != request[len(request)-len(g.last().body):] || len(g.last().body) < bytes {
			t.Errorf("%d MiB: %d, %d bytes arrived", mb, r.StatusCode, len(g.last().body))
		}
	}
	words := strings.Repeat("some words ", 200)
	g.matched(picture(image(100<<10, 7), words))
	same, other := g.matched(picture(image(100<<10, 7), words)), g.matched(picture(image(100<<10, 8), words))
	if same < 200 || other != 0 {
		t.Errorf("matched %d tokens behind the same image, %d behind another", same, other)
	}
	_ = ln.Close()
	if <-fetched {
		t.Error("an image was fetched")
	}
}

func TestB25LongLinesAndManyMessages(t *testing.T) {
	g := one(t)
	for what, body := range map[string]string{
		"a string of 10 million a": `{"model":"llama","messages":[{"role":"user","content":"` + strings.Repeat("a", 10_000_000/heavy) + `"}]}`,
		"200,000 tiny messages":    `{"model":"llama","messages":[` + strings.Repeat(`{"role":"user","content":"a"},`, 200_000/heavy-1) + `{"role":"user","content":"b"}]}`,
		"one line of 30 MB":        `{"model":"llama","metadata":{"x":"` + strings.Repeat(`\u00e9\"`, 3_750_000/heavy) + `"},"messages":[]}`,
	} {
		request := post(chatPath, body)
		var r reply
		got := taken(func() { r = g.do(request) })
		if r.StatusCode != 200 || string(g.last().body) != body {
			t.Errorf("%s: %d %.200q, %d bytes of %d arrived", what, r.StatusCode, r.body, len(g.last().body), len(body))
		}
		if most := uint64(3*len(body) + 4<<20); got > most {
			t.Errorf("%s: %d bytes were taken for %d", what, got, len(body))
		}
	}
}

func TestC68Sizes(t *testing.T) {
	const most = 32 << 20 / heavy
	g := one(t, limit(most))
	for _, x := range []struct {
		path  string
		bytes int
		chunk int // 0: with a length
	}{
		{chatPath, 1_900_000, 0},
		{promptPath, 2_100_000, 0},
		{embedPath, 2_100_000, 1 << 20},
		{chatPath, 8_500_000, 8 << 10},
		{chatPath, 31_000_000, 0},
		{promptPath, most * heavy, 1 << 20},
		{embedPath, most * heavy, 0},
	} {
		body := padded(x.bytes / heavy)
		request := post(x.path, body)
		if x.chunk > 0 {
			request = chunked(x.path, body, x.chunk)
		}
		r := g.do(request)
		if c := g.last(); r.StatusCode != 200 || string(c.body) != body || c.path() != x.path {
			t.Errorf("%d bytes to %s: %d %.200q", x.bytes, x.path, r.StatusCode, r.body)
		}
	}
	before := len(g.calls())
	for _, path := range []string{chatPath, promptPath, embedPath} {
		// The head alone is enough to say no.
		c := g.dial()
		c.do(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n", path, most+1)).refused(t, "one byte too many", 413, "request_too_large")
		// What comes behind is no request.
		c.send(post(chatPath, ask)).closed("with a length")

		c = g.dial()
		sent := c.endless(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n", path))
		c.reply().refused(t, "chunks without end", 413, "request_too_large")
		if n := sent.Load(); n >= 200<<20 {
			t.Errorf("%s: all %d MiB were taken before the refusal", path, n>>20)
		}
		c.closed("in chunks")
		_ = c.Close()
	}
	body := padded(40_000_000 / heavy)
	g.do(post(chatPath, body)).refused(t, "40 MB", 413, "request_too_large")
	if n := len(g.calls()) - before; n != 0 {
		t.Errorf("%d calls", n)
	}
	if n := g.metric("hearsay_requests_total", `code="413"`); n != 7 {
		t.Errorf("%v refusals counted of 7", n)
	}
}

// padded is a valid body, for any endpoint, of so many bytes.
func padded(bytes int) string {
	const head, tail = `{"model":"llama","messages":[],"prompt":"p","input":"i","x":"data:image/png;base64,`, `"}`
	return head + strings.Repeat("QUJDRA==", bytes/8)[:bytes-len(head)-len(tail)] + tail
}

// endless sends chunks until the other side takes no more, and counts their bytes.
func (c *client) endless(head string) *atomic.Int64 {
	sent := new(atomic.Int64)
	go func() {
		n, _ := io.WriteString(c.Conn, head)
		piece := chunk(strings.Repeat("a", 1<<20))
		for n < 200<<20 {
			m, err := io.WriteString(c.Conn, piece)
			if n += m; err != nil {
				return
			}
			sent.Store(int64(n))
		}
	}()
	return sent
}

// encodings are those that requests may come in.
var encodings = []string{"gzip", "deflate", "br", "zstd"}

func pack(t testing.TB, encoding, s string) string {
	t.Helper()
	switch encoding {
	case "gzip", "x-gzip":
		return string(fasthttp.AppendGzipBytes(nil, []byte(s)))
	case "deflate":
		return string(fasthttp.AppendDeflateBytes(nil, []byte(s)))
	case "br":
		return string(fasthttp.AppendBrotliBytes(nil, []byte(s)))
	case "zstd":
		w, err := zstd.NewWriter(nil)
		must(t, err)
		return string(w.EncodeAll([]byte(s), nil))
	}
	return s
}

func TestC68SizeAndCompression(t *testing.T) {
	g := one(t, limit(8<<20/heavy))
	big := strings.Replace(ask, "Hello there", strings.Repeat("Hello there ", 100_000/heavy), 1)
	for _, enc := range append(encodings, "x-gzip", "GZIP") {
		for path, body := range map[string]string{chatPath: big, promptPath: ask, embedPath: ask} {
			packed := pack(t, strings.ToLower(enc), body)
			for _, request := range []string{post(path, packed, "Content-Encoding: "+enc), chunked(path, packed, 100, "Content-Encoding: "+enc)} {
				r := g.do(request)
				if c := g.last(); r.StatusCode != 200 || string(c.body) != body || len(c.fields["Content-Encoding"]) > 0 || c.path() != path {
					t.Errorf("%s to %s: %d %q, the engine got %d bytes of %d, %v", enc, path, r.StatusCode, r.body, len(c.body), len(body), c.fields)
				}
			}
		}
	}
	g.passes(chatPath, ask, "Content-Encoding: identity")
	g.passes(chatPath, ask, "Content-Encoding: ")

	before := len(g.calls())
	c := g.dial()
	for _, enc := range encodings {
		packed, field := pack(t, enc, ask), "Content-Encoding: "+enc
		f := func(what, body string, status int, code string) {
			t.Helper()
			c.do(post(chatPath, body, field)).refused(t, enc+" "+what, status, code)
		}
		f("of what is larger than the limit", pack(t, enc, strings.Repeat("a", 40<<20/heavy)), 413, "request_too_large")
		f("that is none", ask, 400, "invalid_encoding")
		f("cut", packed[:len(packed)-3], 400, "invalid_encoding")
		f("damaged", packed[:8]+"\xff\xff\xff\xff"+packed[12:], 400, "invalid_encoding")
		f("with something behind", packed+"junk", 400, "invalid_encoding")
		f("of nothing", "", 400, "")
		f("twice", pack(t, enc, packed), 400, "invalid_json")
		f("of no JSON", pack(t, enc, "{"), 400, "invalid_json")
	}
	for _, enc := range []string{"foo", "gzip, gzip", "gzip,br", "identity, gzip", "compress", "aws-chunked", "gzip;q=1"} {
		c.do(post(chatPath, pack(t, "gzip", ask), "Content-Encoding: "+enc)).refused(t, enc, 415, "unsupported_media_type")
	}
	c.do(post(chatPath, pack(t, "gzip", ask), "Content-Encoding: gzip", "Content-Encoding: gzip")).refused(t, "two fields", 415, "unsupported_media_type")
	if n := len(g.calls()) - before; n != 0 {
		t.Errorf("%d calls", n)
	}
	if r := c.do(post(chatPath, ask)); r.StatusCode != 200 {
		t.Errorf("afterwards: %d", r.StatusCode)
	}
}

// A bomb stops at the limit, in memory too.
func TestC68Bombs(t *testing.T) {
	const most = 8 << 20
	g := one(t, limit(most))
	// One frame, a window of 1 MiB, in blocks that repeat one byte 128 Ki times.
	bomb := []byte("\x28\xb5\x2f\xfd\x00\x50")
	for i := range 200 << 20 / (128 << 10) {
		h := 1<<1 | (128<<10)<<3
		if i == 200<<20/(128<<10)-1 {
			h |= 1
		}
		bomb = append(bomb, byte(h), byte(h>>8), byte(h>>16), 'a')
	}
	if len(bomb) > 7<<10 {
		t.Fatalf("%d bytes", len(bomb))
	}
	request := post(chatPath, string(bomb), "Content-Encoding: zstd")
	var r reply
	if got := taken(func() { r = g.do(request) }); got > 8*most {
		t.Errorf("%d MiB were taken", got>>20)
	}
	r.refused(t, "zstd bomb", 413, "request_too_large")
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
}

func TestB27EncodingsOfPlainBodies(t *testing.T) {
	g := one(t)
	// A false header is the client's fault, an odd one is told to be that.
	for _, enc := range encodings {
		g.chat(ask, "Content-Encoding: "+enc).refused(t, enc, 400, "invalid_encoding")
	}
	g.chat(ask, "Content-Encoding: foo").refused(t, "foo", 415, "unsupported_media_type")
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
	g.passes(chatPath, ask, "Content-Encoding: Identity")
	g.passes(promptPath, ask, "content-encoding:identity")
	// Answers are not encoded: nobody asks the engine for that.
	g.passes(chatPath, ask, "Accept-Encoding: gzip, br")
	if v := g.last().fields.Get("Accept-Encoding"); v != "" {
		t.Errorf("the engine is asked for %q", v)
	}
}

func TestB30ExpectContinue(t *testing.T) {
	g := one(t, limit(1<<20))
	head := func(path string, size int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, size)
	}
	c := g.dial().send(head(chatPath, len(ask)))
	line, err := c.br.ReadString('\n')
	if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if line, err = c.br.ReadString('\n'); err != nil || line != "\r\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if n := len(g.calls()); n != 0 {
		t.Errorf("%d calls before the body", n)
	}
	if r := c.do(ask); r.StatusCode != 200 || r.body != good {
		t.Errorf("got %d %q", r.StatusCode, r.body)
	}
	if v := g.last().fields.Get("Expect"); v != "" {
		t.Errorf("the engine got Expect %q", v)
	}
	// The connection goes on; one that does not wait for the word is served too.
	c.send(head(chatPath, len(ask)) + ask)
	r := c.reply()
	if r.StatusCode == 100 {
		r = c.reply()
	}
	if r.StatusCode != 200 || r.body != good {
		t.Errorf("without waiting: %d %q", r.StatusCode, r.body)
	}
	before := len(g.calls())
	for _, x := range []struct {
		what, head string
		status     int
		code       string
	}{
		{"over the limit", head(chatPath, 1<<20+1), 413, "request_too_large"},
		{"for nobody", head("/v1/nothing", 99), 404, "unknown_url"},
		{"by a method that is not taken", strings.Replace(head(chatPath, 99), "POST", "PUT", 1), 405, "method_not_allowed"},
		{"of another type", strings.Replace(head(chatPath, 99), "application/json", "text/csv", 1), 415, "unsupported_media_type"},
		{"in an unknown encoding", strings.Replace(head(chatPath, 99), "Expect", "Content-Encoding: foo\r\nExpect", 1), 415, "unsupported_media_type"},
		{"of two ends", strings.Replace(head(chatPath, 99), "Expect", "Transfer-Encoding: chunked\r\nExpect", 1), 400, "bad_http"},
	} {
		c := g.dial().send(x.head)
		c.reply().refused(t, x.what, x.status, x.code)
		// A client may send the body all the same: it is no request.
		c.send(post(chatPath, ask)).closed(x.what)
	}
	if n := len(g.calls()) - before; n != 0 {
		t.Errorf("%d calls", n)
	}
}
