package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inOrder picks the first replica in id order that was not tried: tests know where
// their requests go.
type inOrder struct{}

func (inOrder) Pick(c *routing.Choice, req *routing.Request, _ *state.View, now time.Time) error {
	if len(req.Pool.Replicas) == 0 {
		return &routing.PickError{Pool: req.Pool.Spec.Name, RetryAfter: 5 * time.Second}
	}
	c.Candidates, c.Chosen, c.At = c.Candidates[:0], -1, now
	for i, r := range req.Pool.Replicas {
		k := routing.Candidate{Replica: r}
		if slices.Contains(req.Exclude, r.ID) {
			k.Excluded = routing.ExcludedTried
		} else if req.Only != "" && r.ID != req.Only {
			k.Excluded = routing.ExcludedPinned
		} else if c.Chosen < 0 {
			c.Chosen = i
		}
		c.Candidates = append(c.Candidates, k)
	}
	if c.Chosen < 0 {
		return &routing.PickError{
			Pool: req.Pool.Spec.Name, Total: len(c.Candidates), RetryAfter: time.Second,
			Reasons: []routing.ReasonCount{{Reason: routing.ExcludedTried, Count: len(c.Candidates)}},
		}
	}
	c.Replica, c.Policy, c.Reason = c.Candidates[c.Chosen].Replica, "in_order", routing.ReasonOnly
	c.PromptTokens, c.MatchedTokens = req.PromptTokens, 0
	c.UncachedTokens, c.TTFT = req.PromptTokens, 50*time.Millisecond
	return nil
}

// reports records what a Reporter hears.
type reports struct {
	mu   sync.Mutex
	list []string
}

func (r *reports) Report(id state.ReplicaID, o Outcome, wait time.Duration, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := string(id) + " " + o.String()
	if wait > 0 {
		s += " " + wait.String()
	}
	r.list = append(r.list, s)
}

func (r *reports) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := strings.Join(r.list, ", ")
	r.list = nil
	return s
}

// rig is a router in front of fake engines.
type rig struct {
	t       testing.TB
	w       wire
	addr    string
	store   *state.Store
	index   *sketch.Index
	cal     *routing.Calibration
	srv     *Server
	reg     *prometheus.Registry
	reports *reports
	engines []*engine
	cancel  context.CancelFunc
	done    chan error
	once    sync.Once
}

type poolSpec = state.PoolSpec

type option func(cfg *Config, spec *poolSpec)

func newRig(t testing.TB, w wire, handlers []func(e *engine, in *incoming) bool, opts ...option) *rig {
	t.Helper()
	g := &rig{t: t, w: w, reg: prometheus.NewPedanticRegistry(), reports: &reports{}, done: make(chan error, 1)}
	spec := state.PoolSpec{
		Name: "chat", Model: "llama", Aliases: []string{"fast"}, Engine: state.EngineVLLM,
		ConnectTimeout: 2 * time.Second, FirstByteTimeout: time.Minute, IdleTimeout: 5 * time.Second,
		TotalTimeout: time.Hour, RetryAttempts: 2,
	}
	ln := w.listen("router")
	g.addr = ln.Addr().String()
	if _, ok := w.(sim); ok {
		g.addr = "router:80"
	}
	boot := state.BootID(1)
	if n, ok := w.(interface{ boot() state.BootID }); ok {
		boot = n.boot()
	}
	clock := state.NewClock(boot, time.Now())
	cfg := Config{
		Debug:     true,
		Core:      CoreConfig{Picker: inOrder{}, Ratios: prefix.NewRatios(16), Reporter: g.reports},
		Listeners: []net.Listener{ln},
		Dial:      func(ctx context.Context, addr string) (net.Conn, error) { return w.dial(ctx, "router", addr) },
		Logger:    zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel), Registry: g.reg, NoDate: true,
		Limits: Limits{Drain: time.Second},
	}
	for _, o := range opts {
		o(&cfg, &spec)
	}
	self := state.RouterID("r1")
	if n, ok := w.(interface{ self() state.RouterID }); ok {
		self = n.self()
	}
	g.store = state.NewStore(state.Config{Self: self, Clock: clock, Pools: []state.PoolSpec{spec}})
	g.index = sketch.New(sketch.Config{Clock: clock, Slots: g.store.SlotOf})
	cfg.Core.Store, cfg.Core.Index = g.store, g.index
	if cfg.Core.Picker == nil { // the real one
		g.cal = routing.NewCalibration()
		cfg.Core.Picker, cfg.Core.Calibration = routing.NewPicker(routing.Config{}, g.index, g.cal), g.cal
	}
	var list []state.Replica
	for i, h := range handlers {
		var e *engine
		e = newEngine(w, "e"+strconv.Itoa(i+1), func(in *incoming) bool { return h(e, in) })
		g.engines = append(g.engines, e)
		list = append(list, state.Replica{ID: state.ReplicaID(e.name), URL: e.url, Role: state.RoleBoth})
	}
	g.store.SetReplicas(state.SourceStatic, "chat", list)
	var err error
	g.srv, err = New(cfg)
	must(t, err)
	if _, ok := t.(*testing.T); ok { // and no benchmark
		g.srv.bodies.spoil = spoiled
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	go func() { g.done <- g.srv.Run(ctx) }()
	t.Cleanup(g.stop)
	return g
}

