package proxy

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/queue"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// poolQueue is what waits for replicas of one pool.
type poolQueue struct {
	queue.Queue
	pool   string
	depth  [state.Bands]prometheus.Gauge // by band
	here   [state.Bands]atomic.Int64     // the same
	waited prometheus.Observer           // seconds
}

// queues are the queues of all pools. Safe for concurrent use.
type queues struct {
	wake chan struct{} // capacity 1: something waits, or is left to be done

	list atomic.Pointer[map[string]*poolQueue] // replaced as a whole
	mu   sync.Mutex                            // held by who replaces it
}

func newQueues() queues { return queues{wake: make(chan struct{}, 1)} }

// of is the queue of a pool.
func (q *queues) of(pool string, m *metrics) *poolQueue {
	if list := q.list.Load(); list != nil {
		if p := (*list)[pool]; p != nil {
			return p
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	next := map[string]*poolQueue{}
	if list := q.list.Load(); list != nil {
		if p := (*list)[pool]; p != nil {
			return p
		}
		maps.Copy(next, *list)
	}
	p := &poolQueue{pool: pool, waited: m.queueWait.WithLabelValues(pool)}
	for b := range p.depth {
		p.depth[b] = m.queued.WithLabelValues(pool, state.Band(b).String())
	}
	next[pool] = p
	q.list.Store(&next)
	return p
}

// forget drops the queue of a pool that is gone, unless somebody still waits there.
func (q *queues) forget(pool string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if list := q.list.Load(); list != nil && (*list)[pool] != nil && (*list)[pool].Len() == 0 {
		next := maps.Clone(*list)
		delete(next, pool)
		q.list.Store(&next)
	}
}

// poke lets the loop that looks after the queues look now.
func (q *queues) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// each calls f for the queues in which something waits, and reports whether any does.
func (q *queues) each(f func(*poolQueue)) (any bool) {
	if list := q.list.Load(); list != nil {
		for _, p := range *list {
			if p.Len() > 0 {
				any = true
				f(p)
			}
		}
	}
	return any
}

// claim is what a request's place in a queue depends on.
type claim struct {
	band   state.Band
	weight float64
	bytes  int64         // of its body
	most   time.Duration // that it waits at most, 0: as its pool has it
	light  bool          // it is nothing that an engine computes for long: it never waits
}

// enlist notes what a job's place in the queue will depend on.
func (j *Job) enlist(a *Ask) {
	j.queue = j.core.queues.of(j.pool.Spec.Name, j.core.metrics)
	j.lack, j.queued = nil, 0
	j.claim = claim{band: a.Band, weight: a.Weight, bytes: int64(len(a.Body)), most: a.MaxWait}
	switch a.Request.Endpoint {
	case api.Count, api.Stored:
		j.claim.light = true
	}
}

// Reasons for which a queue refuses a request, as metrics have them.
const (
	shedSaturated   = "saturated" // all replicas are, and it would not wait
	shedQueueFull   = "queue_full"
	shedDisplaced   = "displaced"
	shedTimeout     = "queue_timeout"
	shedHoldTimeout = "hold_timeout"
	// shedReplicasBusy: those that were asked said "later".
	shedReplicasBusy = "replicas_busy"
)

// first picks a replica for a job that has none yet, or says that it has to wait.
func (j *Job) first() (*state.ReplicaView, error) {
	anyway := j.claim.light || j.Attempts() > 0
	if anyway || j.queue.Len() == 0 {
		return j.next(anyway)
	}
	// Others are before it. What it waits for, and how much it is, the pick tells.
	err := j.look()
	if err == nil {
		j.lack, j.freed = routing.ErrSaturated, 0
		err = api.Overloaded(shedSaturated, j.retryAfter())
	}
	return nil, err
}

// look picks without any consequence. It fails as next does.
func (j *Job) look() error {
	c := j.core
	v, now := c.store.View(), c.now()
	if p := v.PoolNamed(j.pool.Spec.Name); p != nil {
		j.pool = p
	}
	j.req.Pool, j.req.Anyway, j.req.DryRun = j.pool, false, true
	defer func() { j.req.DryRun = false }()
	j.aim(v, now)
	if err := j.choose(v, now); err != nil {
		return j.noLeg(err)
	}
	return j.notUp()
}

// lackOf is the wait that a pick's error estimates, and its kind.
func lackOf(err error) (wait time.Duration, kind error) {
	if err == nil {
		return 0, nil
	}
	var e *routing.PickError
	if !errors.As(err, &e) {
		return 0, nil
	}
	return e.Wait, e.Kind
}

// errNotUp says that replicas are listed, and none has come up yet.
var errNotUp = errors.New("no replica is up")

// notUp is the error of a pick that found only replicas that are not there yet, in a
// pool whose requests are held until one is.
func (j *Job) notUp() error {
	if j.req.Anyway || j.pool.Spec.QueueHold <= 0 {
		return nil
	}
	why := j.choice.Candidates[j.choice.Chosen].Despite
	switch why {
	case routing.ExcludedLoading, routing.ExcludedUnreachable:
		j.lack = errNotUp
		return api.Unavailable("all_"+why, time.Second)
	}
	return nil
}

// waitsFor says for how long the job may wait after a pick that failed: for room, or,
// where it is held, for a first replica; 0: not at all.
func (j *Job) waitsFor() (wait time.Duration, held bool) {
	spec := &j.pool.Spec
	switch {
	case j.claim.light || j.Attempts() > 0:
		return 0, false
	case j.lack == routing.ErrSaturated:
		wait = orDefault(spec.QueueWait, state.DefaultQueueWait)
	case j.lack == routing.ErrNoReplicas, j.lack == routing.ErrNoneEligible, j.lack == errNotUp:
		wait, held = spec.QueueHold, true
	default:
		return 0, false
	}
	if j.claim.most > 0 {
		wait = min(wait, j.claim.most)
	}
	return wait, held
}

// place is a job's place in its pool's queue. It belongs to the goroutine that serves
// the request; whoever pumps the queue uses the job while that one waits.
type place struct {
	queue.Entry
	job   *Job
	core  *Core
	queue *poolQueue
	since time.Time // it waits, in another place before this one too
	began time.Time
	until time.Time
	held  bool // it waits for a first replica

	// What came of it. Valid when Out is closed.
	replica *state.ReplicaView
	err     error
}

// wait puts a job into its pool's queue. The error is what a queue that is full answers.
func (j *Job) wait(most time.Duration, held bool, now time.Time) (*place, error) {
	c, q, spec := j.core, j.queue, &j.pool.Spec
	p := &place{job: j, core: c, queue: q, since: now.Add(-j.queued), began: now, until: now.Add(most), held: held, Entry: queue.Entry{
		Band: j.claim.band, Tenant: j.req.Tenant, Weight: j.claim.weight, Bytes: j.claim.bytes,
		Tokens: j.uncached(), Class: j.class(),
	}}
	p.Value = p
	displaced, ok := q.Push(&p.Entry, queue.Bounds{
		Requests: orDefault(spec.QueueRequests, state.DefaultQueueRequests), Bytes: bytesOr(spec.QueueBytes),
	})
	if !ok {
		return nil, api.Overloaded(shedQueueFull, j.retryAfter())
	}
	p.count(1)
	for _, d := range displaced {
		d.Value.(*place).count(-1)
	}
	c.queues.poke()
	c.pump(q)
	return p, nil
}

func bytesOr(n int64) int64 {
	if n <= 0 {
		return state.DefaultQueueBytes
	}
	return n
}

// count counts the place in or out. It leaves the job alone: whoever displaces a place
// counts it out when its owner may have given the job back.
func (p *place) count(n int64) {
	p.core.store.Wait(p.queue.pool, n, n*p.Tokens)
	p.queue.depth[p.Band].Add(float64(n))
	p.queue.here[p.Band].Add(n)
}

// uncached is the prompt tokens that the latest pick's best holder would have to
// prefill.
func (j *Job) uncached() int64 {
	matched := 0
	for i := range j.choice.Candidates {
		matched = max(matched, j.choice.Candidates[i].Matched)
	}
	return int64(max(0, j.req.PromptTokens-matched))
}

// class names what the job needs that other jobs of its pool do not.
func (j *Job) class() string {
	c := ""
	if j.req.Adapter != "" {
		c = "adapter " + j.req.Adapter
	}
	if j.req.Only != "" {
		c += " only " + string(j.req.Only)
	}
	if j.legs != nil && (j.legs.query || j.legs.whole || j.legs.unfit(j.pool)) {
		c += " whole"
	}
	return c
}

// pumpMost bounds the requests that one call sends on its way: it may be another
// request's goroutine that makes it.
const pumpMost = 32

// pump gives the requests of a queue the replicas that there are for them now. It may
// be called on the request path.
func (c *Core) pump(q *poolQueue) {
	if q.Len() == 0 {
		return
	}
	if q.Pump(pumpMost, offer) {
		c.queues.poke()
	}
}

// offer picks for a request that waits. A panic ends that request, neither the one
// whose goroutine pumps nor the loop that looks after the queues.
func offer(e *queue.Entry) (v queue.Verdict) {
	p := e.Value.(*place)
	j := p.job
	defer func() {
		if x := recover(); x != nil {
			p.core.panicked(x)
			p.replica, p.err = nil, api.Internal()
			p.count(-1)
			v = queue.Failed
		}
	}()
	j.queued = max(1, time.Since(p.since))
	r, err := j.next(false)
	switch {
	case err == nil:
		p.replica = r
		p.count(-1)
		return queue.Placed
	case j.lack == routing.ErrSaturated:
		return queue.Blocked
	}
	if _, held := j.waitsFor(); held && p.held {
		return queue.Blocked
	}
	p.err = err
	p.count(-1)
	return queue.Failed
}

// leave gives the place up. It reports false where the job has been served, or
// refused, by then.
func (p *place) leave() bool {
	if !p.queue.Leave(&p.Entry) {
		return false
	}
	p.count(-1)
	return true
}

// outcome is what came of a place that was not given up.
func (p *place) outcome() (*state.ReplicaView, error) {
	if p.How() == queue.Displaced {
		return nil, api.Overloaded(shedDisplaced, p.job.retryAfter())
	}
	return p.replica, p.err
}

// expired is what a client is told whose request waited for as long as it may.
func (j *Job) expired(held bool) error {
	err := j.look()
	if err == nil || j.lack == routing.ErrSaturated {
		return api.Overloaded(shedTimeout, j.retryAfter())
	}
	e := *api.AsError(err)
	if e.Reason = shedTimeout; held {
		e.Reason = shedHoldTimeout
	}
	return &e
}

// maxRetryWait bounds what a client is told to wait.
const maxRetryWait = time.Minute

// retryAfter is when a client may ask again by estimate: when what waits has got its
// replicas.
func (j *Job) retryAfter() time.Duration {
	return max(time.Second, drainTime(j.core.store.View(), j.pool, j.freed))
}

// drainTime is when what waits for a pool has got its replicas, by estimate, where one has
// room after freed.
func drainTime(v *state.View, pool *state.PoolView, freed time.Duration) time.Duration {
	each := float64(max(freed, 10*time.Millisecond)) / float64(max(1, len(pool.Replicas)))
	return time.Duration(min(float64(freed)+each*float64(v.Backlog(pool).Requests), float64(maxRetryWait)))
}

// hasRoom reports whether a pool would take the job's like at once.
func (c *Core) hasRoom(name string, j *Job) bool {
	v := c.store.View()
	pool := v.PoolNamed(name)
	if pool == nil || c.queues.of(name, c.metrics).Len() > 0 {
		return false
	}
	req := routing.Request{Pool: pool, PromptTokens: j.req.PromptTokens, MaxTokens: j.req.MaxTokens, Role: state.RoleBoth, DryRun: true}
	if pool.Split {
		req.Role = state.RoleDecode
	}
	var choice routing.Choice
	return c.picker.Pick(&choice, &req, v, c.now()) == nil
}
