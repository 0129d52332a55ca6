package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
)

// discoveries are what finds replicas, for the pools that ask for it. A reload changes
// them while they run.
type discoveries struct {
	metrics *discovery.Metrics
	changed chan struct{} // capacity 1: there are some to start

	mu sync.Mutex
	of map[string]*finder // guarded by mu; by pool
}

// finder finds the replicas of one pool.
type finder struct {
	pool   *discovery.Pool
	by     findBy
	cancel context.CancelFunc // guarded by discoveries.mu; nil: not started yet
}

// findBy is what of a pool's configuration its finder was made of.
type findBy struct {
	Discover DiscoverConfig
	Deadline time.Duration
	Engine   string
}

// foundBy is a finder to be: its sources are made before anything is changed, since
// they may have faults.
type foundBy struct {
	name    string
	by      findBy
	keep    bool // as it is
	sources []discovery.Source
	allow   discovery.Allow
}

func newDiscoveries(m *discovery.Metrics) *discoveries {
	return &discoveries{metrics: m, changed: make(chan struct{}, 1), of: map[string]*finder{}}
}

// list is what finds replicas now, in the pools' name order.
func (d *discoveries) list() (pools []*discovery.Pool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.of {
		pools = append(pools, f.pool)
	}
	slices.SortFunc(pools, func(a, b *discovery.Pool) int { return cmp.Compare(a.Name(), b.Name()) })
	return pools
}

// by is what a pool's finder was made of.
func (d *discoveries) by(pool string) (by findBy, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.of[pool]; f != nil {
		return f.by, true
	}
	return by, false
}

// Run runs them until ctx ends, or one of them ends by itself.
func (d *discoveries) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		faults  []error // guarded by mu
	)
	start := func(f *finder) {
		own, stop := context.WithCancel(ctx)
		f.cancel = stop
		running.Go(func() {
			err := f.pool.Run(own)
			mu.Lock()
			faults = append(faults, err)
			mu.Unlock()
			if own.Err() == nil {
				cancel()
			}
		})
	}
	for ctx.Err() == nil {
		d.mu.Lock()
		for _, f := range d.of {
			if f.cancel == nil {
				start(f)
			}
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-d.changed:
		}
	}
	running.Wait()
	return errors.Join(faults...)
}

// newDiscovery makes what finds replicas at the start.
func (n *Node) newDiscovery() error {
	n.discover = newDiscoveries(discovery.NewMetrics(n.reg))
	plan, err := n.planDiscovery(&n.cfg)
	if err != nil {
		return err
	}
	n.discoverBy(plan)
	return nil
}

// planDiscovery makes what a configuration's finders need, and changes nothing.
func (n *Node) planDiscovery(c *Config) (plan []foundBy, err error) {
	for i := range c.Pools {
		p := &c.Pools[i]
		f := foundBy{name: p.Name, by: findBy{p.Discover, p.Drain.Deadline, p.Engine}}
		was, ok := n.discover.by(p.Name)
		if !ok && !p.Discover.any() {
			continue // one that is to find nothing any more stays, for the replicas that drain
		}
		if f.keep = ok && reflect.DeepEqual(was, f.by); !f.keep {
			if f.allow, err = discovery.ParseAllow(p.Discover.Allow); err != nil {
				return nil, fmt.Errorf("pools.%s.discover.allow: %w", p.Name, err)
			}
			if f.sources, err = n.sources(&p.Discover); err != nil {
				return nil, fmt.Errorf("pools.%s.discover: %w", p.Name, err)
			}
		}
		plan = append(plan, f)
	}
	return plan, nil
}

// discoverBy has replicas found by a plan from now on. A pool whose discovery changed
// keeps its replicas until the new one knows better.
func (n *Node) discoverBy(plan []foundBy) {
	d := n.discover
	d.mu.Lock()
	defer d.mu.Unlock()
	next := map[string]*finder{}
	for _, p := range plan {
		was := d.of[p.name]
		if p.keep {
			was.pool.Recheck() // other pools may have other replicas
			next[p.name] = was
			continue
		}
		f := &finder{pool: n.finder(&p), by: p.by}
		if was != nil {
			f.pool.Succeed(was.pool)
			was.stop()
		}
		next[p.name] = f
	}
	for name, f := range d.of {
		if next[name] == nil {
			f.pool.End()
			f.stop()
			n.store.SetReplicas(state.SourceDiscovery, name, nil)
		}
	}
	d.of = next
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (f *finder) stop() {
	if f.cancel != nil {
		f.cancel()
	}
}

// finder makes what finds the replicas of a pool, and starts nothing.
func (n *Node) finder(p *foundBy) *discovery.Pool {
	return discovery.New(discovery.Config{
		Name: p.name, Engine: state.EngineKind(p.by.Engine), Sources: p.sources, Allow: p.allow,
		Grace: p.by.Discover.Grace, Keep: p.by.Discover.Keep, Deadline: p.by.Deadline,
		Apply:  func(list []state.Replica) { n.store.SetReplicas(state.SourceDiscovery, p.name, list) },
		Others: func() map[string]string { return n.ofOthers(p.name) },
		Busy:   n.busy, Log: n.log, Metrics: n.discover.metrics,
	})
}

// ofOthers are the replicas that a pool may not find, by address and by id: those that
// the configuration lists for another one, that operators added to another one, and
// that one finds which is earlier in name order. All routers come to the same.
func (n *Node) ofOthers(pool string) map[string]string {
	out := map[string]string{}
	for _, p := range n.store.View().Pools {
		for _, r := range p.Replicas {
			found := r.Source == state.SourceDiscovery && r.Leaving != state.ListedNoMore && r.Pool < pool
			if r.Pool != pool && (found || r.Source == state.SourceCommitted) {
				out[state.Authority(r.URL)], out[string(r.Process())] = r.Pool, r.Pool
			}
		}
	}
	for i, pools := 0, n.now().Pools; i < len(pools); i++ {
		if pools[i].Name == pool {
			continue
		}
		for _, r := range pools[i].Replicas {
			if u, err := NormalURL(r.URL); err == nil {
				out[state.Authority(u)] = pools[i].Name
			}
		}
	}
	return out
}
