package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/cluster/observe"
	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

const clusterPort = ":7946"

// scheme names the prefix hashing, as cmd/node gives it.
var scheme = strconv.Itoa(int(prefix.SchemeVersion))

// Router is one start of one router: the parts cmd/node joins, less HTTP and Raft.
type Router struct {
	Index int
	ID    state.RouterID

	c       *Cluster
	host    *simnet.Host
	clock   *state.Clock
	store   *state.Store
	index   *sketch.Index
	cal     *routing.Calibration
	ratios  *prefix.Ratios
	lessons *node.Lessons
	mesh    *mesh.Mesh
	gossip  *gossip.Gossip
	observe *observe.Loop
	balance *balance.Loop
	picker  *picker
	core    *proxy.Core

	cancel context.CancelFunc
	wg     sync.WaitGroup
	timed  *timed

	diskMu sync.Mutex
	disk   []byte // guarded by diskMu; the sketch as last saved
}

// newRouter wires router i and starts nothing. Its parts may be shared with
// router 0 where the cell asks what would be if they were.
func newRouter(c *Cluster, i, boot int, log zerolog.Logger) (*Router, error) {
	cfg := &c.cfg
	rng := rand.New(rand.NewPCG(cfg.PickSeed, uint64(i)<<20|uint64(boot)))
	r := &Router{Index: i, c: c, ID: state.RouterID(fmt.Sprintf("%016x", rand.New(rand.NewPCG(cfg.PickSeed, uint64(i))).Uint64()))}
	r.host = c.net.Host(hostName(i))
	r.clock = state.NewClock(state.BootID(rng.Uint64()|1), time.Now())
	r.store = state.NewStore(state.Config{Self: r.ID, Clock: r.clock, Pools: []state.PoolSpec{c.spec}})
	r.cal, r.ratios = routing.NewCalibration(), prefix.NewRatios(1024)
	first := c.first()
	if cfg.OneStore && first != nil {
		r.store = first.store
	}
	r.index = sketch.New(sketch.Config{Clock: r.clock, Slots: r.store.SlotOf})
	if cfg.OneIndex && first != nil {
		r.index = first.index
	}
	if cfg.OneCalibration && first != nil {
		r.cal = first.cal
	}
	if cfg.OneRatio && first != nil {
		r.ratios = first.ratios
	}
	r.lessons = node.NewLessons(r.store, r.cal, r.ratios, !cfg.NoSharing && !cfg.NoLessons)
	r.store.OnGone(func(slot state.Slot, id state.ReplicaID) {
		r.index.Forget(slot, id)
		r.cal.Forget(slot, id)
		r.observe.Forget(id)
	})
	for _, x := range c.listed {
		r.store.SlotOf(x.ID) // the same at every router, for those that share an index
	}
	r.store.SetReplicas(state.SourceStatic, Pool, c.listed)
	r.balance = balance.New(balance.Config{}, r.store, r.cal, log, nil)
	var sk routing.Sketch = r.index
	if cfg.Truth {
		sk = &trueSketch{c: c, index: r.index}
	}
	var rngMu sync.Mutex
	pick := cfg.Pick
	pick.Rand = func() uint64 {
		rngMu.Lock()
		defer rngMu.Unlock()
		return rng.Uint64()
	}
	r.picker = &picker{r: r, next: routing.NewPicker(pick, sk, r.cal)}
	var err error
	r.core, err = proxy.NewCore(proxy.CoreConfig{
		Store: r.store, Picker: r.picker, Ratios: r.ratios, Index: r.index,
		Calibration: taught{r.lessons, c.reference}, Counted: r.lessons.Counted, Reporter: node.Reporter(r.balance),
	}, nil)
	if err != nil {
		return nil, err
	}
	return r, r.newCluster(log)
}

func hostName(i int) string { return fmt.Sprintf("r%d", i) }

