package enginesim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// chatBody is a chat of about size bytes whose first nine tenths all bodies
// share.
func chatBody(size, n int, fields string) []byte {
	const sentence = "The quick brown fox said: \\\"jump over the lazy dog\\\", again and again. "
	shared := strings.Repeat(sentence, size*9/10/len(sentence))
	own := strings.Repeat(fmt.Sprintf("Question %d of many, with words. ", n), size/10/33)
	return []byte(`{"model":"m","messages":[{"role":"system","content":"` + shared + `"},{"role":"user","content":"` + own + `"}],` + fields + `}`)
}

// BenchmarkPrepare is what a request costs before the scheduler: parse, render,
// tokenise, hash.
func BenchmarkPrepare(b *testing.B) {
	cfg := DefaultConfig()
	cfg.Model = "m"
	e := New(cfg)
	for _, size := range []int{1_000, 50_000, 400_000} {
		body := chatBody(size, 1, `"max_tokens":32`)
		b.Run(fmt.Sprintf("%dkB", size/1000), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := e.prepare(e.chat(), &RequestRecord{}, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTokens(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, 42 times. ", 1000)
	dst := make([]uint32, 0, len(text))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		dst = AppendTokens(dst[:0], text)
	}
}

// BenchmarkStep is one decode step of a full batch.
func BenchmarkStep(b *testing.B) {
	for _, batch := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			timing, err := NewTiming("h100-70b-tp4")
			if err != nil {
				b.Fatal(err)
			}
			c := NewCore(CoreConfig{Blocks: 1 << 20, BlockTokens: 16, MaxBatchedTokens: 8192, MaxSeqs: 256, Timing: timing, Speed: 1})
			for i := range batch {
				if err := c.Add(0, seq(uint64(i+1), ids(i+1, 100), 1<<23/batch)); err != nil {
					b.Fatal(err)
				}
			}
			c.Step(0)
			b.ReportAllocs()
			for b.Loop() {
				at, _ := c.Next()
				c.Step(at)
			}
		})
	}
}

// BenchmarkStream is a whole streamed request of 50 kB and 32 tokens over
// loopback, client included, 16 at a time.
func BenchmarkStream(b *testing.B) {
	cfg := DefaultConfig()
	cfg.Model, cfg.Speed = "m", 1000
	e := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	srv := httptest.NewServer(e.Handler())
	defer func() {
		srv.Close()
		cancel()
		<-done
	}()
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: time.Minute}
	body := string(chatBody(50_000, 1, `"max_tokens":32,"stream":true`))
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Post(srv.URL+chatPath, "application/json", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

func TestBenchBodyIsJSON(t *testing.T) {
	if body := chatBody(50_000, 3, `"max_tokens":1`); !json.Valid(body) || len(body) < 45_000 || len(body) > 55_000 {
		t.Fatalf("%d bytes, valid %v", len(body), json.Valid(body))
	}
}
