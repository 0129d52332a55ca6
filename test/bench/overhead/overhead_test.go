package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChatsAreOfTheirSizeAndAllDifferent(t *testing.T) {
	f := func(size, messages int, stream bool) {
		t.Helper()
		c := newChat(size, stream)
		if n := len(c.b); n < size-10 || n > size+10 {
			t.Errorf("a chat of %d bytes, want %d", n, size)
		}
		var first []string
		for _, n := range []int64{7, 123_456_789} {
			c.number(n)
			var body struct {
				Model    string
				Stream   bool
				Messages []struct{ Role, Content string }
			}
			if err := json.Unmarshal(c.b, &body); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if body.Model != model || body.Stream != stream || len(body.Messages) != messages {
				t.Errorf("model %q, stream %v, %d messages", body.Model, body.Stream, len(body.Messages))
			}
			if body.Messages[1].Role != "user" || messages > 2 && body.Messages[2].Role != "assistant" {
				t.Error("user and assistant do not take turns")
			}
			first = append(first, body.Messages[1].Content[:digits])
		}
		if first[0] != "000000000007" || first[1] != "000123456789" {
			t.Errorf("the messages begin with %q", first)
		}
	}
	f(400, 2, false)
	f(2000, 2, true)
	f(16_000, turns, false)
	f(256_000, turns, false)
}

