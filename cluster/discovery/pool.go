package discovery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// Config is what a Pool needs.
type Config struct {
	Name    string
	Engine  state.EngineKind
	Sources []Source // in order: where two list one address, the later one is right
	Allow   Allow
	// Grace is how long a replica that is listed no more is kept, draining: one that
	// comes back in that time is the same as before. Default DefaultGrace.
	Grace time.Duration
	// Deadline bounds how much longer it is kept for requests that still run there.
	// Default DefaultDeadline.
	Deadline time.Duration
	// Keep is how long a source that can be mistaken is not believed when it lists
	// nothing, where it listed several. Default DefaultKeep.
	Keep time.Duration

	// Others gives the addresses and ids of the replicas that are other pools', with the
	// pool's name: those are refused here. It is asked at each report. nil: none are.
	Others func() map[string]string

	// Apply takes the pool's list when it has changed. It is called from one goroutine.
	Apply func([]state.Replica)
	// Busy reports whether requests run at a replica, as far as is known here.
	Busy func(state.ReplicaID) bool

	Log     zerolog.Logger
	Metrics *Metrics // nil: none
}

// Defaults of a Config.
const (
	DefaultGrace    = time.Minute
	DefaultDeadline = 5 * time.Minute
	DefaultKeep     = 2 * time.Minute
)

// debounce is how long more news is waited for after the first: a Deployment that is
// replaced changes many replicas at once.
const debounce = 100 * time.Millisecond

// Pool keeps the list of one pool's replicas. Its methods are safe for concurrent use.
type Pool struct {
	cfg     Config
	log     zerolog.Logger
	started time.Time
	news    chan struct{} // capacity 1: a Step is due
	heir    bool          // it has succeeded another one; set before Run

	step sync.Mutex // held by a Step until the list is applied

	mu      sync.Mutex
	over    bool                        // guarded by mu; another one has taken its place
	sources []*told                     // guarded by mu; one per source, in order
	members map[state.ReplicaID]*member // guarded by mu; what is applied
	ready   bool                        // guarded by mu; what every source said once is applied
}

// member is one replica of the list.
type member struct {
	replica state.Replica
	absent  time.Time // since when no source lists it; zero: one does
}

// New makes a Pool with no replicas. It starts nothing.
func New(cfg Config) *Pool {
	def := func(d *time.Duration, x time.Duration) {
		if *d == 0 {
			*d = x
		}
	}
	def(&cfg.Grace, DefaultGrace)
	def(&cfg.Deadline, DefaultDeadline)
	def(&cfg.Keep, DefaultKeep)
	if cfg.Busy == nil {
		cfg.Busy = func(state.ReplicaID) bool { return false }
	}
	p := &Pool{
		cfg: cfg, log: cfg.Log.With().Str("component", "discovery").Str("pool", cfg.Name).Logger(),
		members: map[state.ReplicaID]*member{}, started: time.Now(), news: make(chan struct{}, 1),
	}
	for _, s := range cfg.Sources {
		p.sources = append(p.sources, &told{source: s})
	}
	cfg.Metrics.add(p)
	return p
}

// Run looks until ctx ends. What is listed stays listed.
func (p *Pool) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(p.sources))
	var wg sync.WaitGroup
	for i, s := range p.cfg.Sources {
		wg.Go(func() {
			err := s.Run(ctx, func(x Snapshot) {
				if p.Report(i, x, time.Now()) {
					p.wake()
				}
			})
			errs <- err
			cancel() // one that ends by itself ends all
		})
	}
	due := time.NewTimer(time.Hour)
	if p.heir {
		due.Reset(0)
	}
	defer due.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-p.news:
			wait(ctx, debounce)
		case <-due.C:
		}
		if ctx.Err() == nil {
			due.Reset(p.Step(time.Now()))
		}
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// wake has Run take a Step soon.
func (p *Pool) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// maxIdle is how often Step is due where nothing waits.
const maxIdle = time.Minute

