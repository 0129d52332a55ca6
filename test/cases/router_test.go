package cases

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/leak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // they wait, mostly
	leak.Main(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience bounds every wait for something that has to happen.
const patience = 30 * time.Second

// until polls with a bound.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	harness.Until(t, patience, what, ok)
}

// slack is what a busy machine may add to what the product promises.
const slack = 5 * time.Second

// within is until with a bound of its own that the product promises.
func within(t testing.TB, bound time.Duration, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	until(t, what, ok)
	if d := time.Since(began); d > bound+slack {
		t.Errorf("%s: only after %v, want %v", what, d, bound)
	}
}

// router is one whole router.
type router struct {
	t          testing.TB
	w          *world
	api, admin string // host:port
	log        harness.Log
	http       *http.Client
}

// setup is what a test wants of its routers beside the usual.
type setup struct {
	routers   int           // 0: one
	readEvery time.Duration // 0: 100 ms
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	node      func(*node.Config)
}

// pool is a pool of these engines named p whose model is m, with short limits.
func pool(engines ...*engine) node.PoolConfig {
	p := node.PoolConfig{Name: "p", Model: "m", Aliases: []string{"fast"}, Engine: "vllm"}
	p.Timeouts = node.TimeoutConfig{Connect: time.Second, FirstByte: 5 * time.Second, Idle: 5 * time.Second, Total: time.Minute}
	for _, e := range engines {
		p.Replicas = append(p.Replicas, node.ReplicaConfig{URL: e.url})
	}
	return p
}

// start starts routers on loopback.
func start(t *testing.T, s setup, pools ...node.PoolConfig) []*router {
	t.Helper()
	return (*world)(nil).start(t, s, pools...)
}

// start starts routers with the same pools and waits until they are ready. They are
// stopped at the test's end, before its engines.
func (w *world) start(t *testing.T, s setup, pools ...node.PoolConfig) []*router {
	t.Helper()
	n := max(1, s.routers)
	places := w.places(t, n)
	var join []string
	for i := range places {
		join = append(join, places[i].cluster)
	}
	var all []*router
	for i := range places {
		c := node.Defaults()
		c.Node.Name, c.Node.DataDir = fmt.Sprintf("r%d", i+1), t.TempDir()
		if n > 1 {
			c.Cluster.Join, c.Cluster.BootstrapExpect = join, n
		}
		r := &router{t: t, w: w, http: places[i].client()}
		d := node.Deps{
			Log: zerolog.New(&r.log), Getenv: func(string) string { return "" }, Memory: consensus.NewMemory(),
			NoDate: true, ReadEvery: cmp.Or(s.readEvery, 100*time.Millisecond), Dial: s.dial,
		}
		places[i].node(&c, &d)
		c.API.Debug, c.API.DrainDelay = true, 0
		c.Log.Level = "debug"
		c.Pools = pools
		if s.node != nil {
			s.node(&c)
		}
		c.Finish()
		r.api, r.admin = c.Listen.API, c.Listen.Admin
		nd, err := node.New(c, d)
		must(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- nd.Run(ctx) }()
		t.Cleanup(func() {
			r.http.CloseIdleConnections()
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", c.Node.Name, err)
			}
			if t.Failed() {
				t.Logf("%s's log ends with:\n%s", c.Node.Name, lastLines(r.log.String(), 40))
			}
		})
		all = append(all, r)
	}
	for _, r := range all {
		until(t, "it serves", func() bool { return r.get("/livez") != "" })
	}
	return all
}

// lastLines are the last n lines of a log.
func lastLines(log string, n int) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// get fetches a path of the admin port; it is empty unless the answer is 200.
func (r *router) get(path string) string {
	resp, err := r.http.Get("http://" + r.admin + path)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(b)
}

// metric sums the samples of a metric that have these labels, such as code="200".
func (r *router) metric(name string, labels ...string) (sum float64) {
	for line := range strings.Lines(r.get("/metrics")) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		series, value, _ := strings.Cut(rest, "} ")
		if rest[0] == ' ' {
			series, value = "", rest[1:]
		}
		for _, l := range labels {
			ok = ok && strings.Contains(series, l)
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); ok && err == nil {
			sum += v
		}
	}
	return sum
}

