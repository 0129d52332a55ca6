package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/test/traces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is an in-memory one, for bubbles: every name listens at the same server.
type network struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	dials atomic.Int64
}

func newNetwork() *network {
	return &network{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.done) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		n.dials.Add(1)
		return client, nil
	case <-n.done:
		return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve runs a handler behind an in-memory network for the length of the test.
func serve(t *testing.T, handler http.HandlerFunc) *network {
	t.Helper()
	n := newNetwork()
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(n)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return n
}

// engine answers like vLLM: a role chunk, the pieces, a finish chunk, usage, [DONE].
type engine struct {
	ttft, itl time.Duration
	cached    int // tokens; below 0 leaves the detail out

	mu     sync.Mutex
	bodies []chatBody
	at     []time.Time
	header []http.Header
}

type chatBody struct {
	Model         string
	Prompt        string
	Messages      []struct{ Role, Content string }
	Tools         []json.RawMessage
	MaxTokens     int  `json:"max_tokens"`
	Stream        bool `json:"stream"`
	IgnoreEOS     bool `json:"ignore_eos"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body chatBody
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	e.bodies = append(e.bodies, body)
	e.at = append(e.at, time.Now())
	e.header = append(e.header, r.Header.Clone())
	e.mu.Unlock()
	begin(w)
	event(w, `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`)
	pause(r.Context(), e.ttft)
	for i := range body.MaxTokens {
		if i > 0 {
			pause(r.Context(), e.itl)
		}
		if r.Context().Err() != nil {
			return
		}
		event(w, fmt.Sprintf(`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"w%d "},"finish_reason":null}]}`, i))
	}
	event(w, `{"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`)
	details := ""
	if e.cached >= 0 {
		details = fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%d}`, e.cached)
	}
	event(w, fmt.Sprintf(`{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":%d%s}}`, body.MaxTokens, details))
	event(w, "[DONE]")
}

func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
}

func event(w http.ResponseWriter, data string) {
	_, _ = io.WriteString(w, "data: "+data+"\n\n")
	_ = http.NewResponseController(w).Flush()
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// every makes n requests, one per gap, of the given output tokens.
func every(gap time.Duration, n, output int) traces.Source {
	var all []*traces.Request
	for i := range n {
		all = append(all, &traces.Request{
			At: time.Duration(i) * gap, InputTokens: 20, OutputTokens: output,
			Messages: []traces.Message{{Role: "user", Parts: []traces.Part{{ID: uint64(i), Tokens: 20}}}},
		})
	}
	return traces.Slice(all...)
}

func run(t *testing.T, ctx context.Context, n *network, cfg Config) *Report {
	t.Helper()
	if len(cfg.Targets) == 0 {
		cfg.Targets = []string{"http://router"}
	}
	cfg.Model = "m"
	cfg.DialContext = n.dial
	r, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
