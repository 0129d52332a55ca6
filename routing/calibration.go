package routing

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Sample is what one finished request tells of its replica. Choice.Sample fills in
// what the pick assumed.
type Sample struct {
	Replica state.ReplicaID
	Slot    state.Slot
	Pool    string

	UncachedTokens int     // prompt tokens prefilled; reported where the engine reports, else predicted
	PromptTokens   int     // reported, else estimated
	QueueTokens    float64 // uncached tokens before it at dispatch
	Decode         float64 // decode streams there at dispatch
	TTFT           time.Duration

	// ITL is the mean time between tokens, over ITLBatch streams; 0 = not observed.
	ITL      time.Duration
	ITLBatch float64

	ViewAge   time.Duration // age of the oldest rows that the pick went by
	Retried   bool          // not the first attempt
	Restarted bool          // the replica restarted meanwhile
	Loads     bool          // it had to load an adapter first, or to wait for a running request to end
}

// maxViewAge is the age of the oldest rows past which a sample's queue is unknown.
// Every router repeats its rows each second.
const maxViewAge = 1500 * time.Millisecond

// Calibration learns Params from samples, by pool and by replica. Reads are by
// atomic pointer; Observe locks the one pool. Safe for concurrent use.
type Calibration struct {
	mu      sync.Mutex                          // guards replacing slots and pools
	slots   atomic.Pointer[[]*replicaFit]       // by slot
	pools   atomic.Pointer[map[string]*poolFit] // by name
	others  *poolFit                            // all pools beyond maxPools
	outputs outputs

	defaults Params // never changed

	observed, skipped atomic.Uint64
}

// maxPools bounds the pools calibrated apart.
const maxPools = 4096

// NewCalibration returns a calibration that knows only DefaultParams.
func NewCalibration() *Calibration {
	return &Calibration{defaults: DefaultParams(), others: newPoolFit(DefaultParams())}
}

// Params is what is known of the replica in a slot: its own figures, else its
// pool's, else the defaults. It allocates nothing and waits for nothing.
func (c *Calibration) Params(slot state.Slot, pool string) Params { return *c.params(slot, pool) }

// params is Params without a copy; the result must not be changed.
func (c *Calibration) params(slot state.Slot, pool string) *Params {
	if s := c.slots.Load(); s != nil && int(slot) < len(*s) {
		if f := (*s)[slot]; f != nil {
			return f.params.Load()
		}
	}
	return c.prior(pool)
}

// prior is what a replica of the pool is taken for before it was observed.
func (c *Calibration) prior(pool string) *Params {
	if m := c.pools.Load(); m != nil {
		if p := (*m)[pool]; p != nil {
			return p.fresh.Load()
		}
	}
	return &c.defaults
}

// Of is what is known of a replica by its id; ok is false before any sample.
func (c *Calibration) Of(id state.ReplicaID) (p Params, ok bool) {
	if s := c.slots.Load(); s != nil {
		for _, f := range *s {
			if f != nil && f.id == id {
				return *f.params.Load(), true
			}
		}
	}
	return DefaultParams(), false
}

// PrefillRate is a replica's prefill rate in tokens/s.
func (c *Calibration) PrefillRate(slot state.Slot, pool string) float64 {
	p := c.Params(slot, pool)
	return p.Rate
}

// Output is the expected output of a request in tokens, at most its bound.
func (c *Calibration) Output(pool string, maxTokens int) int { return c.outputs.get(pool, maxTokens) }

// ObserveOutput learns from a finished answer. Answers cut short by a client that
// left say nothing: leave them out.
func (c *Calibration) ObserveOutput(pool string, maxTokens, output int) {
	c.outputs.observe(pool, maxTokens, output)
}

// Counts is how many samples were taken and how many were skipped.
func (c *Calibration) Counts() (observed, skipped uint64) {
	return c.observed.Load(), c.skipped.Load()
}

// Forget frees what is known of a replica that is gone. Call it from Store.OnGone.
func (c *Calibration) Forget(slot state.Slot, id state.ReplicaID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots.Load()
	if s == nil || int(slot) >= len(*s) || (*s)[slot] == nil || (*s)[slot].id != id {
		return
	}
	gone := (*s)[slot]
	gone.pool.drop(gone)
	next := append([]*replicaFit(nil), *s...)
	next[slot] = nil
	c.slots.Store(&next)
}

// Observe takes a sample. Those that say nothing of the replica's speed are
// skipped, and counted: retried ones, those across a restart, those that waited for an
// adapter or for a running request to end, and those whose pick went by old load. It reports whether the sample was taken.
func (c *Calibration) Observe(s Sample) bool {
	ttft := s.TTFT > 0 && s.ViewAge <= maxViewAge
	itl := s.ITL > 0 && s.ITLBatch >= 1
	if s.Retried || s.Restarted || s.Loads || (!ttft && !itl) {
		c.skipped.Add(1)
		return false
	}
	f := c.fitOf(s.Slot, s.Replica, s.Pool)
	f.pool.observe(f, &s, ttft, itl)
	c.observed.Add(1)
	return true
}

// Seed takes figures of a replica that rest on more samples than what is known of
// it here: another router's, or this one's before a restart. Figures without
// samples are taken only while nothing is known. It reports false when it knows
// better, or when the figures are no numbers.
func (c *Calibration) Seed(slot state.Slot, id state.ReplicaID, pool string, p Params) bool {
	p, ok := clamp(p)
	if !ok {
		return false
	}
	f := c.fitOf(slot, id, pool)
	return f.pool.seed(f, p)
}

// Each gives what was learned of every replica, for other routers and for status.
func (c *Calibration) Each(yield func(id state.ReplicaID, pool string, p Params) bool) {
	s := c.slots.Load()
	if s == nil {
		return
	}
	for _, f := range *s {
		if f != nil && !yield(f.id, f.name, *f.params.Load()) {
			return
		}
	}
}

// fitOf is the estimator of a slot, made on first use.
func (c *Calibration) fitOf(slot state.Slot, id state.ReplicaID, pool string) *replicaFit {
	if s := c.slots.Load(); s != nil && int(slot) < len(*s) && (*s)[slot] != nil {
		return (*s)[slot]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var old []*replicaFit
	if s := c.slots.Load(); s != nil {
		old = *s
	}
	if int(slot) < len(old) && old[slot] != nil {
		return old[slot]
	}
	next := make([]*replicaFit, max(len(old), int(slot)+1))
	copy(next, old)
	p := c.poolOf(pool)
	f := &replicaFit{id: id, name: pool, pool: p}
	p.mu.Lock()
	p.replicas = append(p.replicas, f)
	f.publish(p.params.Load())
	p.mu.Unlock()
	next[slot] = f
	c.slots.Store(&next)
	return f
}

// poolOf is the estimator of a pool, made on first use. The caller holds mu.
func (c *Calibration) poolOf(name string) *poolFit {
	m := c.pools.Load()
	if m == nil {
		m = &map[string]*poolFit{}
	}
	if p := (*m)[name]; p != nil {
		return p
	}
	if len(*m) >= maxPools {
		return c.others
	}
	next := maps.Clone(*m)
	p := newPoolFit(c.defaults)
	next[name] = p
	c.pools.Store(&next)
	return p
}
