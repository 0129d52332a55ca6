package whatif

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// router is the parts of a router that a pick rests on.
type router struct {
	id     state.RouterID
	clock  *state.Clock
	store  *state.Store
	index  *sketch.Index
	core   *proxy.Core
	seq    uint64 // of the last message of rows
	cursor uint64 // in the index's journal: what the others were told
	due    bool   // a message to them is on its way out
}

// learned is what routers know of engines and text. They share it.
type learned struct {
	cal    *routing.Calibration
	ratios *prefix.Ratios
}

func newRouter(w *world, i int, listed []state.Replica) (*router, error) {
	c := &w.cfg
	now := func() time.Time { return w.time() }
	rng := rand.New(rand.NewPCG(c.Seed, uint64(i)))
	r := &router{id: state.RouterID(fmt.Sprintf("r%03d", i)), clock: state.NewClock(state.BootID(i+1), w.epoch)}
	spec := state.PoolSpec{Name: Pool, Model: Model, Policy: c.Policy, Engine: state.EngineVLLM}
	r.store = state.NewStore(state.Config{Self: r.id, Clock: r.clock, Pools: []state.PoolSpec{spec}, Now: now})
	r.index = sketch.New(sketch.Config{Clock: r.clock, Slots: r.store.SlotOf, Now: now})
	for _, x := range listed { // slots are the same at every router: they share a calibration
		r.store.SlotOf(x.ID)
	}
	r.store.SetReplicas(state.SourceStatic, Pool, listed)
	for _, x := range listed {
		r.index.SetCapacity(x.ID, float64(c.KVTokens), sketch.CapacityEngine)
	}
	params := c.Routing
	params.Rand = rng.Uint64
	var err error
	r.core, err = proxy.NewCore(proxy.CoreConfig{
		Store: r.store, Picker: routing.NewPicker(params, r.index, w.learned.cal), Ratios: w.learned.ratios, Index: r.index,
		Calibration: w.learned.cal, Now: now,
	}, nil)
	return r, err
}

// news is what a router tells the others at one moment.
type news struct {
	from *router
	sent time.Duration
	rows state.Rows
	ops  []sketch.Op
}

// maxOps bounds the ops of one message: a journal holds more than any moment makes.
const maxOps = 1 << 16

// tell makes the message of what has changed.
func (r *router) tell(now time.Time) news {
	n := news{from: r, sent: r.clock.Since(now)}
	r.seq++
	n.rows = state.Rows{Router: r.id, Boot: r.clock.Boot(), Seq: r.seq, Full: true, Rows: r.store.OwnRows(nil)}
	n.ops, r.cursor, _ = r.index.Journal().Read(r.cursor, maxOps)
	return n
}

// hear applies another router's message. Only a router's own ops are in it: the others
// hear those of third ones from themselves.
func (r *router) hear(n news, now time.Time) {
	r.clock.Observe(n.from.clock.Boot(), n.sent, now)
	r.store.ApplyRows(n.rows)
	for _, op := range n.ops {
		if op.Boot == n.from.clock.Boot() {
			r.index.Apply(op, now)
		}
	}
}
