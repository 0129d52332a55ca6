package proxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Store is what the core needs of *state.Store.
type Store interface {
	View() *state.View
	Begin(r *state.ReplicaView, uncached int) *state.Ticket
	BeginUnder(r *state.ReplicaView, uncached int, limit int64) *state.Ticket
	Wait(pool string, requests, tokens int64)
	Published() <-chan struct{}
}

// Picker is what the core needs of *routing.Picker.
type Picker interface {
	Pick(c *routing.Choice, req *routing.Request, v *state.View, now time.Time) error
}

// Index is what the core needs of *sketch.Index.
type Index interface {
	Place(id state.ReplicaID, marks []prefix.Mark, tokens []int32, now time.Time) *sketch.Placement
}

// Calibration learns from what came of requests, as *routing.Calibration does.
type Calibration interface {
	Observe(routing.Sample) bool
	ObserveOutput(pool string, maxTokens, output int)
}

// Reporter hears how each attempt at a replica ended. It is called on the request
// path and must not block. retryAfter is what a busy replica asked for, 0 for
// nothing.
type Reporter interface {
	Report(id state.ReplicaID, o Outcome, retryAfter time.Duration, now time.Time)
}

// Outcome is how one attempt at a replica ended, as far as the replica's health is
// concerned.
type Outcome uint8

// The outcomes.
const (
	OutcomeServed   Outcome = iota // a good answer, to its end
	OutcomeRejected                // the client's mistake: neither failure nor proof of health
	OutcomeBusy                    // back-pressure: 429, 503
	OutcomeFailed                  // refused, reset, 5xx, a stream that broke
	OutcomeTimeout                 // nothing came in time
	OutcomeAborted                 // the client left or the router stopped: says nothing
)

// String names the outcome for metrics and logs.
func (o Outcome) String() string {
	return [...]string{"served", "rejected", "busy", "failed", "timeout", "aborted"}[o]
}

// CoreConfig is what the core needs. Store, Picker and Ratios are required.
type CoreConfig struct {
	Store       Store
	Picker      Picker
	Ratios      *prefix.Ratios
	Index       Index       // nil: nothing is remembered of prefixes
	Calibration Calibration // nil: nothing is learned of replicas
	Reporter    Reporter    // nil: nobody hears of outcomes
	// Counted hears how many tokens an engine made of a prompt, after Ratios has
	// learned it. It is called on the request path; nil: nobody.
	Counted func(model string, depth prefix.Mark, tokens int)
	// Sample takes the prompt of a pick now and then, to be judged by others. It is
	// called on the request path and must not block; nil: nobody.
	Sample func(Question)
	// Told hears of each pick. It is called on the request path and must not block, nor
	// keep the pick; nil: nobody.
	Told func(*Pick)
	// Ended hears what each request was like whose answer was counted. It is called on the
	// request path and must not block; nil: nobody.
	Ended func(*Record)
	// Loads hears what vLLM tells of its load with an answer: KV use 0..1 and waiting
	// requests, negative where unknown. It is called on the request path and must not
	// block; nil: it is not asked for.
	Loads func(r *state.ReplicaView, now time.Time, kvUsage, waiting float64)
	// Picked hears of each request's first pick. It is called on the request path and
	// must neither block nor keep what it gets; nil: nobody.
	Picked func(pool string, c *routing.Choice, marks []prefix.Mark, tokens []int32)
	// Prompts keeps a few recent bodies of each pool in memory, for Partings.
	Prompts bool
	// Prewarm tells what replicas hold, for pools that prewarm: their hottest prompts
	// are kept in memory then. Nil: none are, and no replica is warmed.
	Prewarm Sketch
	// Prewarmed hears of each prompt that was sent for a cache's sake; nil: nobody.
	Prewarmed func(Prewarmed)
	Now       func() time.Time
}

// Validate reports what is missing.
func (c *CoreConfig) Validate() error {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("no store"))
	}
	if c.Picker == nil {
		errs = append(errs, errors.New("no picker"))
	}
	if c.Ratios == nil {
		errs = append(errs, errors.New("no token ratios"))
	}
	return errors.Join(errs...)
}

// Core admits requests, picks replicas for them and accounts for what came of it.
// It knows nothing of HTTP and sends nothing. Safe for concurrent use.
type Core struct {
	store    Store
	picker   Picker
	ratios   *prefix.Ratios
	index    Index
	cal      Calibration
	reporter Reporter
	counted  func(model string, depth prefix.Mark, tokens int)
	sample   func(Question)
	loads    func(r *state.ReplicaView, now time.Time, kvUsage, waiting float64)
	picked   func(pool string, c *routing.Choice, marks []prefix.Mark, tokens []int32)
	told     func(*Pick)
	ended    func(*Record)
	prompts  *prompts     // nil: nothing is kept
	warm     *warmPrompts // nil: nothing is kept
	sampleAt atomic.Int64 // Unix nanoseconds: when the next sample is due
	now      func() time.Time
	metrics  *metrics
	picks    *Picks
	started  time.Time
	jobs     sync.Pool
	noUsage  urlSet // replicas that refuse to be asked for usage
	limited  limited
	queues   queues
	refusals tally
	panicked func(p any) // hears of a panic that ended a request that waits

	noPriority urlSet // replicas that refuse priorities
}

