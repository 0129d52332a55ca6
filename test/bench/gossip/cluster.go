package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/cluster/observe"
	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

type cluster struct {
	routers []*router
	byID    map[state.RouterID]*router
	clocks  map[state.BootID]*state.Clock
	engines *engines
}

// router is one, but for its proxy, its Raft and its balance loop.
type router struct {
	id       state.RouterID
	addr     string // of membership
	clock    *state.Clock
	store    *state.Store
	shared   gossip.Store // the store as gossip writes it
	index    *sketch.Index
	lessons  *node.Lessons
	mesh     *mesh.Mesh
	frames   *frames
	gossip   *gossip.Gossip
	observe  *observe.Loop
	engines  *engines
	reg      *prometheus.Registry
	requests atomic.Int64 // begun

	members, packets, streams counter // of the network

	watched bool // delays are measured
	history history
	delays  delays
}

// start makes one router of a cell, which does nothing yet.
func (c *cell) start(cl *cluster, network network, i int, join []string) (*router, error) {
	id := state.RouterID(fmt.Sprintf("router-%03d-0123", i))
	r := &router{id: id, reg: prometheus.NewRegistry(), engines: cl.engines, watched: !c.plain}
	h := network(string(id))
	members, streams, packets, err := h.listen()
	if err != nil {
		return nil, err
	}
	r.addr = members.Addr().String()
	boot := state.BootID(i+1) << 40
	r.clock = state.NewClock(boot, time.Now())
	r.store = state.NewStore(state.Config{Self: id, Clock: r.clock, Pools: []state.PoolSpec{{Name: pool, Model: model}}})
	list := make([]state.Replica, c.Replicas)
	for k := range list {
		list[k] = state.Replica{ID: replica(k), URL: string(replica(k))}
	}
	r.store.SetReplicas(state.SourceStatic, pool, list)
	r.index = sketch.New(sketch.Config{Clock: r.clock, Slots: r.store.SlotOf})
	r.lessons = node.NewLessons(r.store, routing.NewCalibration(), prefix.NewRatios(1024), true)
	secret := [][]byte{[]byte("0123456789abcdef0123456789abcdef")}
	r.mesh, err = mesh.New(mesh.Config{
		Self: id, Boot: boot, Cluster: "bench", Scheme: "1", Secret: secret,
		Listener: countedListener{streams, &r.streams}, Dial: r.streams.dial(h.dial),
		Log: zerolog.Nop(), Registerer: r.reg,
	})
	if err != nil {
		return nil, err
	}
	r.frames = &frames{Mesh: r.mesh}
	r.observe = observe.New(observe.Config{Self: id}, r.store, cl.engines, node.Caches(r.index, r.clock),
		func(x state.Reading) { r.gossip.PublishReading(x) }, zerolog.Nop())
	cl.clocks[boot], cl.byID[id] = r.clock, r
	cl.routers = append(cl.routers, r)
	r.shared = node.Shared(r.store, r.observe.Note)
	store := r.shared
	var index gossip.Index = r.index
	if c.told != nil {
		store, index = toldStore{store, c.told}, toldIndex{index, c.told}
	}
	if r.watched {
		store = &watchedStore{Store: store, c: cl, d: &r.delays, seen: map[state.RouterID]map[state.ReplicaID]int{}}
		index = &watchedIndex{Index: index, c: cl, d: &r.delays}
	}
	r.gossip, err = gossip.New(gossip.Config{
		Self: id, Cluster: "bench", Scheme: "1", Secret: secret, MeshAddr: streams.Addr().String(), APIAddr: ":8080",
		Packets: countedPackets{packets, &r.packets}, Listener: countedListener{members, &r.members},
		Dial: r.members.dial(h.dial), Join: join, AllPairs: c.AllPairs, Lessons: r.lessons,
		Log: zerolog.Nop(), Registerer: r.reg,
	}, store, index, r.frames)
	if err != nil {
		return nil, err
	}
	r.gossip.Attach(r.mesh)
	return r, nil
}

// The two below say when something came of another router.

type toldStore struct {
	gossip.Store
	told chan struct{}
}

func (s toldStore) ApplyReading(x state.Reading) bool {
	news := s.Store.ApplyReading(x)
	if news {
		s.told <- struct{}{}
	}
	return news
}

type toldIndex struct {
	gossip.Index
	told chan struct{}
}

func (x toldIndex) Apply(op sketch.Op, now time.Time) bool {
	news := x.Index.Apply(op, now)
	if news && op.Kind != sketch.OpEvidence && op.Kind != sketch.OpDead {
		x.told <- struct{}{}
	}
	return news
}

func replica(i int) state.ReplicaID {
	return state.ReplicaID(fmt.Sprintf("http://10.1.%d.%d:8000", i/250, i%250))
}

// run starts the cluster, lets it settle under its load, and measures.
func (c *cell) run(network network) (f figures, err error) {
	err = c.with(network, func(ctx context.Context, cl *cluster) error {
		time.Sleep(heard)
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(ctx)
		defer func() { cancel(); wg.Wait() }()
		for _, r := range cl.routers {
			wg.Go(func() { _ = r.observe.Run(ctx) })
			wg.Go(func() { r.drive(ctx, c) })
		}
		time.Sleep(settle)
		f = c.observe(cl)
		return nil
	})
	return f, err
}

// with calls use while the cluster runs, from when all know each other.
func (c *cell) with(network network, use func(context.Context, *cluster) error) error {
	cl := &cluster{byID: map[state.RouterID]*router{}, clocks: map[state.BootID]*state.Clock{}, engines: newEngines(c.Replicas)}
	// Where news is passed on, an engine's start is told for ever: every passing on moves
	// it by the delay of a link, which makes it news again.
	cl.engines.ageless = c.AllPairs > 0 && c.AllPairs < c.Routers
	var join []string
	for i := range c.Routers { // all are known before any runs
		r, err := c.start(cl, network, i, join)
		if err != nil {
			return err
		}
		if len(join) < 3 {
			join = append(join, r.addr)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	broken := make(chan error, c.Routers)
	for _, r := range cl.routers {
		wg.Go(func() { _ = r.mesh.Run(ctx) })
		wg.Go(func() {
			if err := r.gossip.Run(ctx); err != nil {
				broken <- err
			}
		})
	}
	for began := time.Now(); !cl.whole(); {
		select {
		case err := <-broken:
			return err
		default:
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("no group within a minute")
		}
		time.Sleep(100 * time.Millisecond)
	}
	return use(ctx, cl)
}

const (
	heard  = 2 * time.Second         // until all have told whom they hear
	settle = 3500 * time.Millisecond // longer than any request lasts
)

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