// serve runs a part of the benchmark until the test ends.
func serve(t *testing.T, run func(context.Context, net.Listener) error) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func post(t *testing.T, addr, path, body string) (contentType, text string) {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := h.Post("http://"+addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return resp.Header.Get("Content-Type"), string(b)
}

func TestTheEngineAnswersWithABodyOfOneSizeWhateverTheQuestion(t *testing.T) {
	addr := serve(t, newEngine(0).run)
	f := func(size int) {
		t.Helper()
		ct, text := post(t, addr, "/v1/chat/completions", string(newChat(size, false).b))
		var answer struct {
			Choices []struct{ Message struct{ Content string } }
			Usage   struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(text) != answerBytes || ct != "application/json" || len(answer.Choices) != 1 || answer.Usage.Prompt != promptTokens(len(newChat(size, false).b)) {
			t.Errorf("%d bytes of %s: %s", len(text), ct, text)
		}
	}
	f(400)
	f(4_000_000)
}

func TestTheEngineStreamsChunksInStepsAndTellsUsageOnRequest(t *testing.T) {
	const gap = time.Millisecond
	addr := serve(t, newEngine(gap).run)
	f := func(body string, events int) {
		t.Helper()
		began := time.Now()
		ct, text := post(t, addr, "/v1/chat/completions", body)
		if took := time.Since(began); took < (chunks-1)*gap {
			t.Errorf("the stream took %v", took)
		}
		list := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
		if !strings.HasPrefix(ct, "text/event-stream") || len(list) != events || list[len(list)-1] != "data: [DONE]" {
			t.Fatalf("%s, %d events: %s", ct, len(list), text)
		}
		last := began
		for i, e := range list {
			data := strings.TrimPrefix(e, "data: ")
			if i < len(list)-1 && !json.Valid([]byte(data)) {
				t.Errorf("event %d is %q", i, e)
			}
			sent, ok := sentAt([]byte(e))
			if ok != (i < chunks) || ok && sent.Before(last.Add(-time.Microsecond)) {
				t.Errorf("event %d was sent at %v (%v), the one before at %v", i, sent, ok, last)
			}
			if ok {
				last = sent
			}
		}
	}
	f(string(newChat(2000, true).b), chunks+2)
	f(`{"model":"sim","stream":true,"stream_options":{"include_usage":true},"messages":[]}`, chunks+3)
}

func TestTheEngineLooksLikeVLLMToARouter(t *testing.T) {
	addr := serve(t, newEngine(0).run)
	f := func(path, want string) {
		t.Helper()
		if _, text := post(t, addr, path, ""); !strings.Contains(text, want) {
			t.Errorf("%s: %q", path, text)
		}
	}
	f("/health", "")
	f("/version", "0.11.0")
	f("/v1/models", model)
	f("/metrics", "vllm:num_requests_running")
}

func TestBothLoopsSendWhatTheyAreToldAlsoThroughAProxy(t *testing.T) {
	engine := serve(t, newEngine(time.Millisecond).run)
	proxy := serve(t, func(ctx context.Context, ln net.Listener) error { return runReverse(ctx, ln, engine) })
	least := serve(t, func(ctx context.Context, ln net.Listener) error { return runBare(ctx, ln, engine) })
	ctx := context.Background()
	f := func(c cell, addr string) {
		t.Helper()
		last := serial.Load()
		got, err := closed(ctx, &c, addr, 3, 10)
		if err != nil {
			t.Fatal(err)
		}
		if got.Requests != 10 || got.P50 <= 0 || got.P99 < got.P50 || got.Rate <= 0 {
			t.Errorf("closed loop: %+v", got)
		}
		began := time.Now()
		if got, err = open(ctx, &c, addr, 3, 10); err != nil {
			t.Fatal(err)
		}
		if least := time.Duration(5 / c.Rate * float64(time.Second)); got.Requests != 10 || time.Since(began) < least {
			t.Errorf("open loop: %+v after %v, which is due after %v at least", got, time.Since(began), least)
		}
		if c.Stream != (got.ChunkP50 > 0) {
			t.Errorf("delay of a chunk: %v us", got.ChunkP50)
		}
		if n := serial.Load() - last; n != 20 {
			t.Errorf("%d prompts were sent", n)
		}
	}
	for _, addr := range []string{engine, proxy, least} {
		f(cell{Bytes: 400, Rate: 500}, addr)
		f(cell{Bytes: 400_000, Rate: 500}, addr)
		f(cell{Bytes: 2000, Stream: true, Rate: 500}, addr)
	}
}

// What is not what the engine answers must not count as fast.
func TestBadAnswersFailARun(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	event := beforeDelta + beforeStamp + "1" + afterStamp
	chunked := func(n int) string {
		var s serving
		s.out = []byte(streamHead)
		for range n {
			s.chunk([]byte(event))
		}
		s.chunk([]byte("data: [DONE]\n\n"))
		return string(s.out) + "0\r\n\r\n"
	}
	f := func(stream bool, answer string, ok bool) {
		t.Helper()
		addr := serve(t, func(ctx context.Context, ln net.Listener) error {
			stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
			defer stop()
			c, err := ln.Accept()
			if err != nil {
				return err
			}
			buf := make([]byte, 4<<10)
			for n := 0; n < 400; {
				m, err := c.Read(buf)
				if err != nil {
					return err
				}
				n += m
			}
			_, _ = io.WriteString(c, answer)
			return c.Close()
		})
		if _, err := closed(context.Background(), &cell{Bytes: 400, Stream: stream}, addr, 1, 1); (err == nil) != ok {
			t.Errorf("%.60q: %v", answer, err)
		}
	}
	f(false, head+"Content-Length: 1024\r\n\r\n"+strings.Repeat("x", 1024), true)
	f(false, head+"Content-Length: 1024\r\n\r\n"+strings.Repeat("x", 1000), false)
	f(false, head+"Content-Length: 1000\r\n\r\n"+strings.Repeat("x", 1000), false)
	f(false, head+"Connection: close\r\nContent-Length: 1024\r\n\r\n"+strings.Repeat("x", 1024), false)
	f(false, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", false)
	f(true, chunked(chunks), true)
	f(true, chunked(chunks-1), false)
	f(true, strings.TrimSuffix(chunked(chunks), "0\r\n\r\n"), false)
}

func TestUsageOfAProcessGrowsWithItsWork(t *testing.T) {
	before, err := used(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	after := before
	for begin := time.Now(); after.cpu-before.cpu < 5*time.Millisecond; {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%v of CPU after %v", after.cpu-before.cpu, time.Since(begin))
		}
		if after, err = used(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		_, _ = f.WriteString("x")
	}
	_ = f.Close()
	if after, err = used(os.Getpid()); err != nil || after.writes-before.writes < 10 {
		t.Errorf("%d writes, %v", after.writes-before.writes, err)
	}
}

func TestRatiosAreWithinARound(t *testing.T) {
	res := result{Rows: []row{
		{Cell: "x", Proxy: "a", Round: 1, Closed: figures{CPU: 10}},
		{Cell: "x", Proxy: "b", Round: 1, Closed: figures{CPU: 20}},
		{Cell: "x", Proxy: "b", Round: 2, Closed: figures{CPU: 10}},
		{Cell: "x", Proxy: "a", Round: 2, Closed: figures{CPU: 20}},
		{Cell: "x", Proxy: "a", Round: 3, Closed: figures{CPU: 30}},
		{Cell: "x", Proxy: "b", Round: 3, Closed: figures{CPU: 30}},
	}}
	if got := res.ratio("x", "a", "b", func(r *row) float64 { return r.Closed.CPU }); got != "1.00 (0.500-2.00)" {
		t.Error(got)
	}
}

func TestWhatAnIdleProxyTakesIsTakenOff(t *testing.T) {
	res := result{Idle: map[string]float64{"a": 5000, "b": 1e9}}
	f := func(proxy string, want float64) {
		t.Helper()
		if got := res.busy(proxy, &figures{CPU: 80, Rate: 100}); got != want {
			t.Errorf("%s: %v us, want %v", proxy, got, want)
		}
	}
	f("a", 30) // 5 ms a second are 50 us of each of 100 requests
	f("b", 0)
	f("c", 80)
}
