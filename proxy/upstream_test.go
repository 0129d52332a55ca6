package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http/httputil"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// Whatever framing an engine uses, the client gets one, and all of the body.
func TestOddResponses(t *testing.T) {
	sse := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	events := role + word + finish + done
	f := func(name, request, answer string, last bool, want string) {
		t.Helper()
		g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool { return in.write(answer) == nil && !last }))
		r := g.chat(request)
		if r.StatusCode != 200 || r.body != want || r.err != nil {
			t.Errorf("%s: got %d %q, %v", name, r.StatusCode, r.body, r.err)
		}
		if len(r.TransferEncoding) > 0 && r.Header.Get("Content-Length") != "" {
			t.Errorf("%s: two framings", name)
		}
		for _, h := range []string{"Keep-Alive", "X-Foo", "Trailer", "Upgrade", "Proxy-Authenticate"} {
			if r.Header.Get(h) != "" {
				t.Errorf("%s: %s reached the client", name, h)
			}
		}
		if s := g.reports.take(); s != "e1 served" {
			t.Errorf("%s: reports %q", name, s)
		}
		g.stop()
	}
	f("length and chunked", ask, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(good)+lastChunk, false, good)
	f("hop-by-hop headers", ask, jsonAnswer(200, good, "Connection: close, X-Foo", "X-Foo: a", "Keep-Alive: timeout=5", "Upgrade: h2c"), true, good)
	f("HTTP/1.0 without a length", ask, "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"+good, true, good)
	f("HTTP/1.0 stream", askStream, "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+events, true, events)
	f("stream until close", askStream, sse+"Connection: close\r\n\r\n"+events, true, events)
	f("stream with the length of its first event", askStream, sse+"Content-Length: "+itoa(len(role))+"\r\n\r\n"+events, true, events)
	f("stream with a right length", askStream, sse+"Content-Length: "+itoa(len(events))+"\r\n\r\n"+events, false, events)
	f("trailers", askStream, sse+"Transfer-Encoding: chunked\r\nTrailer: X-Foo\r\n\r\n"+chunk(events)+"0\r\nX-Foo: a\r\n\r\n", false, events)
	f("chunk extensions", askStream, sse+"Transfer-Encoding: chunked\r\n\r\n"+"3;a=b\r\n"+events[:3]+"\r\n"+chunk(events[3:])+lastChunk, false, events)
	f("padded chunk sizes", askStream, sse+"Transfer-Encoding: chunked\r\n\r\n"+"3  \r\n"+events[:3]+"\r\n"+chunk(events[3:])+lastChunk, false, events)
	f("interim responses", ask, "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"+jsonAnswer(200, good), false, good)
	f("head of 60 kB", ask, jsonAnswer(200, good, "X-Foo-Big: "+strings.Repeat("a", 60<<10)), false, good)
	f("stream for a client that asked for none", ask, sse+"Transfer-Encoding: chunked\r\n\r\n"+chunk(events)+lastChunk, false, events)
	f("JSON for a client that asked for a stream", askStream, jsonAnswer(200, good), false, good)
	f("stream with CRLF and comments", askUsage, sse+"Transfer-Encoding: chunked\r\n\r\n"+chunk(": hi\r\n\r\n"+strings.ReplaceAll(events, "\n", "\r\n"))+lastChunk, false, ": hi\r\n\r\n"+strings.ReplaceAll(events, "\n", "\r\n"))
	f("stream that ends without [DONE]", askStream, sse+"Transfer-Encoding: chunked\r\n\r\n"+chunk(role+finish)+lastChunk, false, role+finish)
}

func itoa(n int) string {
	var b []byte
	for ; n > 0; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
	}
	return string(b)
}

