package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func pack(t testing.TB, encoding, s string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	}
	must(t, err)
	_, err = io.WriteString(w, s)
	must(t, err)
	must(t, w.Close())
	return b.String()
}

// A few bytes that unfold to many are charged for what they unfold to.
func TestDecodedBytesAreBoundedTogether(t *testing.T) {
	big := strings.Replace(ask, "Hello there", strings.Repeat("a", 700<<10), 1)
	for _, enc := range []string{"gzip", "deflate", "zstd"} {
		release := make(chan struct{})
		g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
			<-release
			return in.write(jsonAnswer(200, good)) == nil
		}), func(cfg *Config, _ *poolSpec) { cfg.Limits.BodyBudget = 3 << 19 })
		request := post("/v1/chat/completions", pack(t, enc, big), "Content-Encoding: "+enc)
		if len(request) > 8<<10 {
			t.Fatalf("%s: %d bytes", enc, len(request))
		}
		first := g.conn()
		_, err := io.WriteString(first, request)
		must(t, err)
		until(t, "the first is with the engine", func() bool { n, _ := g.engines[0].seen(); return n == 1 })
		second := g.conn()
		br := bufio.NewReader(second)
		if r := exchangeOn(t, second, br, request); r.StatusCode != 503 || !strings.Contains(r.body, `"code":"overloaded"`) {
			t.Errorf("%s: over the budget: %d %q", enc, r.StatusCode, r.body)
		}
		close(release)
		if r := readReply(t, bufio.NewReader(first)); r.StatusCode != 200 {
			t.Errorf("%s: the first got %d", enc, r.StatusCode)
		}
		if r := exchangeOn(t, second, br, request); r.StatusCode != 200 {
			t.Errorf("%s: afterwards on the same connection: %d %q", enc, r.StatusCode, r.body)
		}
		until(t, "all given back", func() bool { return g.srv.budget.used.Load() == 0 })
		g.stop()
		for _, b := range g.engines[0].bodies {
			if b != big {
				t.Errorf("%s: the engine got %d bytes, %d were sent", enc, len(b), len(big))
			}
		}
	}
}

func TestBadEncodings(t *testing.T) {
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))))
	f := func(name, body string, status int, fields ...string) {
		t.Helper()
		if r := g.chat(body, fields...); r.StatusCode != status {
			t.Errorf("%s: %d %q", name, r.StatusCode, r.body)
		}
	}
	zip := pack(t, "gzip", ask)
	f("cut", zip[:len(zip)-9], 400, "Content-Encoding: gzip")
	f("more behind it", zip+"junk", 400, "Content-Encoding: gzip")
	f("not encoded at all", ask, 400, "Content-Encoding: br")
	f("twice in one header", pack(t, "gzip", zip), 415, "Content-Encoding: gzip, gzip")
	f("in two headers", zip, 415, "Content-Encoding: gzip\r\nContent-Encoding: br")
	f("unknown", ask, 415, "Content-Encoding: foo")
	// A frame whose head asks for a window of 64 MiB, with ask in one raw block.
	window := "\x28\xb5\x2f\xfd\x00\x80" + string([]byte{byte(len(ask)<<3&0xff | 1), byte(len(ask) >> 5), 0}) + ask
	f("zstd window over 8 MiB", window, 400, "Content-Encoding: zstd")
	f("zstd window of 8 MiB", strings.Replace(window, "\x00\x80", "\x00\x68", 1), 200, "Content-Encoding: zstd")
	if n, _ := g.engines[0].seen(); n != 1 {
		t.Errorf("the engine got %d requests", n)
	}
}
