package harness

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Model is the model's name that clients of a Bubble use, and its pool's.
const (
	Model = "sim-70b"
	Pool  = "chat"
)

// BubbleConfig says what cluster to run. The zero value is one router and one
// engine without delay.
type BubbleConfig struct {
	Routers int // default 1
	Engines int // default 1
	// Engine is what every engine is; the zero value is enginesim.DefaultConfig
	// with bodies kept in the record.
	Engine enginesim.Config
	// EachEngine changes one engine's configuration, from 0.
	EachEngine func(i int, c *enginesim.Config)
	Policy     string // default ttft
	NoSharing  bool   // routers tell each other nothing of load and prefixes
	// PoolFile and RouterFile change what a router's file says, before its defaults are filled in.
	PoolFile   func(p *node.PoolConfig)
	RouterFile func(i int, c *node.Config)

	Delay, Jitter time.Duration // of every link, one way
	Loss          float64       // share of datagrams lost on every link
	Seed          int64         // of the network's chances; default 1
}

// Bubble is a whole cluster in one testing/synctest bubble: real routers, simulated
// engines, and a client, over one simulated network. Hosts are named r0, r1, ...,
// e0, e1, ... and client. Its methods are for the goroutines of the bubble; those
// that take *testing.T's word for failure end the test.
type Bubble struct {
	T   testing.TB
	Net *simnet.Net

	cfg     BubbleConfig
	dir     string
	routers []*Router
	engines []*Engine
	spawned int // copies of data directories made
}

// InBubble runs a cluster in a bubble of its own and hands it to f once every
// router is ready. Everything is stopped when f returns.
func InBubble(t *testing.T, cfg BubbleConfig, f func(t *testing.T, b *Bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t, cfg)
		b.WaitReady()
		f(t, b)
	})
}

// NewBubble starts a cluster in the calling goroutine's bubble. It is stopped, and
// checked to have left nothing running, when the test ends.
func NewBubble(t testing.TB, cfg BubbleConfig) *Bubble {
	t.Helper()
	cfg.Routers, cfg.Engines = max(1, cfg.Routers), max(1, cfg.Engines)
	if cfg.Engine.Kind == "" {
		cfg.Engine = enginesim.DefaultConfig()
		cfg.Engine.KeepBodies = true
	}
	cfg.Engine.Model = Model
	if cfg.Policy == "" {
		cfg.Policy = "ttft"
	}
	if cfg.Seed == 0 {
		cfg.Seed = 1
	}
	b := &Bubble{T: t, Net: simnet.New(cfg.Seed), cfg: cfg, dir: t.TempDir()}
	b.Net.SetDefault(simnet.Link{Delay: cfg.Delay, Jitter: cfg.Jitter, Loss: cfg.Loss})
	t.Cleanup(b.close)
	for i := range cfg.Engines {
		b.addEngine(i)
	}
	for i := range cfg.Routers {
		b.Net.Host(routerName(i)) // addresses first: every router's file names them
	}
	for range cfg.Routers {
		b.AddRouter()
	}
	return b
}

// close stops routers, then engines, and waits until what libraries left behind
// has run out: membership probes, idle workers.
func (b *Bubble) close() {
	b.Net.HealAll()
	if b.T.Failed() {
		for _, r := range b.routers {
			b.T.Logf("log of %s:\n%s", r.Name, r.Log())
		}
	}
	for _, r := range b.routers {
		if r.now != nil {
			r.now.cancel()
		}
	}
	for _, r := range b.routers {
		for _, boot := range r.boots {
			if err := boot.wait(2 * time.Minute); err != nil && !boot.dead.Load() {
				b.T.Errorf("%s: %v", r.Name, err)
			}
		}
	}
	for _, e := range b.engines {
		e.stop()
	}
	time.Sleep(30 * time.Second)
}

// Routers are all routers, dead ones included. Router i is Routers()[i].
func (b *Bubble) Routers() []*Router { return b.routers }

// Router is one router, from 0.
func (b *Bubble) Router(i int) *Router { return b.routers[i] }

// Engines are all engines.
func (b *Bubble) Engines() []*Engine { return b.engines }

// Engine is one engine, from 0.
func (b *Bubble) Engine(i int) *Engine { return b.engines[i] }

// Alive are the routers that run.
func (b *Bubble) Alive() (list []*Router) {
	for _, r := range b.routers {
		if r.now != nil {
			list = append(list, r)
		}
	}
	return list
}

// WaitReady waits until every running router is ready and has fresh readings of
// every engine, and all of them are members of each other, for at most 30 s. What is not
// so is told of the first router that it is found at: to look at the members of many
// routers takes long.
func (b *Bubble) WaitReady() {
	b.T.Helper()
	alive := b.Alive()
	at := 0 // alive[:at] were found to be ready
	b.within(30*time.Second, 20*time.Millisecond, "every router ready", func() error {
		for ; at < len(alive); at++ {
			if err := alive[at].unready(len(alive)); err != nil {
				return err
			}
		}
		for at = 0; at < len(alive); at++ { // they still are
			if err := alive[at].unready(len(alive)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Within waits until check has nothing to object and returns how long that took, to a
// thousandth of d, and to a millisecond at best. The test ends if it still objects
// after d.
func (b *Bubble) Within(d time.Duration, what string, check func() error) time.Duration {
	b.T.Helper()
	return b.within(d, max(time.Millisecond, d/1000), what, check)
}

func (b *Bubble) within(d, every time.Duration, what string, check func() error) time.Duration {
	b.T.Helper()
	began := time.Now()
	for {
		err := check()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) >= d {
			b.T.Fatalf("%s: not within %v: %v", what, d, err)
		}
		time.Sleep(every)
	}
}

// Settle lets so much time pass, then whatever is under way come to rest.
func (b *Bubble) Settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Idle waits until no running router knows of a request in flight anywhere, nor
// any engine has one, for at most d.
func (b *Bubble) Idle(d time.Duration) time.Duration {
	b.T.Helper()
	return b.Within(d, "nothing in flight", func() error {
		var errs []error
		for _, r := range b.Alive() {
			for _, e := range b.engines {
				if n := r.Replica(e.ID).Load().InFlight; n != 0 {
					errs = append(errs, fmt.Errorf("%s counts %d in flight at %s", r.Name, n, e.ID))
				}
			}
		}
		for _, e := range b.engines {
			if l := e.Load(); l.Running+l.Waiting != 0 {
				errs = append(errs, fmt.Errorf("%s runs %d and holds %d", e.ID, l.Running, l.Waiting))
			}
		}
		return errors.Join(errs...)
	})
}

// Cut stops everything between two hosts, both ways; Heal undoes it.
func (b *Bubble) Cut(a, z string) { b.Net.Cut(a, z) }

// Heal undoes Cut.
func (b *Bubble) Heal(a, z string) { b.Net.Heal(a, z) }

// Partition cuts the routers of each group off from those of the others; all of
// them still reach engines and client.
func (b *Bubble) Partition(groups ...[]int) {
	var names [][]string
	for _, g := range groups {
		var list []string
		for _, i := range g {
			list = append(list, routerName(i))
		}
		names = append(names, list)
	}
	b.Net.Partition(names...)
}

func (b *Bubble) newDir() string {
	b.spawned++
	return filepath.Join(b.dir, fmt.Sprintf("data%d", b.spawned))
}
