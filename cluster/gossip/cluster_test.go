package gossip

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/test/leak"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

func TestMain(m *testing.M) { leak.Main(m) }

var secret = []byte("0123456789abcdef0123456789abcdef")

// options of one router in a test.
type options struct {
	n        *simnet.Net
	host     string
	join     []string // hosts
	tweak    func(*Config)
	mesh     func(*mesh.Config)
	journal  int            // size; 0: default
	replicas int            // 0: those of the constant
	boots    int            // how often this router was started before
	id       state.RouterID // empty: the host's name
}

// router is a whole router but for its proxy: store, index, mesh, gossip.
type router struct {
	t      *testing.T
	id     state.RouterID
	host   *simnet.Host
	boot   state.BootID
	store  *state.Store
	index  *sketch.Index
	mesh   *mesh.Mesh
	gossip *Gossip
	reg    *prometheus.Registry
	log    *logBuffer
	cancel context.CancelFunc
	done   sync.WaitGroup
	hash   atomic.Uint64                 // last mark made up
	hold   atomic.Pointer[chan struct{}] // ops are not applied until it is closed
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// gate is an index that can be held up.
type gate struct {
	*sketch.Index
	hold *atomic.Pointer[chan struct{}]
}

func (g gate) Apply(op sketch.Op, now time.Time) bool {
	if c := g.hold.Load(); c != nil {
		<-*c
	}
	return g.Index.Apply(op, now)
}

const replicas = 4

func replica(i int) state.ReplicaID {
	return state.ReplicaID(fmt.Sprintf("http://10.1.0.%d:8000", i+1))
}

func start(t *testing.T, o options) *router {
	t.Helper()
	h := o.n.Host(o.host)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ml, err := h.Listen("tcp", ":7947")
	must(err)
	gl, err := h.Listen("tcp", ":7946")
	must(err)
	gp, err := h.ListenPacket("udp", ":7946")
	must(err)
	dial := func(ctx context.Context, a string) (net.Conn, error) { return h.DialContext(ctx, "tcp", a) }

	r := &router{t: t, id: cmp.Or(o.id, state.RouterID(o.host)), host: h, reg: prometheus.NewPedanticRegistry(), log: &logBuffer{}}
	for _, c := range o.host {
		r.boot = r.boot*131 + state.BootID(c)
	}
	r.boot = r.boot*1000 + state.BootID(o.boots) + 1
	r.hash.Store(uint64(r.boot) << 20)
	clock := state.NewClock(r.boot, time.Now())
	r.store = state.NewStore(state.Config{Self: r.id, Clock: clock, Pools: []state.PoolSpec{{Name: "p", Model: "m"}}})
	var list []state.Replica
	count := o.replicas
	if count == 0 {
		count = replicas
	}
	for i := range count {
		list = append(list, state.Replica{ID: replica(i), URL: string(replica(i))})
	}
	r.store.SetReplicas(state.SourceStatic, "p", list)
	r.index = sketch.New(sketch.Config{Clock: clock, Slots: r.store.SlotOf, Bounds: sketch.Bounds{Journal: o.journal}})
	log := zerolog.New(r.log)
	mc := mesh.Config{
		Self: r.id, Boot: r.boot, Name: o.host, Cluster: "default", Scheme: "1", Secret: [][]byte{secret},
		Listener: ml, Dial: dial, Log: log, Registerer: r.reg,
	}
	gc := Config{
		Self: r.id, Name: o.host, Cluster: "default", Scheme: "1", Secret: [][]byte{secret},
		MeshAddr: ":7947", APIAddr: ":8080", AdminAddr: ":8081", Packets: gp, Listener: gl, Dial: dial, Resolve: h.LookupHost,
		Log: log, Registerer: r.reg,
	}
	for _, j := range o.join {
		gc.Join = append(gc.Join, j+":7946")
	}
	if o.mesh != nil {
		o.mesh(&mc)
	}
	if o.tweak != nil {
		o.tweak(&gc)
	}
	r.mesh, err = mesh.New(mc)
	must(err)
	r.gossip, err = New(gc, r.store, gate{r.index, &r.hold}, r.mesh)
	must(err)
	r.gossip.Attach(r.mesh)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	for _, run := range []func(context.Context) error{r.mesh.Run, r.gossip.Run} {
		r.done.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "closed") {
				t.Errorf("%s: %v", r.id, err)
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

// stop leaves in order; kill does not.
func (r *router) stop() {
	r.cancel()
	r.done.Wait()
}

func (r *router) kill() {
	r.host.Crash()
	r.stop()
}

// group starts routers r0, r1, ... that join r0 and r1.
func group(t *testing.T, n *simnet.Net, count int, o options) []*router {
	t.Helper()
	list := make([]*router, count)
	o.n = n
	o.join = []string{"r0", "r1"}
	n.Host("r0")
	n.Host("r1")
	for i := range list {
		o.host = fmt.Sprint("r", i)
		list[i] = start(t, o)
	}
	within(t, 10*time.Second, "one group", whole(list...))
	return list
}

// whole says that all are members of each other with streams between all.
func whole(list ...*router) func() bool {
	return func() bool {
		for _, a := range list {
			for _, b := range list {
				if a == b {
					continue
				}
				if m := a.member(b.id); m.State != Alive || !m.Stream || m.Boot != b.boot {
					return false
				}
			}
		}
		return true
	}
}

func (r *router) member(id state.RouterID) Member {
	for _, m := range r.gossip.Members() {
		if m.ID == id {
			return m
		}
	}
	return Member{}
}

// within waits in virtual time until ok, for at most d.
func within(t *testing.T, d time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > d {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// begin sends a request of so many uncached tokens to a replica.
func (r *router) begin(i, uncached int) *state.Ticket {
	return r.store.Begin(r.store.View().Replica(replica(i)), uncached)
}

// sees says how many requests this router believes the others have at a replica.
func (r *router) sees(i int) int64 { return r.store.View().Replica(replica(i)).Others.InFlight }

// place makes up a prefix of so many marks and sends a request with it.
func (r *router) place(i, marks int) *sketch.Placement {
	list, tokens := r.prefix(marks)
	return r.index.Place(replica(i), list, tokens, time.Now())
}

func (r *router) prefix(marks int) (list []prefix.Mark, tokens []int32) {
	for k := range marks {
		list = append(list, prefix.Mark{Hash: r.hash.Add(1) * 0x9e3779b97f4a7c15, ASCII: uint32(k+1) * 400})
		tokens = append(tokens, int32(k+1)*100)
	}
	return list, tokens
}

// learn makes up a prefix of so many marks and uses it at a replica.
func (r *router) learn(i, marks int) []prefix.Mark {
	list, tokens := r.prefix(marks)
	now := time.Now()
	p := r.index.Place(replica(i), list, tokens, now)
	p.First(now)
	p.End(now)
	return list
}

// use comes back to marks at a replica.
func (r *router) use(i int, marks []prefix.Mark) {
	tokens := make([]int32, len(marks))
	for k := range tokens {
		tokens[k] = int32(k+1) * 100
	}
	now := time.Now()
	p := r.index.Place(replica(i), marks, tokens, now)
	p.First(now)
	p.End(now)
}

// knows says how many of the marks this router believes live at a replica.
func (r *router) knows(i int, marks []prefix.Mark) int {
	dst := make([]sketch.Match, 1)
	r.index.Lookup(dst, marks, []state.Slot{r.store.SlotOf(replica(i))}, time.Now())
	return dst[0].Live
}

func (r *router) isReady() bool {
	select {
	case <-r.gossip.Ready():
		return true
	default:
		return false
	}
}

func bubble(t *testing.T, f func(t *testing.T, n *simnet.Net)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Last of all: memberlist's probes under way end by their time-outs.
		t.Cleanup(func() { time.Sleep(10 * time.Second) })
		n := simnet.New(1)
		n.SetDefault(simnet.Link{Delay: time.Millisecond, Jitter: time.Millisecond})
		f(t, n)
	})
}
