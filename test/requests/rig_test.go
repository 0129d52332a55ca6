package requests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/leak"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

func TestMain(m *testing.M) {
	// The library's compressors, which tests use, are workers that never end.
	leak.Main(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp/stackless.funcWorker"))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wire is what a rig runs over: loopback, or a network in memory in a bubble.
type wire interface {
	listen(t testing.TB, host string) (ln net.Listener, addr string)
	dial(ctx context.Context, addr string) (net.Conn, error)
	node(t testing.TB, c *node.Config, d *node.Deps) // where a router listens and dials
}

type loopback struct{}

func (loopback) listen(t testing.TB, _ string) (net.Listener, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	return ln, ln.Addr().String()
}

func (loopback) dial(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

func (loopback) node(t testing.TB, c *node.Config, d *node.Deps) {
	t.Helper()
	ports, err := harness.Ports(1)
	must(t, err)
	c.Listen.API, c.Listen.Admin, c.Listen.Cluster = "127.0.0.1:0", "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", ports[0])
	d.Listen = net.Listen
}

type bubble struct{ net *simnet.Net }

func (b bubble) listen(t testing.TB, host string) (net.Listener, string) {
	t.Helper()
	ln, err := b.net.Host(host).Listen("tcp", ":8000")
	must(t, err)
	return ln, host + ":8000"
}

func (b bubble) dial(ctx context.Context, addr string) (net.Conn, error) {
	return b.net.Host("client").DialContext(ctx, "tcp", addr)
}

func (b bubble) node(_ testing.TB, c *node.Config, d *node.Deps) {
	c.Listen.API, c.Listen.Admin, c.Listen.Cluster = ":8080", "127.0.0.1:8081", "127.0.0.1:7946"
	h := b.net.Host("router")
	d.Listen, d.ListenPacket, d.Dial, d.Resolve = h.Listen, h.ListenPacket, h.DialContext, h.LookupHost
}

// inBubble runs a test on a clock that costs nothing.
func inBubble(t *testing.T, f func(t *testing.T, w wire)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, bubble{simnet.New(1)}) })
}

// router is a whole router in front of fake engines.
type router struct {
	t       testing.TB
	w       wire
	api     string
	admin   string
	engines []*engine
	log     harness.Log

	cancel context.CancelFunc
	done   chan error
	once   sync.Once
}

type option func(c *node.Config)

// pool changes the pool's part of the file.
func pool(f func(p *node.PoolConfig)) option {
	return func(c *node.Config) { f(&c.Pools[0]) }
}

// start starts a router with one engine for each answer, over loopback.
func start(t testing.TB, answers []func(*call) bool, opts ...option) *router {
	t.Helper()
	return startOn(t, loopback{}, answers, opts...)
}

// one is a router in front of one engine that serves.
func one(t testing.TB, opts ...option) *router {
	t.Helper()
	return start(t, []func(*call) bool{serves}, opts...)
}

func startOn(t testing.TB, w wire, answers []func(*call) bool, opts ...option) *router {
	t.Helper()
	g := &router{t: t, w: w, done: make(chan error, 1)}
	c := node.Defaults()
	c.Node.Name, c.Node.DataDir, c.Log.Level = "r1", t.TempDir(), "debug"
	c.API.DrainDelay = time.Millisecond
	p := node.PoolConfig{Name: "chat", Model: "llama", Aliases: []string{"fast"}, Engine: "openai"}
	for i, a := range answers {
		e := newEngine(t, w, fmt.Sprintf("e%d", i+1), a)
		g.engines = append(g.engines, e)
		p.Replicas = append(p.Replicas, node.ReplicaConfig{URL: e.url})
	}
	c.Pools = []node.PoolConfig{p}
	d := node.Deps{
		Log: zerolog.New(&g.log).Level(zerolog.DebugLevel), Getenv: func(name string) string { return map[string]string{"KEY": "secret"}[name] },
		Memory: consensus.NewMemory(), NoDate: true,
	}
	w.node(t, &c, &d)
	for _, o := range opts {
		o(&c)
	}
	c.Finish()
	listen := d.Listen
	d.Listen = func(network, addr string) (net.Listener, error) {
		ln, err := listen(network, addr)
		if err == nil && addr == c.Listen.API && g.api == "" {
			g.api = ln.Addr().String()
		} else if err == nil && addr == c.Listen.Admin {
			g.admin = ln.Addr().String()
		}
		return ln, err
	}
	n, err := node.New(c, d)
	must(t, err)
	if _, ok := w.(bubble); ok {
		g.api = "router:8080"
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	go func() { g.done <- n.Run(ctx) }()
	t.Cleanup(g.stop)
	return g
}

// stop ends the router, then its engines, and checks what must hold of both.
func (g *router) stop() {
	g.once.Do(func() {
		g.cancel()
		if err := <-g.done; err != nil {
			g.t.Errorf("router: %v", err)
		}
		for i, e := range g.engines {
			e.stop()
			if len(e.bad) > 0 {
				g.t.Errorf("engine %d got what no router may send: %q", i+1, e.bad)
			}
		}
		if log := g.log.String(); strings.Contains(log, "panic") {
			g.t.Errorf("the router's log tells of a panic:\n%s", log)
		}
		if _, ok := g.w.(bubble); ok {
			time.Sleep(30 * time.Second) // membership's probes run out
		}
	})
}

// calls are those at all engines so far, engine by engine.
func (g *router) calls() (list []*call) {
	for _, e := range g.engines {
		list = append(list, e.calls()...)
	}
	return list
}

// last is the latest call of the only engine.
func (g *router) last() *call {
	g.t.Helper()
	list := g.engines[0].calls()
	if len(list) == 0 {
		g.t.Fatal("the engine got no call")
	}
	return list[len(list)-1]
}

// metrics is the router's exposition.
func (g *router) metrics() string {
	g.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://" + g.admin + "/metrics")
	must(g.t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(g.t, err)
	return string(b)
}

// metric sums the samples of a metric whose line holds all of these.
func (g *router) metric(name string, holds ...string) (sum float64) {
	g.t.Helper()
line:
	for l := range strings.Lines(g.metrics()) {
		if !strings.HasPrefix(l, name+"{") && !strings.HasPrefix(l, name+" ") {
			continue
		}
		for _, h := range holds {
			if !strings.Contains(l, h) {
				continue line
			}
		}
		var v float64
		_, err := fmt.Sscan(l[strings.LastIndexByte(l, ' ')+1:], &v)
		must(g.t, err)
		sum += v
	}
	return sum
}

// until polls with a bound.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	harness.Until(t, patience, what, ok)
}
