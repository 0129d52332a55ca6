package autoscale

import (
	"cmp"
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
	Problem string // of the last reconciling, for people
}

// Loop scales the pools. Run and Step are for one goroutine at a time; Reports may
// be called from any.
type Loop struct {
	cfg Config
	lim Limits
	log zerolog.Logger
	m   *metrics

	epoch    uint64
	decision int // counts this loop's decisions, for their ids
	planned  time.Time
	memory   map[state.TargetKey]*memory

	mu      sync.Mutex
	reports map[state.TargetKey]Report // guarded by mu
}

// memory is what the loop remembers of a target within a term.
type memory struct {
	calmSince, pendingSince time.Time
	quietSince              map[state.ReplicaID]time.Time // drained and nothing running
	drainSeen               map[state.ReplicaID]time.Time
	broken                  broken
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
			Utilisation: cfg.Utilisation, StepUp: cfg.StepUp, MinCoverage: cfg.MinCoverage, MinReadings: cfg.MinReadings,
			SkewLimit: cfg.SkewLimit, PendingDeadline: cfg.PendingDeadline,
		},
		memory:  map[state.TargetKey]*memory{},
		reports: map[state.TargetKey]Report{},
	}, nil
}

// Begin makes the loop act for the term with that epoch: Step does so from now on.
// What was watched in an earlier term is forgotten, which only delays.
func (l *Loop) Begin(epoch uint64) {
	l.epoch, l.planned = epoch, time.Time{}
	clear(l.memory)
}

// Run acts as the leader's loop until ctx, which ends with the term, or until it
// is told that its term is over.
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
		err := l.Step(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		if over(err) {
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

// over reports that an error says that this term is over.
func over(err error) bool {
	var r *state.Refusal
	return errors.Is(err, state.ErrFenced) || errors.As(err, &r) && r.Code == state.RefusedStaleEpoch
}

// end drops what only a leader may say.
func (l *Loop) end() {
	l.m.target.Reset()
	l.m.actual.Reset()
	l.mu.Lock()
	clear(l.reports)
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
		for _, k := range keysOf(p, l.cfg.Cluster.View().Facts) {
			seen[k] = true
			if err := l.serve(ctx, k, plan, now); err != nil {
				errs = append(errs, fmt.Errorf("scale %s/%s: %w", k.Pool, k.Role, err))
			}
			if ctx.Err() != nil || over(errors.Join(errs...)) {
				return errors.Join(errs...)
			}
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
			l.m.target.DeleteLabelValues(k.Pool, string(k.Role))
			l.m.actual.DeleteLabelValues(k.Pool, string(k.Role))
		}
	}
}

// poolOf finds a pool by its own name.
func poolOf(v *state.View, name string) *state.PoolView {
	for _, p := range v.Pools {
		if p.Spec.Name == name {
			return p
		}
	}
	return nil
}

// serve is one target's round.
func (l *Loop) serve(ctx context.Context, k state.TargetKey, plan bool, now time.Time) error {
	m := l.memory[k]
	if m == nil {
		l.m.know(k.Pool)
		m = &memory{quietSince: map[state.ReplicaID]time.Time{}, drainSeen: map[state.ReplicaID]time.Time{}}
		l.memory[k] = m
	}
	rep := l.report(k)
	actual, err := l.reconcile(ctx, k, m, now)
	rep.Problem = cmp.Or(problem(&actual), actual.Note)
	if err != nil {
		rep.Problem = err.Error()
	}

	v := l.cfg.Cluster.View()
	p := poolOf(v, k.Pool)
	if p == nil {
		return err
	}
	o := l.observe(v, p, k, now)
	if actual.DryRun {
		o.Pending = 0 // nothing will ever come
		o.Removable = o.Target
	} else {
		o.Removable = removable(actual)
	}
	if actual.Discovered && !o.Known && err == nil {
		o.Target = actual.Asked + foreign(p, k, actual)
	}
	since(&m.pendingSince, o.Pending > 0, now, &o.PendingFor)
	since(&m.calmSince, o.Target > 0 && couldLose(o, l.lim.Utilisation), now, &o.CalmFor)
	l.m.target.WithLabelValues(k.Pool, string(k.Role)).Set(float64(o.Target))
	l.m.actual.WithLabelValues(k.Pool, string(k.Role)).Set(float64(o.Serving))
	rep.Key, rep.At, rep.Seen = k, now, *o
	if plan && !over(err) && ctx.Err() == nil {
		var perr error
		rep.Plan, rep.Refusal, perr = l.decide(ctx, v, p, o, actual, err, now)
		err = errors.Join(err, perr)
	}
	l.mu.Lock()
	l.reports[k] = rep
	l.mu.Unlock()
	return err
}

func (l *Loop) report(k state.TargetKey) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reports[k]
}

