package balance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// Store is what the loop reads and writes; *state.Store.
type Store interface {
	View() *state.View
	SetWeights(*state.Weights)
}

// Rates tells prefill rates in tokens/s; *routing.Calibration.
type Rates interface {
	PrefillRate(slot state.Slot, pool string) float64
}

// Config is what a Loop can be told. The zero value of a field means its default;
// thresholds of the breaker are the pools'.
type Config struct {
	// Period is the time between steps. Default 250 ms; failures and back-pressure
	// cause a step at once.
	Period time.Duration
	// SlowStart is how long a new or recovered replica takes to full weight. Default
	// 10 s: an engine compiles and fills its cache over its first requests.
	SlowStart time.Duration
	// Sketch tells who holds hot prefixes. Default nil: nobody knows.
	Sketch Sketch
}

// Validate reports every value that makes no sense.
func (c *Config) Validate() error {
	var errs []error
	if c.Period < 0 || c.Period > time.Minute {
		errs = append(errs, fmt.Errorf("balance: Period is out of range: %v", c.Period))
	}
	if c.SlowStart < 0 || c.SlowStart > time.Hour {
		errs = append(errs, fmt.Errorf("balance: SlowStart is out of range: %v", c.SlowStart))
	}
	return errors.Join(errs...)
}

// minStep is the least time between steps caused by outcomes.
const minStep = 10 * time.Millisecond

// Loop is the balance loop of one router.
type Loop struct {
	cfg     Config
	store   Store
	rates   Rates
	log     zerolog.Logger
	metrics *metrics
	kick    chan struct{} // capacity 1: a failure or back-pressure came

	mu      sync.Mutex
	tallies map[state.ReplicaID]*tally // guarded by mu

	traffic atomic.Pointer[map[string]*traffic] // by pool; the map is replaced, never changed

	step     sync.Mutex                  // one Step at a time
	trends   map[string]*trend           // guarded by step
	breakers map[state.ReplicaID]*memory // guarded by step
	panics   map[string]bool             // guarded by step
	told     map[string]panicking        // guarded by step; what the log said of panics
	last     time.Time                   // guarded by step
}

// memory is what one replica keeps from step to step.
type memory struct {
	breaker breaker
	trials  state.Trials
	limit   concurrency
	warming warming
}

// New returns a loop. It starts nothing.
func New(cfg Config, store Store, rates Rates, log zerolog.Logger, reg prometheus.Registerer) *Loop {
	if cfg.Period == 0 {
		cfg.Period = 250 * time.Millisecond
	}
	if cfg.SlowStart == 0 {
		cfg.SlowStart = 10 * time.Second
	}
	return &Loop{
		cfg: cfg, store: store, rates: rates, metrics: newMetrics(reg),
		log:      log.With().Str("component", "balance").Logger(),
		kick:     make(chan struct{}, 1),
		tallies:  map[state.ReplicaID]*tally{},
		breakers: map[state.ReplicaID]*memory{},
		panics:   map[string]bool{},
		trends:   map[string]*trend{},
		told:     map[string]panicking{},
	}
}

// Report takes what came of an attempt. It may be called from any goroutine, once
// for each attempt and again for its end; it doesn't block on a step.
func (l *Loop) Report(o Outcome) {
	if o.Kind == Neutral {
		return
	}
	if o.At.IsZero() {
		o.At = time.Now()
	}
	l.mu.Lock()
	t := l.tallies[o.Replica]
	if t == nil && len(l.tallies) < maxTallies {
		t = &tally{}
		l.tallies[o.Replica] = t
	}
	if t != nil {
		t.add(o)
	}
	l.mu.Unlock()
	if o.Kind == Failed || o.Kind == Busy {
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// Run steps until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-l.kick:
			if wait := minStep - time.Since(last); wait > 0 {
				timer.Reset(wait)
				continue
			}
		}
		last = time.Now()
		l.Step(last)
		timer.Reset(l.cfg.Period)
	}
}

// Step looks at everything once and publishes new weights.
func (l *Loop) Step(now time.Time) {
	l.step.Lock()
	defer l.step.Unlock()
	v := l.store.View()
	w := &state.Weights{
		At:       now,
		Replicas: make(map[state.ReplicaID]state.Weight),
		Pools:    make(map[string]state.PoolBalance, len(v.Pools)),
	}
	l.watch(v)
	for _, pool := range v.Pools {
		l.stepPool(w, pool, now)
	}
	l.forget(v)
	l.last = now
	l.metrics.show(v, w, now)
	l.store.SetWeights(w)
}