// newCluster makes mesh, gossip and the reader of engines.
func (r *Router) newCluster(log zerolog.Logger) error {
	cfg := &r.c.cfg
	members, err := r.host.Listen("tcp", clusterPort)
	if err != nil {
		return err
	}
	packets, err := r.host.ListenPacket("udp", clusterPort)
	if err != nil {
		return err
	}
	streams, err := r.host.Listen("tcp", ":7947")
	if err != nil {
		return err
	}
	ip := r.host.IP().String()
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return r.host.DialContext(ctx, "tcp", addr) }
	r.mesh, err = mesh.New(mesh.Config{
		Self: r.ID, Boot: r.clock.Boot(), Name: r.host.Name(), Cluster: "sim", Scheme: scheme,
		Listener: streams, Dial: dial, Log: log,
	})
	if err != nil {
		return err
	}
	r.timed = &timed{c: r.c, r: r}
	var store gossip.Store = timedStore{node.Shared(r.store, func(x state.Reading, now time.Time) { r.observe.Note(x, now) }), r.timed}
	var index gossip.Index = timedIndex{r.index, r.timed}
	var lessons gossip.Lessons = r.lessons
	mute, deaf := node.Mute(state.NewStore(state.Config{Self: r.ID, Clock: r.clock, Pools: []state.PoolSpec{r.c.spec}}))
	// What is shared outright is not gossiped.
	if cfg.NoSharing || cfg.OneStore {
		store = mute
	}
	if cfg.NoSharing || cfg.OneIndex {
		index = deaf
	}
	if cfg.NoSharing || cfg.NoLessons {
		lessons = nil
	}
	var join []string
	for j := range min(3, cfg.Routers) {
		if j != r.Index {
			join = append(join, r.c.net.Host(hostName(j)).IP().String()+clusterPort)
		}
	}
	r.gossip, err = gossip.New(gossip.Config{
		Self: r.ID, Name: r.host.Name(), Cluster: "sim", Scheme: scheme, Join: join,
		MeshAddr: ip + ":7947", APIAddr: ip + ":8080", Packets: packets, Listener: members,
		Advertise: ip + clusterPort, Dial: dial, Resolve: r.host.LookupHost, Log: log,
		RowsEvery: cfg.RowsEvery, OpsEvery: cfg.OpsEvery, Lessons: lessons,
	}, store, index, r.mesh)
	if err != nil {
		return err
	}
	r.gossip.Attach(r.mesh)
	r.observe = observe.New(observe.Config{Self: r.ID, Interval: cfg.ReadEvery}, r.store, r.c.reader, node.Caches(r.index, r.clock), r.publish, log)
	return nil
}

// run starts the router's loops, which end with ctx or by Cluster.Kill.
func (r *Router) run(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	var loops []func(context.Context) error
	if !r.alone() {
		loops = append(loops, r.mesh.Run, r.gossip.Run)
	}
	if r.store.Self() == r.ID { // else router 0 runs these
		loops = append(loops, r.observe.Run, r.balance.Run)
	}
	if !r.c.cfg.OneIndex || r.Index == 0 {
		loops = append(loops, r.keepSketch)
	}
	for _, f := range loops {
		r.wg.Go(func() { _ = f(ctx) })
	}
}

// sketchEvery is how often the index is swept and saved, as in cmd/node.
const sketchEvery = 30 * time.Second

func (r *Router) keepSketch(ctx context.Context) error {
	tick := time.NewTicker(sketchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			r.index.Sweep(now)
			if !r.c.cfg.KeepDisk {
				continue
			}
			var b bytes.Buffer
			if err := r.index.Save(&b); err != nil {
				return fmt.Errorf("save sketch: %w", err)
			}
			r.diskMu.Lock()
			r.disk = b.Bytes()
			r.diskMu.Unlock()
		}
	}
}

// loadDisk reads a saved sketch, if there is one.
func (r *Router) loadDisk(disk []byte) error {
	if len(disk) == 0 {
		return nil
	}
	return r.index.Load(bytes.NewReader(disk))
}

// alone says that nothing is gossiped, because sharing is off or because all is
// shared outright: membership would be a waste of time.
func (r *Router) alone() bool {
	cfg := &r.c.cfg
	return cfg.NoSharing || cfg.OneStore && cfg.OneIndex && cfg.NoLessons
}

// warm reports whether its first snapshot came, or need not be waited for.
func (r *Router) warm() bool {
	if r.alone() {
		return true
	}
	select {
	case <-r.gossip.Ready():
		return true
	default:
		return false
	}
}

func (r *Router) publish(x state.Reading) {
	if !r.c.cfg.NoSharing {
		r.gossip.PublishReading(x)
	}
}

// taught also shows every router's samples to the cluster's reference.
type taught struct {
	*node.Lessons
	reference *routing.Calibration
}

func (t taught) Observe(s routing.Sample) bool {
	t.reference.Observe(s)
	return t.Lessons.Observe(s)
}