// A connection with anything left on it is never used again.
func TestDirtyConnectionsAreNotReused(t *testing.T) {
	f := func(name, answer string) {
		t.Helper()
		g := newRig(t, loopback{t}, handlers(says(answer)))
		for range 3 {
			if r := g.chat(ask); r.StatusCode != 200 || r.body != good {
				t.Errorf("%s: got %d %q", name, r.StatusCode, r.body)
			}
		}
		if g.engines[0].dials != 3 {
			t.Errorf("%s: %d connections", name, g.engines[0].dials)
		}
		g.stop()
	}
	f("more than its length", jsonAnswer(200, good)+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
	f("more behind the last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(good)+lastChunk+"x")
	f("asks to close", jsonAnswer(200, good, "Connection: close"))
}

func TestLongAnswersPassAndAreMetered(t *testing.T) {
	long := `{"object":"list","data":[` + strings.Repeat(`{"embedding":[0.1,0.2]},`, 200<<10) + `{}],"usage":{"prompt_tokens":9,"total_tokens":9}}`
	for name, answer := range map[string]string{
		"sized":   jsonAnswer(200, long),
		"chunked": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(long[:1000]) + chunk(long[1000:]) + lastChunk,
	} {
		g := newRig(t, loopback{t}, handlers(says(answer)))
		r := g.do(post("/v1/embeddings", `{"model":"llama","input":"a"}`))
		if r.body != long || r.err != nil {
			t.Errorf("%s: got %d bytes, %v", name, len(r.body), r.err)
		}
		if name == "sized" && r.ContentLength != int64(len(long)) {
			t.Errorf("length %d", r.ContentLength)
		}
		until(t, "metered", func() bool { return g.metric("hearsay_tokens_total", "type", "input") == 9 })
		g.stop()
	}
	g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
		_ = in.write(jsonAnswer(200, long)[:3<<20])
		return false
	}))
	if r := g.do(post("/v1/embeddings", `{"model":"llama","input":"a"}`)); r.err == nil {
		t.Errorf("a cut answer ended as if it were whole, %d bytes", len(r.body))
	}
}

func readAllSmall(r io.Reader, n int) ([]byte, error) {
	var out []byte
	p := make([]byte, n)
	for {
		m, err := r.Read(p)
		out = append(out, p[:m]...)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

// pieces delivers a string in pieces of given sizes.
type pieces struct {
	s     string
	sizes []int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.s == "" {
		return 0, io.EOF
	}
	n := 1
	if len(p.sizes) > 0 {
		n, p.sizes = p.sizes[0], p.sizes[1:]
	}
	n = copy(b[:min(n, len(b))], p.s)
	p.s = p.s[n:]
	return n, nil
}

// However a body is cut into chunks and the wire into reads, the same bytes come
// out and nothing beyond the body is taken.
func TestChunkReaderLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "body")
		var enc bytes.Buffer
		for rest := body; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			enc.WriteString(chunk(string(rest[:n])))
			rest = rest[n:]
		}
		enc.WriteString(lastChunk)
		in := &pieces{enc.String() + "next", rapid.SliceOf(rapid.IntRange(1, 50)).Draw(t, "reads")}
		br := bufio.NewReaderSize(in, 64)
		c := &chunkReader{br: br}
		got, err := readAllSmall(c, rapid.IntRange(1, 70).Draw(t, "buffer"))
		if err != nil || !bytes.Equal(got, body) || !c.done() {
			t.Fatalf("got %q, %v", got, err)
		}
		if rest, _ := io.ReadAll(br); string(rest) != "next" {
			t.Fatalf("left %q", rest)
		}
	})
}

func FuzzChunkReader(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", "0\r\n\r\n", "5\r\nhel", "5\r\nhelloX\r\n",
		"1x\r\na\r\n", "0_0\r\n\r\n", "+5\r\nhello\r\n", "ffffffffffffffff\r\n", "5\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "a\r\n0123456789\r\n00\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &chunkReader{br: bufio.NewReader(bytes.NewReader(in))}
		got, err := readAllSmall(c, 1+len(in)%7)
		if (err == nil) != c.done() {
			t.Fatalf("err %v, done %v", err, c.done())
		}
		if err != nil {
			return
		}
		// What we accept, net/http accepts, with the same bytes.
		want, werr := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(in)))
		if werr != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %q; net/http %q, %v", got, want, werr)
		}
	})
}

func TestSpliceMakesWhatTheParserMeant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(rapid.SampledFrom([]string{ask, askStream, askUsage, `{"stream":true,"stream_options":{"x":1},"model":"llama","messages":[]}`}).Draw(t, "body"))
		r, err := api.Parse(api.Chat, body)
		if err != nil {
			t.Fatal(err)
		}
		var edits []api.Edit
		edits = r.AskUsage(edits)
		if rapid.Bool().Draw(t, "rename") {
			edits = r.RenameModel(edits, rapid.String().Draw(t, "name"))
		}
		if rapid.Bool().Draw(t, "salt") {
			edits = r.SetCacheSalt(edits, "s")
		}
		o := outgoing{body: splice(nil, body, append([]api.Edit(nil), edits...))}
		got := bytes.Join(o.body, nil)
		if want := api.Splice(nil, body, edits); !bytes.Equal(got, want) || o.size() != len(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// Half a chunk that has come is passed on without waiting for the other half.
func TestChunkReaderDoesNotWaitForWholeChunks(t *testing.T) {
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	go func() { _, _ = io.WriteString(w, "a\r\n01234") }()
	c := &chunkReader{br: bufio.NewReader(r)}
	p := make([]byte, 64)
	if n, err := c.Read(p); string(p[:n]) != "01234" || err != nil {
		t.Errorf("got %q, %v", p[:n], err)
	}
}
