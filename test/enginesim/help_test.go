package enginesim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memListener is a listener of in-memory connections.
type memListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemListener() *memListener {
	return &memListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *memListener) Addr() net.Addr { return &net.UnixAddr{Name: "mem", Net: "unix"} }

func (l *memListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sim is an engine under test with a client of its own.
type sim struct {
	*Engine
	t      *testing.T
	client *http.Client
	url    string
}

// simpleConfig has steps of 10 ms + 1 ms per 10 prefill tokens + 1 ms per stream.
func simpleConfig() Config {
	cfg := DefaultConfig()
	cfg.Profile, cfg.Model = "simple", "m"
	cfg.SimplePerStream = time.Millisecond
	return cfg
}

// serve runs an engine until the test's function returns.
func serve(t *testing.T, cfg Config, ln net.Listener, dial func(context.Context, string, string) (net.Conn, error), f func(*sim)) {
	t.Helper()
	e := New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, ln) }()
	tr := &http.Transport{DialContext: dial, DisableCompression: true}
	s := &sim{Engine: e, t: t, client: &http.Client{Transport: tr}, url: "http://" + ln.Addr().String()}
	if dial != nil {
		s.url = "http://engine"
	}
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		tr.CloseIdleConnections()
	}()
	f(s)
}

// bubble runs f against an engine in a synctest bubble.
func bubble(t *testing.T, cfg Config, f func(*testing.T, *sim)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ln := newMemListener()
		serve(t, cfg, ln, ln.dial, func(s *sim) { f(t, s) })
	})
}

// loopback runs f against an engine on a TCP socket.
func loopback(t *testing.T, cfg Config, f func(*sim)) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, cfg, ln, nil, f)
}

func (s *sim) do(ctx context.Context, method, path, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return s.client.Do(req)
}

// post returns status and body; a broken answer fails the test.
func (s *sim) post(path, body string, header ...string) (int, string) {
	s.t.Helper()
	return s.get("POST", path, body, header...)
}

func (s *sim) get(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	resp, err := s.do(context.Background(), method, path, body, header...)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

type reply struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Index   int    `json:"index"`
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	KV map[string]any `json:"kv_transfer_params"`
}

func (s *sim) ask(path, body string) reply {
	s.t.Helper()
	status, b := s.post(path, body)
	if status != 200 {
		s.t.Fatalf("status %d: %s", status, b)
	}
	var r reply
	if err := json.Unmarshal([]byte(b), &r); err != nil {
		s.t.Fatalf("%v in %s", err, b)
	}
	return r
}

// frame is a stream event and when it came.
type frame struct {
	data string
	at   time.Duration
}

// frames reads events until the stream ends and returns them with its error.
func frames(start time.Time, body io.Reader) ([]frame, error) {
	var out []frame
	r := bufio.NewReader(body)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return out, err
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			out = append(out, frame{strings.TrimSpace(d), time.Since(start)})
		}
	}
}

// The prompt of the exact stream tests as token ids, and its answer: 100 tokens
// prefill in 10 + 10 = 20 ms after 1 ms on the way in, then 11 ms per token.
func tokenPrompt(n int) string {
	var b bytes.Buffer
	b.WriteByte('[')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, 5000+i)
	}
	b.WriteByte(']')
	return b.String()
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("not within 5 s")
		case <-tick.C:
		}
	}
}
