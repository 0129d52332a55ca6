package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Cluster is routers and replicas in one bubble. Its methods are for the goroutines
// of the bubble.
type Cluster struct {
	cfg      Config
	net      *simnet.Net
	spec     state.PoolSpec
	listed   []state.Replica
	reader   engines
	Replicas []*Replica
	work     *Workload

	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.RWMutex
	routers []*Router // guarded by mu; nil where one is down
	boots   map[state.BootID]*Router
	all     []*Router // guarded by mu; every start
	starts  []int     // guarded by mu; by router

	reference *routing.Calibration    // learns from every router's samples; no pick goes by it
	places    map[state.ReplicaID]int // index in Replicas
	truthMu   sync.Mutex              // held over a pick by truth
	truthItem int                     // guarded by truthMu
	probeMu   sync.Mutex              // one probe at a time

	Records []Record // by request
	Probes  []Probe  // guarded by probeMu until Run has returned
	began   time.Time
	onDue   func(i int)      // called when a request is due, if set
	target  func() int       // where all requests go; -1: as drawn
	idle    []simnet.Traffic // of every router when the replay began
	loads   loads            // of the replicas, if sampled
}

// NewCluster starts routers and replicas and waits until every router knows every
// other and has read every replica.
func NewCluster(ctx context.Context, cfg Config, w *Workload) (*Cluster, error) {
	cfg.setDefaults()
	timing, err := enginesim.NewTiming(cfg.Profile)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		cfg: cfg, net: simnet.New(int64(cfg.Seed)), work: w,
		spec:  state.PoolSpec{Name: Pool, Model: Model, Policy: cfg.Policy, Engine: state.EngineVLLM},
		boots: map[state.BootID]*Router{}, starts: make([]int, cfg.Routers),
		places: map[state.ReplicaID]int{}, reference: routing.NewCalibration(),
	}
	if w != nil {
		c.Records = make([]Record, len(w.Items))
	}
	c.net.SetDefault(cfg.Link)
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.reader = engines{byID: map[state.ReplicaID]*Replica{}, cfg: &c.cfg}
	for i := range cfg.Replicas {
		r := NewReplica(state.ReplicaID(fmt.Sprintf("http://e%d:8000", i)), timing, cfg.KVTokens, cfg.BatchTokens, cfg.Speed)
		if i == 0 && cfg.SlowFirst > 0 {
			r.SetFactor(cfg.SlowFirst)
		}
		c.Replicas = append(c.Replicas, r)
		c.places[r.ID] = i
		c.reader.byID[r.ID] = r
		c.listed = append(c.listed, state.Replica{ID: r.ID, Pool: Pool, URL: string(r.ID), Role: state.RoleBoth, Engine: state.EngineVLLM})
	}
	for i := range cfg.Routers {
		c.net.Host(hostName(i)) // addresses first: routers join by them
	}
	c.routers = make([]*Router, cfg.Routers)
	for i := range cfg.Routers - cfg.Late {
		if err := c.Start(i, nil); err != nil {
			return nil, err
		}
	}
	return c, c.waitReady(time.Minute)
}

// first is router 0, nil before there is one.
func (c *Cluster) first() *Router {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.routers[0]
}

// Start starts router i, with a saved sketch unless that is empty. It is warm
// later: see Router.warm.
func (c *Cluster) Start(i int, disk []byte) error {
	c.mu.Lock()
	c.starts[i]++
	boot := c.starts[i]
	c.mu.Unlock()
	r, err := newRouter(c, i, boot, zerolog.Nop())
	if err != nil {
		return fmt.Errorf("router %d: %w", i, err)
	}
	if err := r.loadDisk(disk); err != nil {
		return fmt.Errorf("router %d: %w", i, err)
	}
	c.mu.Lock()
	c.routers[i] = r
	c.boots[r.clock.Boot()] = r
	c.all = append(c.all, r)
	c.mu.Unlock()
	r.run(c.ctx)
	return nil
}

// Kill ends router i as kill -9 does: nothing of it reaches the others any more.
// It returns the sketch as last saved.
func (c *Cluster) Kill(i int) (disk []byte) {
	c.mu.Lock()
	r := c.routers[i]
	c.routers[i] = nil
	c.mu.Unlock()
	r.host.Crash()
	r.cancel()
	r.wg.Wait()
	r.host.Restart()
	r.diskMu.Lock()
	defer r.diskMu.Unlock()
	return r.disk
}

