package routing

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// poolFit learns one pool's Params. Its replicas run the same engine with the same
// model, so one set of parameters serves all, and each replica differs from it by
// one factor, its speed: all its times are so many times the pool's. One factor is
// learned from few samples, and what a handful of samples can't tell apart stays
// equal. (With six parameters for each, equal engines came out up to a factor of two
// apart in rate and five in ITLPerStream, and the one that happened to look best got
// everything.)
//
// A replica without samples is taken to be as fast as the fastest: it will be tried,
// and then known. Taken for the mean it would never be, where the first to be tried
// happened to be a slow one.
type poolFit struct {
	params atomic.Pointer[Params] // of a replica like any other
	fresh  atomic.Pointer[Params] // of a replica without samples

	mu       sync.Mutex
	fit      fit           // guarded by mu
	replicas []*replicaFit // guarded by mu
	stale    int           // guarded by mu; samples since all replicas' params were published
}

// replicaFit is one replica's speed and what it published.
type replicaFit struct {
	id     state.ReplicaID
	name   string // of the pool
	pool   *poolFit
	params atomic.Pointer[Params]

	speed   speed // guarded by pool.mu
	samples int   // guarded by pool.mu
}

func newPoolFit(p Params) *poolFit {
	f := &poolFit{}
	p.Samples = 0
	f.fit = newFit(p)
	f.params.Store(&p)
	f.fresh.Store(&p)
	return f
}

// observe takes a sample of one replica: its time to first token, its inter-token
// time, or both.
func (f *poolFit) observe(r *replicaFit, s *Sample, ttft, itl bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	factor := r.speed.factor()
	alike := *s
	alike.TTFT, alike.ITL = scale(s.TTFT, 1/factor), scale(s.ITL, 1/factor)
	if ttft {
		f.fit.observeTTFT(&alike)
		if len(f.replicas) > 1 {
			guess := f.fit.guessTTFT(s)
			r.speed.observe(float64(s.TTFT)/float64(time.Millisecond), guess, f.fit.ttft.noise)
		}
		r.samples++
	}
	if itl {
		f.fit.observeITL(&alike)
	}
	p := f.fit.params()
	f.params.Store(&p)
	if f.stale++; f.stale >= max(publishEvery, len(f.replicas)) || f.fit.samples < settled {
		f.publishAll()
		return
	}
	r.publish(&p)
}

// publishEvery is after how many of a pool's samples the parameters of those of its
// replicas are published that had none: a few percent of what is known by then.
const publishEvery = 16

// settled is how many samples a pool has when its parameters no longer move much
// with each.
const settled = 64

// publishAll publishes every replica's parameters, and those of one without
// samples. The caller holds mu.
func (f *poolFit) publishAll() {
	f.stale = 0
	p := f.params.Load()
	fastest := 1.0
	for _, r := range f.replicas {
		if r.samples > 0 {
			fastest = min(fastest, r.speed.factor())
		}
	}
	fresh := p.times(fastest)
	f.fresh.Store(&fresh)
	for _, r := range f.replicas {
		r.publish(p)
	}
}

// publish publishes the parameters of a replica as the pool's are now. The caller
// holds pool.mu.
func (r *replicaFit) publish(pool *Params) {
	if r.samples == 0 {
		r.params.Store(r.pool.fresh.Load())
		return
	}
	p := pool.times(r.speed.factor())
	p.Samples = r.samples
	r.params.Store(&p)
}

// times is of a replica that takes k times as long; it has no samples.
func (p *Params) times(k float64) Params {
	q := *p
	q.Rate /= k
	q.Fixed *= k
	q.Quadratic *= k
	q.ITL *= k
	q.ITLPerStream *= k
	q, _ = clamp(q)
	q.Samples = 0
	return q
}

// seed takes figures that rest on p.Samples samples of one replica; on one at
// least.
func (f *poolFit) seed(r *replicaFit, p Params) bool {
	p.Samples = max(1, p.Samples)
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.samples >= p.Samples {
		return false
	}
	was := f.params.Load()
	if f.fit.samples < p.Samples {
		// What is known of the pool is less than what is told of this one: take it for
		// the pool, and leave the others where they are beside it.
		f.fit = newFit(p)
		f.fit.trust(p.Samples)
		for _, o := range f.replicas {
			if o.samples > 0 {
				o.speed.set(o.speed.x + math.Log(p.Rate/was.Rate))
			}
		}
		pool := f.fit.params()
		f.params.Store(&pool)
	}
	r.samples = p.Samples
	if len(f.replicas) > 1 {
		r.speed.set(math.Log(f.params.Load().Rate / p.Rate))
		r.speed.p = max(minSpeedVar, priorSpeedVar/float64(1+p.Samples))
	}
	f.publishAll()
	return true
}

// drop forgets a replica.
func (f *poolFit) drop(r *replicaFit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = slices.DeleteFunc(f.replicas, func(o *replicaFit) bool { return o == r })
}

func scale(d time.Duration, by float64) time.Duration {
	return time.Duration(float64(d) * by)
}
