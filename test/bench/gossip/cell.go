package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// cell is one size of cluster.
type cell struct {
	options
	Routers, Replicas int
	Rate              float64
}

type cluster struct {
	routers []*router
	byID    map[state.RouterID]*router
	clocks  map[state.BootID]*state.Clock
}

type router struct {
	id      state.RouterID
	host    host
	addr    string // of membership
	clock   *state.Clock
	store   *state.Store
	index   *sketch.Index
	mesh    *mesh.Mesh
	gossip  *gossip.Gossip
	reg     *prometheus.Registry
	history history
	delays  delays
}

const answerAfter, endAfter = 200 * time.Millisecond, 600 * time.Millisecond

func (c *cell) start(cl *cluster, network network, i int, join []string) (*router, error) {
	id := state.RouterID(fmt.Sprintf("router-%03d-0123", i))
	r := &router{id: id, host: network(string(id)), reg: prometheus.NewRegistry()}
	members, streams, packets, err := r.host.listen()
	if err != nil {
		return nil, err
	}
	r.addr = members.Addr().String()
	boot := state.BootID(i+1) << 40
	r.clock = state.NewClock(boot, time.Now())
	r.store = state.NewStore(state.Config{Self: id, Clock: r.clock, Pools: []state.PoolSpec{{Name: "p", Model: "m"}}})
	list := make([]state.Replica, c.Replicas)
	for k := range list {
		list[k] = state.Replica{ID: replica(k), URL: string(replica(k))}
	}
	r.store.SetReplicas(state.SourceStatic, "p", list)
	r.index = sketch.New(sketch.Config{Clock: r.clock, Slots: r.store.SlotOf})
	secret := [][]byte{[]byte("0123456789abcdef0123456789abcdef")}
	r.mesh, err = mesh.New(mesh.Config{
		Self: id, Boot: boot, Cluster: "bench", Scheme: "1", Secret: secret, Listener: streams, Dial: r.host.dial,
		Log: zerolog.Nop(), Registerer: r.reg,
	})
	if err != nil {
		return nil, err
	}
	cl.clocks[boot], cl.byID[id] = r.clock, r
	cl.routers = append(cl.routers, r)
	r.gossip, err = gossip.New(gossip.Config{
		Self: id, Cluster: "bench", Scheme: "1", Secret: secret, MeshAddr: streams.Addr().String(), APIAddr: ":8080",
		Packets: packets, Listener: members, Dial: r.host.dial, Join: join, AllPairs: c.allPairs,
		Log: zerolog.Nop(), Registerer: r.reg,
	}, &watchedStore{Store: r.store, c: cl, d: &r.delays, seen: map[state.RouterID]map[state.ReplicaID]int{}},
		&watchedIndex{Index: r.index, c: cl, d: &r.delays}, r.mesh)
	if err != nil {
		return nil, err
	}
	r.gossip.Attach(r.mesh)
	return r, nil
}

func replica(i int) state.ReplicaID {
	return state.ReplicaID(fmt.Sprintf("http://10.1.%d.%d:8000", i/250, i%250))
}