// Router is router i, nil while it is down.
func (c *Cluster) Router(i int) *Router {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.routers[i]
}

func (c *Cluster) alive() (list []*Router) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, r := range c.routers {
		if r != nil {
			list = append(list, r)
		}
	}
	return list
}

func (c *Cluster) byBoot(b state.BootID) *Router {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.boots[b]
}

func (c *Cluster) waitReady(bound time.Duration) error {
	deadline := time.Now().Add(bound)
	for {
		err := c.unready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cluster is not ready after %v: %w", bound, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *Cluster) unready() error {
	now := time.Now()
	want := len(c.alive()) - 1
	for _, r := range c.alive() {
		v := r.store.View()
		if !r.warm() {
			return fmt.Errorf("router %d waits for a snapshot", r.Index)
		}
		if n := len(v.Routers); n != want && !c.cfg.NoSharing && !c.cfg.OneStore {
			return fmt.Errorf("router %d knows %d others", r.Index, n)
		}
		for _, p := range v.Pools {
			for _, x := range p.Replicas {
				if !x.Fresh(now) {
					return fmt.Errorf("router %d has no reading of %s", r.Index, x.ID)
				}
			}
		}
	}
	return nil
}

// Close stops routers and replicas and waits for what is on its way.
func (c *Cluster) Close() {
	c.cancel()
	for _, r := range c.all {
		r.wg.Wait()
	}
	for _, r := range c.Replicas {
		r.Stop()
	}
	time.Sleep(30 * time.Second) // membership probes under way run out
}

// Run replays the workload, each request to a router drawn at random, and waits
// for the last answer.
func (c *Cluster) Run() {
	rng := rand.New(rand.NewPCG(c.cfg.Seed, 0x726f75746572))
	start := time.Now()
	c.began, c.idle = start, c.traffic()
	ended := make([]chan struct{}, len(c.work.Items))
	for i := range ended {
		ended[i] = make(chan struct{})
	}
	if c.cfg.Loads {
		defer c.sampleLoads()()
	}
	var wg sync.WaitGroup
	for i, it := range c.work.Items {
		time.Sleep(time.Until(start.Add(c.due(i))))
		router := rng.IntN(c.cfg.Routers)
		if c.cfg.InTurn {
			router = i % c.cfg.Routers
		}
		if c.onDue != nil {
			c.onDue(i)
		}
		wg.Go(func() {
			defer close(ended[i])
			if it.Prev >= 0 {
				<-ended[it.Prev] // nobody replies to an answer that has not come
			}
			if c.cfg.Probe > 0 && i >= c.work.Warmup && i%c.cfg.Probe == 0 {
				c.probe(i)
			}
			c.request(i, c.route(router), start)
		})
	}
	wg.Wait()
}

// due is when request i is sent, after the start.
func (c *Cluster) due(i int) time.Duration {
	at, warm := c.work.Items[i].At, time.Duration(0)
	if c.work.OwnWarmup {
		if i < c.work.Warmup {
			return at
		}
		warm = c.work.Items[c.work.Warmup-1].At
	}
	return warm + time.Duration(float64(at-warm)/c.cfg.Rate)
}

// route is the router a client finds that drew one: the next that takes requests.
func (c *Cluster) route(drawn int) int {
	if c.target != nil {
		if i := c.target(); i >= 0 {
			return i
		}
	}
	for k := range c.cfg.Routers {
		i := (drawn + k) % c.cfg.Routers
		if r := c.Router(i); r != nil && r.warm() {
			return i
		}
	}
	return drawn
}

// traffic is what every router's host has sent and received.
func (c *Cluster) traffic() (list []simnet.Traffic) {
	for i := range c.cfg.Routers {
		list = append(list, c.net.Host(hostName(i)).Traffic())
	}
	return list
}

// bySlot finds a replica by its slot, which is the same at every router.
func (c *Cluster) bySlot(slot state.Slot) int {
	for _, r := range c.first().store.View().Pools[0].Replicas {
		if r.Slot == slot {
			return c.places[r.ID]
		}
	}
	return -1
}