// inFlight is the requests at an engine, as this router knows of all routers.
func (r *router) inFlight(e *engine) float64 {
	return r.metric("hearsay_replica_inflight", `replica="`+strings.TrimPrefix(e.url, "http://")+`"`)
}

// is reports whether an engine is in a state, as this router sees it.
func (r *router) is(e *engine, state string) bool {
	return r.metric("hearsay_replica_state", `replica="`+strings.TrimPrefix(e.url, "http://")+`"`, `state="`+state+`"`) == 1
}

// settled waits until nothing is counted at the engines any more, on any router.
func settled(t *testing.T, routers []*router, engines ...*engine) {
	t.Helper()
	for _, r := range routers {
		for _, e := range engines {
			within(t, 3*time.Second, "in-flight back to 0", func() bool { return r.inFlight(e) == 0 })
		}
	}
}

// answer is what a client got. err is what reading the body ended with: nil for a
// proper end.
type answer struct {
	*http.Response
	body string
	err  error
}

// Requests.
const (
	ask       = `{"model":"m","messages":[{"role":"user","content":"Hello there"}]}`
	askStream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello there"}]}`
	askUsage  = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hello there"}]}`
)

func post(body string, fields ...string) string {
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		len(body), strings.Join(append(fields, ""), "\r\n"), body)
}

// stream is a client's connection with a request on it.
type stream struct {
	t    testing.TB
	conn net.Conn
	br   *bufio.Reader
	resp *http.Response
}

// open sends a request on a new connection.
func (r *router) open(body string, fields ...string) *stream {
	r.t.Helper()
	return r.send(post(body, fields...))
}

// send sends these bytes on a new connection.
func (r *router) send(request string) *stream {
	r.t.Helper()
	c, err := r.w.dial(r.api)
	must(r.t, err)
	_ = c.SetReadDeadline(time.Now().Add(3 * patience))
	r.t.Cleanup(func() { _ = c.Close() })
	s := &stream{t: r.t, conn: c, br: bufio.NewReader(c)}
	_, err = io.WriteString(c, request)
	must(r.t, err)
	return s
}

// head waits for the answer's head.
func (s *stream) head() *http.Response {
	s.t.Helper()
	if s.resp == nil {
		var err error
		s.resp, err = http.ReadResponse(s.br, nil)
		must(s.t, err)
	}
	return s.resp
}

// expect reads exactly these bytes of the body.
func (s *stream) expect(want string) {
	s.t.Helper()
	b := make([]byte, len(want))
	n, err := io.ReadFull(s.head().Body, b)
	if string(b[:n]) != want {
		s.t.Fatalf("got %q, %v, want %q", b[:n], err, want)
	}
}

// rest reads the answer to its end.
func (s *stream) rest() answer {
	s.t.Helper()
	b, err := io.ReadAll(s.head().Body)
	return answer{s.resp, string(b), err}
}

// chat asks and reads the whole answer.
func (r *router) chat(body string, fields ...string) answer {
	r.t.Helper()
	s := r.open(body, fields...)
	defer func() { _ = s.conn.Close() }()
	return s.rest()
}

// again asks on the connection of an answer that was read to its end: the router has
// finished with that one before it reads this request.
func (s *stream) again(body string, fields ...string) answer {
	s.t.Helper()
	s.resp = nil
	_, err := io.WriteString(s.conn, post(body, fields...))
	must(s.t, err)
	return s.rest()
}

// brokenOff checks that an answer broke off behind what came of it: with an error
// event at most, and never as if it were whole.
func (a answer) brokenOff(t *testing.T, name, came string) {
	t.Helper()
	rest, ok := strings.CutPrefix(a.body, came)
	if !ok {
		t.Errorf("%s: got %.300q, want it to start with %.300q", name, a.body, came)
	}
	if a.err == nil {
		t.Errorf("%s: the body ends as if it were whole", name)
	}
	if strings.Contains(rest, "[DONE]") || strings.Contains(rest, "finish_reason") {
		t.Errorf("%s: an invented end: %.300q", name, rest)
	}
	if rest != "" && (!strings.HasPrefix(rest, `data: {"error":{`) || strings.Count(rest, "\n\n") != 1 || !strings.HasSuffix(rest, "\n\n")) {
		t.Errorf("%s: behind what came stands %.300q", name, rest)
	}
}
