package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// benchEngine answers a keep-alive connection with fixed bytes at little cost.
func benchEngine(b *testing.B, answer string) func(*engine, *incoming) bool {
	b.Helper()
	return func(_ *engine, in *incoming) bool {
		buf := make([]byte, 64<<10)
		if in.write(answer) != nil {
			return false
		}
		for { // requests come one at a time on a connection
			n, err := in.conn.Read(buf)
			if err != nil {
				return false
			}
			if buf[n-1] == '}' && in.write(answer) != nil {
				return false
			}
		}
	}
}

func bench(b *testing.B, answer, request string) {
	g := newRig(b, loopback{b}, handlers(benchEngine(b, answer)))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", g.addr)
		must(b, err)
		defer func() { _ = c.Close() }()
		br := bufio.NewReader(c)
		for pb.Next() {
			_, err := io.WriteString(c, request)
			must(b, err)
			resp, err := http.ReadResponse(br, nil)
			must(b, err)
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
				b.Fatal(resp.Status, err)
			}
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	bench(b, jsonAnswer(200, good), post("/v1/chat/completions", ask))
}

func BenchmarkStream(b *testing.B) {
	s := streamHead
	for range 100 {
		s += chunk(word)
	}
	bench(b, s+chunk(usage)+chunk(done)+lastChunk, post("/v1/chat/completions", askStream))
}

func BenchmarkLongPrompt(b *testing.B) {
	body := strings.Replace(ask, "Hello there", strings.Repeat("word and word ", 8<<10), 1)
	bench(b, jsonAnswer(200, good), post("/v1/chat/completions", body))
}
