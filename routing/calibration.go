package routing

import (
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
}

// maxViewAge is the age of the oldest rows past which a sample's queue is unknown.
// Every router repeats its rows each second.
const maxViewAge = 1500 * time.Millisecond

// Calibration learns each replica's Params from samples. Reads are by atomic
// pointer; Observe locks the one replica. Safe for concurrent use.
type Calibration struct {
	mu      sync.Mutex                            // guards replacing slots and priors
	slots   atomic.Pointer[[]*replicaFit]         // by slot
	priors  atomic.Pointer[map[string]*poolPrior] // by pool
	outputs outputs

	defaults Params // never changed

	observed, skipped atomic.Uint64
}

// poolPrior is what a new replica of a pool is taken for.
type poolPrior struct{ params atomic.Pointer[Params] }

const (
	// priorAfter is how many samples of a replica make it count for its pool's prior.
	priorAfter = 16
	// priorWeight is the weight of one replica's figures in it, per sample.
	priorWeight = 0.02
	// maxPriors bounds the pools with a prior.
	maxPriors = 4096
)

// replicaFit is one replica's estimator and what it published.
type replicaFit struct {
	id     state.ReplicaID
	pool   string
	params atomic.Pointer[Params]

	mu  sync.Mutex
	fit fit // guarded by mu
}

// NewCalibration returns a calibration that knows only DefaultParams.
func NewCalibration() *Calibration { return &Calibration{defaults: DefaultParams()} }

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

// Prior is what a replica of the pool is taken for before it was observed: the mean
// of the pool's others.
func (c *Calibration) Prior(pool string) Params { return *c.prior(pool) }

func (c *Calibration) prior(pool string) *Params {
	if m := c.priors.Load(); m != nil {
		if p := (*m)[pool]; p != nil {
			return p.params.Load()
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
	next := append([]*replicaFit(nil), *s...)
	next[slot] = nil
	c.slots.Store(&next)
}

// Observe takes a sample. Those that say nothing of the replica's speed are
// skipped, and counted: retried ones, those across a restart, and those whose pick
// went by old load. It reports whether the sample was taken.
func (c *Calibration) Observe(s Sample) bool {
	ttft := s.TTFT > 0 && s.ViewAge <= maxViewAge
	itl := s.ITL > 0 && s.ITLBatch >= 1
	if s.Retried || s.Restarted || (!ttft && !itl) {
		c.skipped.Add(1)
		return false
	}
	f := c.fitOf(s.Slot, s.Replica, s.Pool)
	f.mu.Lock()
	if ttft {
		f.fit.observeTTFT(&s)
	}
	if itl {
		f.fit.observeITL(&s)
	}
	p := f.fit.params()
	f.params.Store(&p)
	f.mu.Unlock()
	if ttft && p.Samples >= priorAfter {
		c.updatePrior(s.Pool, p)
	}
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
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.fit.samples; n > 0 && n >= p.Samples {
		return false
	}
	f.fit = newFit(p)
	f.fit.trust(p.Samples)
	f.params.Store(&p)
	return true
}

// Each gives what was learned of every replica, for other routers and for status.
func (c *Calibration) Each(yield func(id state.ReplicaID, pool string, p Params) bool) {
	s := c.slots.Load()
	if s == nil {
		return
	}
	for _, f := range *s {
		if f != nil && !yield(f.id, f.pool, *f.params.Load()) {
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
	f := &replicaFit{id: id, pool: pool}
	p := c.Prior(pool)
	p.Samples = 0
	f.fit = newFit(p)
	f.params.Store(&p)
	next[slot] = f
	c.slots.Store(&next)
	return f
}

// updatePrior moves the pool's prior towards a replica's figures.
func (c *Calibration) updatePrior(pool string, p Params) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.priors.Load()
	if m == nil || (*m)[pool] == nil {
		if m != nil && len(*m) >= maxPriors {
			return
		}
		next := map[string]*poolPrior{}
		if m != nil {
			for k, v := range *m {
				next[k] = v
			}
		}
		next[pool] = &poolPrior{}
		next[pool].params.Store(&p)
		c.priors.Store(&next)
		return
	}
	cur := *(*m)[pool].params.Load()
	to := func(v *float64, goal float64) { *v += priorWeight * (goal - *v) }
	to(&cur.Rate, p.Rate)
	to(&cur.Fixed, p.Fixed)
	to(&cur.Slowdown, p.Slowdown)
	to(&cur.Quadratic, p.Quadratic)
	to(&cur.ITL, p.ITL)
	to(&cur.ITLPerStream, p.ITLPerStream)
	to(&cur.Uncached, p.Uncached)
	(*m)[pool].params.Store(&cur)
}