func (l *Loop) stepPool(w *state.Weights, pool *state.PoolView, now time.Time) {
	name := pool.Spec.Name
	members := make([]*member, len(pool.Replicas))
	before := make([]phase, len(pool.Replicas))
	l.mu.Lock()
	for i, r := range pool.Replicas {
		m := &member{view: r, rate: l.rates.PrefillRate(r.Slot, name)}
		if t := l.tallies[r.ID]; t != nil {
			m.tally = *t
		}
		if b := l.breakers[r.ID]; b != nil {
			m.breaker, m.limit = b.breaker, b.limit
		}
		members[i], before[i] = m, m.breaker.phase
	}
	p := plan(&pool.Spec, members, l.panics[name], l.last, now)
	for _, m := range members {
		if t := l.tallies[m.view.ID]; t != nil {
			*t = m.tally
		}
	}
	l.mu.Unlock()

	for i, m := range members {
		mem := l.breakers[m.view.ID]
		if mem == nil {
			mem = &memory{}
			l.breakers[m.view.ID] = mem
		}
		l.stepWarming(mem, m, pool, now)
		mem.breaker, mem.limit = m.breaker, m.limit
		w.Replicas[m.view.ID] = l.weight(m, mem, before[i], now)
		l.tell(name, m, before[i])
	}
	l.panics[name] = p.panic
	l.tellPanic(name, p.panic, now)
	b := state.PoolBalance{Skew: p.skew, Ejected: p.ejected, Panic: p.panic, Queue: p.queue, QueueMost: p.longest}
	l.trendOf(name).step(&b, pool.Spec.SLOTTFT, now)
	(*l.traffic.Load())[name].step(&b, pool, l.cfg.Sketch, now)
	w.Pools[name] = b
}

// weight is a member's weight, with its trial requests granted.
func (l *Loop) weight(m *member, mem *memory, before phase, now time.Time) state.Weight {
	b := &m.breaker
	x := state.Weight{
		Slow: b.slow(l.cfg.SlowStart, now), BusyUntil: m.tally.busyUntil, Failures: m.tally.fails,
		Reason: b.reason, FailedShare: b.share, Until: b.until,
		Queue: b.queue, Concurrency: m.atATime, Pace: m.pace,
		Warming: !mem.warming.from.IsZero(), WarmFrom: mem.warming.from,
	}
	switch b.phase {
	case open:
		x.Ejected = true
	case halfOpen:
		x.Ejected, x.Trial, x.Trials = true, true, &mem.trials
		// One trial at a time. One that was taken and came to nothing (the client left,
		// or was wrong) is granted again once nothing runs there any more.
		if before != halfOpen || (mem.trials.Left() == 0 && m.view.Cell.Load().InFlight == 0) {
			mem.trials.Grant(1)
		}
	}
	if m.over {
		x.Reason = state.ReasonEjectionLimit
		if until := now.Add(overPenalty); until.After(x.BusyUntil) {
			x.BusyUntil = until
		}
	}
	return x
}

// tell logs a change of phase.
func (l *Loop) tell(pool string, m *member, before phase) {
	b := &m.breaker
	if b.phase == before {
		return
	}
	e := l.log.Info()
	msg := "replica is half open"
	switch b.phase {
	case open:
		e, msg = l.log.Warn(), "replica ejected"
	case closed:
		msg = "replica is back"
	}
	e.Str("pool", pool).Str("replica", string(m.view.ID)).Str("reason", b.reason).Msg(msg)
}

// forget frees what is kept of replicas that are gone.
func (l *Loop) forget(v *state.View) {
	for id := range l.breakers {
		if v.Replica(id) == nil {
			delete(l.breakers, id)
		}
	}
	for name := range l.panics {
		if !hasPool(v, name) {
			delete(l.panics, name)
		}
	}
	for name := range l.trends {
		if !hasPool(v, name) {
			delete(l.trends, name)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.tallies {
		if v.Replica(id) == nil {
			delete(l.tallies, id)
		}
	}
}

func hasPool(v *state.View, name string) bool {
	for _, p := range v.Pools {
		if p.Spec.Name == name {
			return true
		}
	}
	return false
}

// panicking is whether a pool's ejections are ignored, and what the log last said.
type panicking struct {
	told bool
	at   time.Time
}

// panicEvery is the least time between two log lines about one pool's panic, which
// flips with every trial when all of its replicas fail.
const panicEvery = 30 * time.Second

// tellPanic logs that a pool's ejections begin or cease to be ignored.
func (l *Loop) tellPanic(pool string, now bool, at time.Time) {
	was := l.told[pool]
	if now == was.told || !was.at.IsZero() && at.Sub(was.at) < panicEvery {
		return
	}
	l.told[pool] = panicking{told: now, at: at}
	if now {
		l.log.Warn().Str("pool", pool).Msg("too many replicas are ejected: ejection is ignored")
	} else {
		l.log.Info().Str("pool", pool).Msg("ejection counts again")
	}
}
