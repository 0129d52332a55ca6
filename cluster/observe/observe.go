package observe

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// Store is what observe reads and writes of the cluster's state.
type Store interface {
	View() *state.View
	ApplyReading(state.Reading) (news bool)
	Clock() *state.Clock
}

// Reader asks one engine process how it is.
type Reader interface {
	// Read returns a reading of each of the replicas, which are the ranks of one
	// process and never none, in the same order. It must return by the end of ctx.
	Read(ctx context.Context, ranks []state.Replica) []state.Reading
}

// Config of a Loop. The zero value of a duration is its default.
type Config struct {
	Self     state.RouterID
	Interval time.Duration // between two readings of any engine, instead of Busy and Idle; 0 = those
	Busy     time.Duration // between two readings of an engine with work; default 100 ms
	Idle     time.Duration // the same of one that has long had none; default 500 ms, so that one lost reading is no take-over
	Timeout  time.Duration // of one reading; default 2 s
	TakeOver time.Duration // a reading older than this is taken over by the next reader; default 1 s

	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

func (c *Config) fill() {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.Interval > 0 {
		c.Busy, c.Idle = c.Interval, c.Interval
	}
	def(&c.Busy, 100*time.Millisecond)
	def(&c.Idle, 500*time.Millisecond)
	def(&c.Timeout, 2*time.Second)
	def(&c.TakeOver, time.Second)
	c.Idle = max(c.Idle, c.Busy)
}

// Loop reads engines. Run it once.
type Loop struct {
	cfg     Config
	store   Store
	reader  Reader
	cache   Cache
	publish func(state.Reading)
	log     zerolog.Logger
	metrics *metrics
	wg      sync.WaitGroup

	mu        sync.Mutex
	processes map[string]*process // guarded by mu; by URL
	routers   []state.RouterID    // guarded by mu; the live ones, self first
	epoch     int                 // guarded by mu; changes with routers

	seenMu sync.Mutex
	known  map[state.ReplicaID]*seen // guarded by seenMu
}

// process is one engine process. Its fields are guarded by Loop.mu.
type process struct {
	views []*state.ReplicaView // its ranks, in the View of the last Step
	step  int                  // epoch of the Step that listed it

	place int // of self in the rendezvous order
	epoch int // of the routers that place is for

	reading bool      // a reading is under way
	last    time.Time // when the last own one began
	jitter  float64   // of the wait after it
	other   bool      // when it began, another router's was good
	quiet   int       // own readings in a row that found it idle
	missed  int       // own readings in a row that failed
	told    condition // what the log said last
	back    time.Time // until when this router stands last in the order
}

// New returns a loop. publish gets this router's own readings for the others; it
// must not block.
func New(cfg Config, store Store, reader Reader, cache Cache, publish func(state.Reading), log zerolog.Logger) *Loop {
	cfg.fill()
	return &Loop{
		cfg: cfg, store: store, reader: reader, cache: cache, publish: publish,
		log:       log.With().Str("component", "observe").Logger(),
		metrics:   newMetrics(cfg.Registerer),
		processes: map[string]*process{},
		known:     map[state.ReplicaID]*seen{},
	}
}

// Run reads until ctx ends and waits for the readings under way.
func (l *Loop) Run(ctx context.Context) error {
	// Never a common tick: routers started together must not read together.
	tick := time.NewTimer(jittered(l.cfg.Busy / 4))
	defer tick.Stop()
	defer l.wg.Wait()
	for {
		// Each wake-up costs an idle router more than what it looks at.
		look := min(l.cfg.Busy, l.cfg.Idle/4)
		if l.Step(ctx, time.Now()) {
			look = l.cfg.Busy / 4
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			tick.Reset(jittered(look))
		}
	}
}

// jittered is d, more or less.
func jittered(d time.Duration) time.Duration { return time.Duration(float64(d) * jitter()) }

func jitter() float64 { return 7.0/8 + rand.Float64()/4 }

// Step starts the readings that are due at now. They end by themselves; Run waits
// for them. It reports whether anything runs at an engine, so that the next ones will
// be due soon.
func (l *Loop) Step(ctx context.Context, now time.Time) (busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list(l.store.View())
	for url, p := range l.processes {
		busy = busy || p.busy()
		if p.reading || now.Before(p.due(&l.cfg, now)) || !p.mine(&l.cfg, len(l.routers), now) {
			continue
		}
		p.reading, p.last = true, now
		p.other = readByAnother(&l.cfg, p.views, now.Add(-2*l.cfg.TakeOver))
		p.jitter = jitter()
		ranks := make([]state.Replica, len(p.views))
		for i, v := range p.views {
			ranks[i] = v.Replica
		}
		l.wg.Add(1)
		go l.read(ctx, url, ranks)
	}
	return busy
}

// list brings the processes up to date with the View. The caller holds mu.
func (l *Loop) list(v *state.View) {
	l.setRouters(v)
	step := 0
	for _, p := range l.processes {
		step = p.step + 1
		p.views = p.views[:0]
	}
	for _, pool := range v.Pools {
		for _, r := range pool.Replicas {
			p := l.processes[key(&r.Replica)]
			if p == nil {
				p = &process{jitter: 1, epoch: -1}
				l.processes[key(&r.Replica)] = p
			}
			p.views = append(p.views, r)
			p.step = step
			if p.epoch != l.epoch {
				p.place, p.epoch = place(l.cfg.Self, key(&r.Replica), l.routers), l.epoch
			}
		}
	}
	for url, p := range l.processes {
		if len(p.views) == 0 && !p.reading {
			delete(l.processes, url)
		}
	}
}

// key tells processes apart: replicas with one URL are ranks of one.
func key(r *state.Replica) string {
	if r.URL == "" {
		return string(r.ID)
	}
	return r.URL
}

// read takes one reading of a process and hands it on.
func (l *Loop) read(ctx context.Context, url string, ranks []state.Replica) {
	defer l.wg.Done()
	began := time.Now()
	rctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	list := l.reader.Read(rctx, ranks)
	cancel()
	now := time.Now()
	l.mu.Lock()
	p := l.processes[url]
	p.reading = false
	contradicted := failed(list) && (p.other || readByAnother(&l.cfg, p.views, began))
	if contradicted && p.other {
		p.back = now.Add(stepBack)
	} else if !contradicted && ctx.Err() == nil {
		p.note(list)
		l.tell(p, list)
	}
	l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	l.metrics.seconds.Observe(now.Sub(began).Seconds())
	l.metrics.readings.WithLabelValues(result(list, contradicted)).Inc()
	if contradicted {
		return
	}
	stamp := l.store.Clock().Stamp(now)
	for _, r := range list {
		r.Reader, r.At = l.cfg.Self, stamp
		r.WrongModel, _ = l.wrongModel(&r)
		l.adapters(&r)
		if l.store.ApplyReading(r) {
			l.Note(r, now)
			l.publish(r)
		}
	}
}

// note counts what a reading found. The caller holds mu.
func (p *process) note(list []state.Reading) {
	idle := true
	for i := range list {
		r := &list[i]
		if !r.OK && !r.Loading {
			p.missed++
			p.quiet = 0
			return
		}
		idle = idle && r.Running <= 0 && r.Waiting <= 0
	}
	p.missed = 0
	if idle {
		p.quiet++
	} else {
		p.quiet = 0
	}
}

// stepBack is how long a router leaves an engine to the others that it can't read
// itself and they can.
const stepBack = 10 * time.Second

// readByAnother reports whether another router's reading succeeded after an instant.
// When one of ours fails that began later, that says something of the way between,
// not of the engine; when one fails that had begun before, the engine has become
// well meanwhile.
func readByAnother(cfg *Config, views []*state.ReplicaView, since time.Time) bool {
	for _, r := range views {
		if r.Reading.OK && r.Reading.Reader != cfg.Self && r.ReadingAt.After(since) {
			return true
		}
	}
	return false
}

func failed(list []state.Reading) bool {
	for i := range list {
		if list[i].OK || list[i].Loading {
			return false
		}
	}
	return true
}

// condition is how an engine was found, as far as the log is concerned.
type condition uint8

const (
	unread condition = iota
	readable
	loading
	unreadable
)

// tell logs that an engine can no longer be read, or can again. One missed reading
// is not worth a word. The caller holds mu.
func (l *Loop) tell(p *process, list []state.Reading) {
	r := &list[0]
	now := readable
	switch {
	case r.Loading:
		now = loading
	case !r.OK && (r.Refused || p.missed > 1):
		now = unreadable
	case !r.OK:
		return
	}
	if now == p.told {
		return
	}
	p.told = now
	switch id := string(r.Replica); now {
	case loading:
		l.log.Info().Str("replica", id).Msg("replica is loading")
	case unreadable:
		l.log.Warn().Str("replica", id).Str("err", r.Err).Msg("replica can't be read")
	default:
		l.log.Info().Str("replica", id).Str("engine", string(r.Kind)).Msg("replica is read")
	}
}

// wrongModel is the model of its pool that an engine does not serve, if so, and says
// what it serves.
func (l *Loop) wrongModel(r *state.Reading) (name, what string) {
	if spec := l.pool(r.Replica); spec != nil {
		if what = spec.WrongModel(r); what != "" {
			return spec.UpstreamName(), what
		}
	}
	return "", ""
}

// pool is the pool of a replica, or nil.
func (l *Loop) pool(id state.ReplicaID) *state.PoolSpec {
	v := l.store.View()
	if r := v.Replica(id); r != nil {
		for _, p := range v.Pools {
			if p.Spec.Name == r.Pool {
				return &p.Spec
			}
		}
	}
	return nil
}

// adapters leaves those adapters in a reading that are of its pool's model. That there
// are none is told only where some were known.
func (l *Loop) adapters(r *state.Reading) {
	if r.AdaptersSum == 0 {
		return
	}
	spec, x := l.pool(r.Replica), l.store.View().Replica(r.Replica)
	if spec == nil || x == nil {
		r.Adapters, r.AdapterParents, r.AdaptersSum = nil, nil, 0
		return
	}
	r.Adapters = spec.AdaptersOf(r)
	r.AdapterParents = nil
	if r.AdaptersSum = state.SumAdapters(r.Adapters); len(r.Adapters) == 0 && x.AdaptersSum == 0 {
		r.AdaptersSum = 0
	}
}
