package observe

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines is a Reader whose engines may hang or be dead, and that counts readings.
type engines struct {
	mu    sync.Mutex
	hang  map[state.ReplicaID]bool
	dead  map[state.ReplicaID]bool
	next  map[state.ReplicaID]state.Reading
	count map[state.ReplicaID]int
	ranks int // of the widest reading
}

func newEngines() *engines {
	return &engines{
		hang: map[state.ReplicaID]bool{}, dead: map[state.ReplicaID]bool{},
		next: map[state.ReplicaID]state.Reading{}, count: map[state.ReplicaID]int{},
	}
}

func (e *engines) Read(ctx context.Context, ranks []state.Replica) []state.Reading {
	id := ranks[0].ID
	e.mu.Lock()
	e.count[id]++
	e.ranks = max(e.ranks, len(ranks))
	hang, dead := e.hang[id], e.dead[id]
	e.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	var list []state.Reading
	for _, r := range ranks {
		e.mu.Lock()
		out, ok := e.next[r.ID]
		e.mu.Unlock()
		switch {
		case hang:
			out = state.UnknownReading(r.ID)
			out.Err = "timed out"
		case dead:
			out = state.UnknownReading(r.ID)
			out.Err, out.Refused = "connection refused", true
		case !ok:
			out = state.UnknownReading(r.ID)
			out.OK = true
		}
		list = append(list, out)
	}
	return list
}

func (e *engines) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *engines) reads(id state.ReplicaID) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[id]
}

type cleared struct {
	at     time.Time
	reason string
}

type cache struct {
	mu      sync.Mutex
	cleared map[state.ReplicaID]cleared
	sizes   map[state.ReplicaID]Capacity
}

func newCache() *cache {
	return &cache{cleared: map[state.ReplicaID]cleared{}, sizes: map[state.ReplicaID]Capacity{}}
}

func (c *cache) SetCapacity(id state.ReplicaID, x Capacity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes[id] = x
}

func (c *cache) Cleared(id state.ReplicaID, at time.Time, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared[id] = cleared{at, reason}
}

func store(self state.RouterID, boot state.BootID, ids ...state.ReplicaID) *state.Store {
	s := state.NewStore(state.Config{
		Self: self, Clock: state.NewClock(boot, time.Now()),
		Pools: []state.PoolSpec{{Name: "chat", Model: "m"}},
	})
	var list []state.Replica
	for _, id := range ids {
		list = append(list, state.Replica{ID: id, Role: state.RoleBoth})
	}
	s.SetReplicas(state.SourceStatic, "chat", list)
	return s
}

// crew is a few routers with a reader each, that tell each other what they read at
// once.
type crew struct {
	stores  []*state.Store
	engines []*engines
	stops   []context.CancelFunc
	wg      sync.WaitGroup
}

// run starts n routers that know of each other. Call it in a bubble; stop must
// follow.
func run(t *testing.T, n int, ids ...state.ReplicaID) *crew {
	t.Helper()
	c := &crew{}
	name := func(i int) state.RouterID { return state.RouterID(rune('A' + i)) }
	for i := range n {
		c.stores = append(c.stores, store(name(i), state.BootID(i+1), ids...))
		c.engines = append(c.engines, newEngines())
	}
	for i, s := range c.stores {
		for j := range n {
			if j != i {
				s.ApplyRows(state.Rows{Router: name(j), Boot: state.BootID(j + 1), Seq: 1})
			}
		}
		tell := func(r state.Reading) {
			for j, o := range c.stores {
				if j != i {
					o.Clock().Observe(state.BootID(i+1), r.At.At, time.Now())
					o.ApplyReading(r)
				}
			}
		}
		l := New(Config{Self: name(i)}, s, c.engines[i], newCache(), tell, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		c.stops = append(c.stops, cancel)
		c.wg.Go(func() { _ = l.Run(ctx) })
	}
	return c
}

func (c *crew) stop() {
	for _, f := range c.stops {
		f()
	}
	c.wg.Wait()
}

// readers are the routers that have read id, by how often since the counts before.
func (c *crew) readers(id state.ReplicaID, before []int) (who []int, counts []int) {
	for i, e := range c.engines {
		n := e.reads(id)
		counts = append(counts, n)
		if before != nil && n > before[i] || before == nil && n > 0 {
			who = append(who, i)
		}
	}
	return who, counts
}

// order is the routers in rendezvous order for id.
func (c *crew) order(id state.ReplicaID) []int {
	var all []state.RouterID
	for _, s := range c.stores {
		all = append(all, s.Self())
	}
	out := make([]int, len(all))
	for i, r := range all {
		out[place(r, string(id), all)] = i
	}
	return out
}