func newCore(cfg CoreConfig, picks int, m *metrics) *Core {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Core{
		store: cfg.Store, picker: cfg.Picker, ratios: cfg.Ratios, index: cfg.Index, cal: cfg.Calibration,
		reporter: cfg.Reporter, counted: cfg.Counted, sample: cfg.Sample, loads: cfg.Loads, now: cfg.Now, metrics: m, picks: newPicks(picks), started: time.Now(),
		jobs: sync.Pool{New: func() any { return &Job{} }}, picked: cfg.Picked, told: cfg.Told, ended: cfg.Ended, queues: newQueues(),
	}
	if cfg.Prompts {
		c.prompts = &prompts{pools: map[string]*keptBodies{}}
	}
	c.panicked = func(any) { m.panics.Inc() }
	if cfg.Prewarm != nil {
		c.warm = &warmPrompts{pools: map[string]*warmPool{}}
	}
	return c
}

// Ask is a request as a front hands it in. Body is only read, and only during
// Admit.
type Ask struct {
	ID      string
	Request *api.Request
	Body    []byte
	Session string          // affinity key, "" for none
	Tenant  string          // "" for none
	Band    state.Band      // its priority, within what its tenant may claim
	Weight  float64         // its tenant's share beside other tenants; 0 means 1
	Only    state.ReplicaID // the one replica that can serve it, "" for any
	MaxWait time.Duration   // for a replica that is not saturated, where that is less than the pool's; 0: as the pool has it
	Pool    *state.PoolView // that is to serve it, whatever the model is called; nil: the one of the model
}

// Job is an admitted request. It belongs to one goroutine at a time, and must be
// given back with Release when its last attempt has ended.
type Job struct {
	core     *Core
	id       string
	model    string // as the client named it
	pool     *state.PoolView
	ratio    *prefix.Ratio
	seed     prefix.Seed
	hasher   prefix.Hasher
	total    prefix.Mark
	prompt   bool // total is of a prompt, not of a body
	partial  bool // the prompt goes on from what is not in the body
	marks    []prefix.Mark
	tokens   []int32
	answer   []prefix.Mark // scratch
	answered bool          // the hasher has left the prompt's end
	arrived  bool          // it was counted as come
	depths   []int32       // scratch
	band     state.Band
	req      routing.Request
	choice   routing.Choice
	tried    []state.ReplicaID
	pick     Pick
	now      attempt
	legs     *twoLegs // nil in pools whose replicas all serve whole requests

	queue  *poolQueue
	claim  claim
	lack   error         // why the latest pick found no replica: a kind of routing.PickError
	freed  time.Duration // of routing.ErrSaturated: until one has room, by estimate
	queued time.Duration // it has waited
}

// attempt is what one dispatch holds.
type attempt struct {
	open      bool
	ticket    *state.Ticket
	placement *sketch.Placement
	sample    routing.Sample
	began     time.Time
	first     time.Time
	nth       uint64 // its place among the picks remembered
	learned   bool   // its time to first token was told to calibration

	rate      float64   // at which the replica prefills, tokens/s, as believed at the pick
	prefilled prefilled // by the replica at the first token
}

// Admit finds the pool that serves a request and makes its prefix marks. Errors
// are *api.Error.
func (c *Core) Admit(a *Ask) (*Job, error) {
	pool, adapter := a.Pool, ""
	if pool == nil {
		pool, adapter = c.store.View().Resolve(a.Request.Model)
	}
	if pool == nil {
		return nil, api.ModelNotFound(a.Request.Model)
	}
	j := c.jobs.Get().(*Job)
	j.core, j.id, j.model, j.pool = c, a.ID, a.Request.Model, pool
	j.tried, j.pick, j.answered, j.arrived = j.tried[:0], Pick{}, false, false
	j.choice.Candidates, j.freed = j.choice.Candidates[:0], 0
	j.partial = a.Request.Continues()
	j.band = a.Band
	j.legs = newTwoLegs(pool, a)
	j.enlist(a)
	spec := &pool.Spec
	j.ratio = c.ratios.For(spec.UpstreamName())

	seed := prefix.Seed{Model: spec.UpstreamName(), Adapter: adapter, CacheSalt: a.Request.CacheSalt}
	if spec.Isolation == isolateTenants {
		seed.Tenant, seed.CacheSalt = a.Tenant, ""
	}
	j.marks, j.total, j.prompt = j.marks[:0], prefix.Mark{}, false
	j.seed = seed
	if in := a.Request.Input(a.Body); in.Kind != 0 {
		// The body has been parsed, so no part of it is malformed.
		j.marks, _ = j.hasher.Marks(j.marks, seed, in)
		j.total, j.prompt = j.hasher.Total(), true
	} else if !a.Request.Form() {
		j.total.ASCII = uint32(min(len(a.Body), 1<<31-1))
	}
	j.tokens = appendTokens(j.tokens[:0], j.marks, j.ratio)
	j.req = routing.Request{
		Marks: j.marks, Tokens: j.tokens,
		PromptTokens: j.ratio.Tokens(j.total), MaxTokens: a.Request.MaxTokens,
		Adapter: adapter, Session: a.Session, Tenant: a.Tenant, Band: a.Band, Role: state.RoleBoth, Only: a.Only,
	}
	return j, nil
}

// isolateTenants is the isolation of pools whose tenants share no cache.
const isolateTenants = "tenant"

func appendTokens(dst []int32, marks []prefix.Mark, r *prefix.Ratio) []int32 {
	for _, m := range marks {
		dst = append(dst, int32(min(r.Tokens(m), 1<<31-1)))
	}
	return dst
}

// Pool is the pool that serves the request.
func (j *Job) Pool() *state.PoolView { return j.pool }

// Adapter is the adapter of the pool's model that is asked for, "" for none.
func (j *Job) Adapter() string { return j.req.Adapter }

// Attempts is how often the request has been dispatched.
func (j *Job) Attempts() int {
	if j.legs != nil {
		return len(j.tried) + j.legs.again
	}
	return len(j.tried)
}

// Pick is the latest pick. Candidates are not filled in.
func (j *Job) Pick() *Pick { return &j.pick }