// since keeps the time since when a condition holds, and says for how long.
func since(t *time.Time, holds bool, now time.Time, d *time.Duration) {
	switch {
	case !holds:
		*t = time.Time{}
	case t.IsZero():
		*t = now
	default:
		*d = now.Sub(*t)
	}
}

func removable(a state.Actual) (n int) {
	for _, i := range a.Instances {
		if !i.Stopping {
			n++
		}
	}
	return n
}

// decide plans, guards and commits.
func (l *Loop) decide(ctx context.Context, v *state.View, pool *state.PoolView, o *Observation, a state.Actual, acting error, now time.Time) (Plan, string, error) {
	p := Propose(o, &l.lim)
	refusal := p.Refusal
	if p.Reason != "" {
		refusal = Guard(o, &p, &l.lim)
		if refusal == "" && acting != nil {
			refusal = refusedActuator // what can't be carried out is not decided
			if errors.Is(acting, state.ErrNotOurs) {
				refusal = refusedNotOurs
			}
		}
		if refusal == "" && l.cfg.Unsettled != nil && l.cfg.Unsettled(o.Key.Pool) {
			refusal = refusedConfig
		}
	}
	if refusal != "" {
		l.m.refusals.WithLabelValues(refusal).Inc()
		l.log.Debug().Str("pool", o.Key.Pool).Str("reason", refusal).Int("from", p.From).Int("to", p.To).Msg("scale decision refused")
		return p, refusal, nil
	}
	if p.Reason == "" {
		return p, "", nil
	}
	if last := v.Facts.LastDecision(o.Key); last != nil && last.Open() {
		if err := l.settle(ctx, last, state.OutcomeSuperseded, "the load turned", now); err != nil {
			return l.uncommitted(p, err)
		}
	}
	l.decision++
	d := &state.Decision{
		ID: fmt.Sprintf("d%d-%d", l.epoch, l.decision), Epoch: l.epoch, Pool: o.Key.Pool, Role: o.Key.Role,
		From: p.From, To: p.To, Reason: p.Text, Evidence: evidence(o, &p, &l.lim), By: string(l.cfg.Self), At: now,
	}
	if p.To < p.From && !a.DryRun {
		d.Victims = l.victims(v, a, nil, p.From-p.To)
	}
	if err := l.cfg.Committer.Commit(ctx, state.Command{ID: d.ID, Kind: state.CommandSetTarget, Epoch: l.epoch, Decision: d}); err != nil {
		return l.uncommitted(p, err)
	}
	direction := "up"
	if p.To < p.From {
		direction = "down"
	}
	l.m.decisions.WithLabelValues(pool.Spec.Name, direction, p.Reason).Inc()
	l.log.Info().Str("pool", d.Pool).Str("role", string(d.Role)).Str("decision", d.ID).Int("from", d.From).Int("to", d.To).
		Str("reason", d.Reason).Msg("scale decision")
	return p, "", nil
}

func (l *Loop) uncommitted(p Plan, err error) (Plan, string, error) {
	l.m.refusals.WithLabelValues(refusedCommit).Inc()
	return p, refusedCommit, err
}

func (l *Loop) settle(ctx context.Context, d *state.Decision, o state.Outcome, detail string, now time.Time) error {
	err := l.cfg.Committer.Commit(ctx, state.Command{
		Kind: state.CommandSettle, Epoch: l.epoch, Settles: d.ID, Outcome: o, Detail: detail, At: now,
	})
	if err == nil {
		l.log.Info().Str("pool", d.Pool).Str("decision", d.ID).Str("outcome", string(o)).Str("reason", detail).Msg("scale decision settled")
	}
	return err
}