// stop ends the router, then the engines, and checks that nothing is held.
func (g *rig) stop() {
	g.once.Do(func() {
		g.cancel()
		if err := <-g.done; err != nil {
			g.t.Errorf("Run: %v", err)
		}
		for _, e := range g.engines {
			e.stop()
		}
		for _, r := range g.store.View().Pool("llama").Replicas {
			if l := r.Cell.Load(); l != (state.Load{}) {
				g.t.Errorf("replica %s still has load %+v", r.ID, l)
			}
		}
	})
}

// conn opens a client connection.
func (g *rig) conn() net.Conn {
	g.t.Helper()
	c, err := g.w.dial(context.Background(), "client", g.addr)
	must(g.t, err)
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

// raw sends bytes on a new connection and returns all that comes back.
func (g *rig) raw(s string) string {
	g.t.Helper()
	c := g.conn()
	_, err := io.WriteString(c, s)
	must(g.t, err)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b, _ := io.ReadAll(c)
	_ = c.Close()
	return string(b)
}

func post(path, body string, fields ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		path, len(body), strings.Join(append(fields, ""), "\r\n"), body)
}

// reply is a response as a client saw it. err is what reading the body ended with,
// nil for a proper end.
type reply struct {
	*http.Response
	body string
	err  error
}

func (g *rig) do(request string) reply {
	g.t.Helper()
	c := g.conn()
	defer func() { _ = c.Close() }()
	return exchangeOn(g.t, c, bufio.NewReader(c), request)
}

func exchangeOn(t testing.TB, c net.Conn, br *bufio.Reader, request string) reply {
	t.Helper()
	_, err := io.WriteString(c, request)
	must(t, err)
	return readReply(t, br)
}

func readReply(t testing.TB, br *bufio.Reader) reply {
	t.Helper()
	resp, err := http.ReadResponse(br, nil)
	must(t, err)
	b, err := io.ReadAll(resp.Body)
	return reply{resp, string(b), err}
}

func (g *rig) chat(body string, fields ...string) reply {
	g.t.Helper()
	return g.do(post("/v1/chat/completions", body, fields...))
}

// pair asks on one connection, again and again: the router has given the replica's
// connection back before it reads the next request.
func (g *rig) pair() func(body string) reply {
	g.t.Helper()
	c := g.conn()
	br := bufio.NewReader(c)
	return func(body string) reply {
		g.t.Helper()
		return exchangeOn(g.t, c, br, post("/v1/chat/completions", body))
	}
}

// inFlight is the own load over all replicas.
func (g *rig) inFlight() (n int64) {
	for _, r := range g.store.View().Pool("llama").Replicas {
		n += r.Cell.Load().InFlight
	}
	return n
}

// patience bounds every wait for something that has to happen.
const patience = 30 * time.Second

// until polls with a bound.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("%s: not in %v", what, patience)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// metric sums the samples of a metric whose labels include the given pairs.
func (g *rig) metric(name string, labels ...string) (sum float64) {
	g.t.Helper()
	families, err := g.reg.Gather()
	must(g.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m.GetLabel(), labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func hasLabels(have []*dto.LabelPair, want []string) bool {
	for i := 0; i+1 < len(want); i += 2 {
		if !slices.ContainsFunc(have, func(l *dto.LabelPair) bool { return l.GetName() == want[i] && l.GetValue() == want[i+1] }) {
			return false
		}
	}
	return true
}

// Bytes of answers.

const (
	ask       = `{"model":"llama","messages":[{"role":"user","content":"Hello there"}]}`
	askStream = `{"model":"llama","stream":true,"messages":[{"role":"user","content":"Hello there"}]}`
	askUsage  = `{"model":"llama","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hello there"}]}`
	good      = `{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}`

	role   = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	word   = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}` + "\n\n"
	finish = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usage  = `data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}` + "\n\n"
	done   = "data: [DONE]\n\n"

	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

const lastChunk = "0\r\n\r\n"

func jsonAnswer(status int, body string, fields ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		status, len(body), strings.Join(append(fields, ""), "\r\n"), body)
}

// says answers every request with the same bytes and keeps the connection.
func says(s string) func(*engine, *incoming) bool {
	return func(_ *engine, in *incoming) bool { return in.write(s) == nil }
}

// streams answers with these events, one chunk each.
func streams(events ...string) func(*engine, *incoming) bool {
	var b bytes.Buffer
	b.WriteString(streamHead)
	for _, e := range events {
		b.WriteString(chunk(e))
	}
	b.WriteString(lastChunk)
	return says(b.String())
}

func handlers(h ...func(*engine, *incoming) bool) []func(*engine, *incoming) bool { return h }