// Step works out the list as of now, applies it if it changed, and says when the next
// Step is due at the latest.
func (p *Pool) Step(now time.Time) time.Duration {
	p.step.Lock()
	defer p.step.Unlock()
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return maxIdle
	}
	next, changed := p.settle(now), p.merge(now)
	if d := p.age(now, &changed); d < next {
		next = d
	}
	var list []state.Replica
	if changed {
		for _, m := range p.members {
			list = append(list, m.replica)
		}
		slices.SortFunc(list, func(a, b state.Replica) int { return compare(a.ID, b.ID) })
	}
	answered := p.answered()
	p.mu.Unlock()
	if changed && p.cfg.Apply != nil {
		p.cfg.Apply(list)
	}
	p.mu.Lock()
	p.ready = answered
	p.mu.Unlock()
	return next
}

// answered reports whether every source has given a good answer once. The caller holds
// mu.
func (p *Pool) answered() bool {
	return !slices.ContainsFunc(p.sources, func(t *told) bool { return t.at.IsZero() })
}

// merge brings members to what the sources list. The caller holds mu.
func (p *Pool) merge(now time.Time) (changed bool) {
	want, others := p.wanted(), p.others()
	taken := map[string]bool{} // addresses of replicas that are listed
	for id, r := range want {
		taken[state.Authority(r.URL)] = true
		switch m := p.members[id]; {
		case m == nil:
			p.members[id] = &member{replica: r}
			p.tell("added", &r, "replica found")
		case m.replica == r:
			continue
		default:
			if why := r.Leaving; why != "" && m.replica.Leaving == "" {
				p.tell("left", &r, "replica drains")
			} else if why == "" && m.replica.Leaving != "" {
				p.tell("returned", &r, "replica is back")
			}
			*m = member{replica: r}
		}
		changed = true
	}
	for id, m := range p.members {
		switch _, ok := want[id]; {
		case ok:
		case taken[state.Authority(m.replica.URL)]: // another one has its address now
			delete(p.members, id)
			p.tell("removed", &m.replica, "replica removed, another one has its address")
			changed = true
		case others[state.Authority(m.replica.URL)] != "" || others[string(id)] != "":
			delete(p.members, id)
			p.tell("removed", &m.replica, "replica removed, it is another pool's")
			changed = true
		case m.absent.IsZero() && !p.mayBeListed(&m.replica):
			m.absent = now
			if m.replica.Leaving == "" {
				m.replica.Leaving = state.ListedNoMore
				p.tell("left", &m.replica, "replica drains")
			}
			changed = true
		}
	}
	return changed
}

// age removes what has been absent for long enough. The caller holds mu.
func (p *Pool) age(now time.Time, changed *bool) (next time.Duration) {
	next = maxIdle
	for id, m := range p.members {
		if m.absent.IsZero() {
			continue
		}
		gone := now.Sub(m.absent)
		switch {
		case gone < p.cfg.Grace:
			next = min(next, p.cfg.Grace-gone)
		case gone < p.cfg.Grace+p.cfg.Deadline && p.cfg.Busy(id):
			next = min(next, time.Second)
		default:
			delete(p.members, id)
			p.tell("removed", &m.replica, "replica removed")
			*changed = true
		}
	}
	return next
}

// tell logs and counts a change.
func (p *Pool) tell(change string, r *state.Replica, text string) {
	p.cfg.Metrics.count(p.cfg.Name, change)
	p.log.Info().Str("replica", string(r.ID)).Str("name", r.Name).Str("url", r.URL).Str("reason", r.Leaving).Msg(text)
}

// Name is the pool's.
func (p *Pool) Name() string { return p.cfg.Name }

// Answered reports whether every source has given a good answer once, and that is
// applied.
func (p *Pool) Answered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

// Status says how the sources stand, in their order.
func (p *Pool) Status() (list []SourceStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.sources {
		list = append(list, t.status())
	}
	return list
}