// run starts the cluster, lets it settle, and measures.
func (c *cell) run(network network) (figures, error) {
	cl := &cluster{byID: map[state.RouterID]*router{}, clocks: map[state.BootID]*state.Clock{}}
	var join []string
	for i := range c.Routers { // all are known before any runs
		r, err := c.start(cl, network, i, join)
		if err != nil {
			return figures{}, err
		}
		if len(join) < 3 {
			join = append(join, r.addr)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	var failed error
	for _, r := range cl.routers {
		wg.Go(func() { _ = r.mesh.Run(ctx) })
		wg.Go(func() {
			if err := r.gossip.Run(ctx); err != nil {
				failed = err
			}
		})
	}
	for began := time.Now(); !cl.whole(); {
		if time.Since(began) > time.Minute {
			return figures{}, fmt.Errorf("no group within a minute (%v)", failed)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, r := range cl.routers {
		wg.Go(func() { r.drive(ctx, c) })
	}
	time.Sleep(4 * time.Second)
	return c.observe(cl), nil
}

// whole says that every router has all as members and the streams it wants.
func (cl *cluster) whole() bool {
	for _, r := range cl.routers {
		list := r.gossip.Members()
		if len(list) != len(cl.routers) {
			return false
		}
		streams := 0
		for _, m := range list {
			if m.Degraded != "" || m.State != gossip.Alive {
				return false
			}
			if m.Stream {
				streams++
			}
		}
		if streams < min(len(list)-1, 4) {
			return false
		}
	}
	return true
}

// drive sends requests at a steady rate with jitter.
func (r *router) drive(ctx context.Context, c *cell) {
	if c.Rate <= 0 {
		return
	}
	rng := rand.New(rand.NewPCG(uint64(r.clock.Boot()), 1))
	hash := uint64(r.clock.Boot())
	for {
		wait := time.Duration(rng.ExpFloat64() / c.Rate * float64(time.Second))
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		r.request(rng.IntN(c.Replicas), 1000+rng.IntN(1<<16), &hash, c.links)
	}
}

// request is one request's course.
func (r *router) request(i, uncached int, hash *uint64, links int) {
	id := replica(i)
	marks, tokens := make([]prefix.Mark, 0, links), make([]int32, 0, links)
	for k := range links {
		*hash++
		marks = append(marks, prefix.Mark{Hash: *hash * 0x9e3779b97f4a7c15, ASCII: uint32(k+1) * 1200})
		tokens = append(tokens, int32(k+1)*300)
	}
	rv := r.store.View().Replica(id)
	note := func() { r.history.note(id, rv.Cell.Load(), time.Now()) }
	ticket := r.store.Begin(rv, uncached)
	note()
	place := r.index.Place(id, marks, tokens, time.Now())
	time.AfterFunc(answerAfter, func() {
		ticket.FirstToken()
		note()
		place.First(time.Now())
	})
	time.AfterFunc(endAfter, func() {
		ticket.End()
		note()
		place.Evidence(0, 300*links, 0)
		place.End(time.Now())
	})
}

// observe measures over the span.
func (c *cell) observe(cl *cluster) figures {
	type count struct{ out, in int64 }
	before := make([]count, len(cl.routers))
	for i, r := range cl.routers {
		before[i].out, before[i].in = r.host.traffic()
		r.delays.mu.Lock()
		r.delays.on = true
		r.delays.mu.Unlock()
	}
	dropped := drops(cl)
	cpu := processTime()
	time.Sleep(c.span)
	cpu = processTime() - cpu
	f := figures{
		Routers: c.Routers, Replicas: c.Replicas, Rate: c.Rate, Links: c.links, Real: c.real,
		Dropped: drops(cl) - dropped, CPU: cpu.Seconds() / c.span.Seconds() / float64(c.Routers),
	}
	var rows, ops []time.Duration
	seconds, n := c.span.Seconds(), float64(c.Routers)
	for i, r := range cl.routers {
		out, in := r.host.traffic()
		o := float64(out-before[i].out) / seconds
		f.Out += o / n
		f.In += float64(in-before[i].in) / seconds / n
		f.MostOut = max(f.MostOut, o)
		r.delays.mu.Lock()
		rows, ops = append(rows, r.delays.rows...), append(ops, r.delays.ops...)
		r.delays.mu.Unlock()
		loaded := 0
		for _, row := range r.store.OwnRows(nil) {
			if row.InFlight > 0 {
				loaded++
			}
		}
		f.Loaded += float64(loaded) / n
		for _, m := range r.gossip.Members() {
			if m.Stream {
				f.Streams += 1 / n
			}
		}
	}
	f.Predicted = gossip.Traffic(gossip.Size{
		Routers: c.Routers, AllPairs: c.allPairs, Rate: c.Rate, Links: float64(c.links), Loaded: f.Loaded,
	})
	f.RowsP50, f.RowsP99 = quantiles(rows)
	f.OpsP50, f.OpsP99 = quantiles(ops)
	f.Samples = len(rows) + len(ops)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.HeapMB = float64(m.HeapInuse) / 1e6 / n
	return f
}

// drops sums what was given up.
func drops(cl *cluster) (sum float64) {
	for _, r := range cl.routers {
		families, err := r.reg.Gather()
		if err != nil {
			continue
		}
		for _, f := range families {
			if n := f.GetName(); n != "hearsay_gossip_dropped_total" && n != "hearsay_mesh_dropped_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// processTime is what this process has used of processors.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// figures of one cell; bytes and CPU per router and second.
type figures struct {
	Routers, Replicas int
	Rate              float64
	Links             int
	Real              bool
	Streams           float64
	Loaded            float64 // replicas a router has load at
	Out, In, MostOut  float64
	Predicted         float64
	RowsP50, RowsP99  float64 // ms
	OpsP50, OpsP99    float64 // ms
	Dropped           float64
	CPU               float64 // seconds; in virtual time of the network, too
	HeapMB            float64
	Samples           int
}

const header = "routers replicas  req/s streams |  out kB/s   in kB/s  most out predicted ratio   | rows p50    p99 | ops p50    p99 ms | drops   cpu s  heap MB"

func (f figures) String() string {
	return fmt.Sprintf("%7d %8d %6.1f %7.1f | %9.2f %9.2f %9.2f %9.2f %9.2f | %8.1f %6.1f | %7.1f %6.1f    | %5.0f %7.4f %8.2f",
		f.Routers, f.Replicas, f.Rate, f.Streams, f.Out/1e3, f.In/1e3, f.MostOut/1e3, f.Predicted/1e3, f.Out/f.Predicted,
		f.RowsP50, f.RowsP99, f.OpsP50, f.OpsP99, f.Dropped, f.CPU, f.HeapMB)
}
