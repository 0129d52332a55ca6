package autoscale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// Report is what the loop last had to say of one target.
type Report struct {
	Key     state.TargetKey
	At      time.Time
	Seen    Observation
	Plan    Plan
	Refusal string // why the plan was not carried out; empty if it was, or asked for nothing
	Problem string // of the last reconciling, or of replicas that do not come up, for people

	Actuator     string    // by its name
	Trouble      string    // of the actuator's last call, if that failed
	TroubleSince time.Time // of the first round of those in a row with one
	Fenced       bool      // Trouble is that a later term or decision was seen
	Moved        string    // a replica whose address is no longer the one in use, for people
}

// Loop scales the pools. Run and Step are for one goroutine at a time; Watch may run
// beside them, and Reports may be called from any.
type Loop struct {
	cfg Config
	lim Limits
	log zerolog.Logger
	m   *metrics

	epoch    uint64
	decision int // counts this loop's decisions, for their ids
	planned  time.Time
	memory   map[state.TargetKey]*memory
	shut     map[string]time.Time // pools that a fence keeps this leader from: until when they rest

	mu      sync.Mutex
	reports map[state.TargetKey]Report // guarded by mu

	watching sync.Mutex
	watches  map[state.TargetKey]*watch // guarded by watching
	refused  refusedLog                 // guarded by mu
}

// memory is what the loop remembers of a target within a term.
type memory struct {
	calmSince, pendingSince, hotSince time.Time
	fits                              sizes     // that would have fitted the load
	blind                             bool      // not all was seen at the last look
	correctedAt                       time.Time // when correction last changed
	correction                        float64

	quietSince map[state.ReplicaID]time.Time // drained and nothing running
	drainSeen  map[state.ReplicaID]time.Time
	broken     broken
	noneSince  time.Time // the actuator lists none where it had several, which is not believed yet

	trouble      string // of the actuator in this round
	troubleSince time.Time
	fenced       bool
}

// broken is what hinders a decision from being carried out.
type broken struct {
	decision string
	since    time.Time
	what     string
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Loop, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("autoscale: %w", err)
	}
	cfg = cfg.withDefaults()
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("autoscale: %w", err)
	}
	for _, p := range cfg.Cluster.View().Pools {
		m.know(p.Spec.Name)
	}
	return &Loop{
		cfg: cfg, m: m,
		log: cfg.Log.With().Str("component", "autoscale").Logger(),
		lim: Limits{
			Utilisation: cfg.Utilisation, Busiest: cfg.Busiest, Headroom: cfg.Headroom,
			Rush: cfg.Rush, DownMargin: cfg.DownMargin, DownShare: cfg.DownShare, Regrow: cfg.Regrow, StepUp: cfg.StepUp,
			MinCoverage: cfg.MinCoverage, MinReadings: cfg.MinReadings,
			SkewLimit: cfg.SkewLimit, Attainment: cfg.Attainment, PendingDeadline: cfg.PendingDeadline,
		},
		memory:  map[state.TargetKey]*memory{},
		shut:    map[string]time.Time{},
		reports: map[state.TargetKey]Report{},
		watches: map[state.TargetKey]*watch{},
	}, nil
}

// Begin makes the loop act for the term with that epoch: Step does so from now on.
// What an earlier term's decisions went by is forgotten, which only delays; what was
// seen of the demand is not.
func (l *Loop) Begin(epoch uint64) {
	l.epoch, l.planned = epoch, time.Time{}
	clear(l.memory)
	clear(l.shut)
}

// Run acts as the leader's loop until ctx, which ends with the term, or until it
// is told that another term has begun. An actuator's fence alone does not end it: a
// pool behind one is tried again every FencedRest, with the same numbers.
func (l *Loop) Run(ctx context.Context, epoch uint64) error {
	l.Begin(epoch)
	defer l.end()
	t := time.NewTicker(l.cfg.Reconcile)
	defer t.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		err := l.tick(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		if stale(err) {
			return err
		}
		// A lasting problem is said once, and again when it has changed.
		if err != nil && err.Error() != said {
			l.log.Warn().Err(err).Msg("scaling is hindered")
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
	}
}

// tick is a step, and what follows from a fence.
func (l *Loop) tick(ctx context.Context, now time.Time) error {
	err := l.Step(ctx, now)
	if errors.Is(err, state.ErrFenced) && !stale(err) && ctx.Err() == nil {
		err = errors.Join(err, l.fenced(ctx, now))
	}
	return err
}

// over reports that an error says that this term is over, as far as can be seen there.
func over(err error) bool { return errors.Is(err, state.ErrFenced) || stale(err) }

// end drops what only a leader may say.
func (l *Loop) end() {
	l.m.end()
	l.mu.Lock()
	clear(l.reports)
	l.refused = refusedLog{}
	l.mu.Unlock()
}

// Reports lists the last word on every target, in order. Empty unless this router
// leads.
func (l *Loop) Reports() []Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Report, 0, len(l.reports))
	for _, r := range l.reports {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Report) int {
		return strings.Compare(a.Key.Pool+"\x00"+string(a.Key.Role), b.Key.Pool+"\x00"+string(b.Key.Role))
	})
	return list
}

// Step reconciles every target and, when a plan is due, plans. Its errors are
// those of single targets; the others were served.
func (l *Loop) Step(ctx context.Context, now time.Time) error {
	l.look(now)
	plan := l.planned.IsZero() || now.Sub(l.planned) >= l.cfg.Interval
	if plan {
		l.planned = now
	}
	var errs []error
	seen := map[state.TargetKey]bool{}
	for _, p := range l.cfg.Cluster.View().Pools {
		if p.Spec.ScaleMax <= 0 {
			continue
		}
		keys := keysOf(p, l.cfg.Cluster.View().Facts)
		for _, k := range keys {
			seen[k] = true
		}
		if now.Before(l.shut[p.Spec.Name]) {
			continue
		}
		if err := l.serve(ctx, keys, plan, now); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil || over(errors.Join(errs...)) {
			return errors.Join(errs...)
		}
	}
	l.forget(seen)
	return errors.Join(errs...)
}

func (l *Loop) forget(seen map[state.TargetKey]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.reports {
		if !seen[k] {
			delete(l.reports, k)
			delete(l.memory, k)
			l.m.forget(k)
		}
	}
}
