package autoscale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// poolOf finds a pool by its own name.
func poolOf(v *state.View, name string) *state.PoolView {
	for _, p := range v.Pools {
		if p.Spec.Name == name {
			return p
		}
	}
	return nil
}

// turn is one target's part of a round.
type turn struct {
	key    state.TargetKey
	seen   *Observation
	actual state.Actual
	err    error // of the reconciling
	early  bool  // it is planned before a plan is due
}

// serve is the round of one pool's targets. They are planned together: they may have a
// budget in common.
func (l *Loop) serve(ctx context.Context, keys []state.TargetKey, plan bool, now time.Time) error {
	var turns []*turn
	var errs []error
	wakes := false
	fail := func(k state.TargetKey, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("scale %s/%s: %w", k.Pool, k.Role, err))
		}
	}
	for _, k := range keys {
		t := l.attend(ctx, k, now)
		fail(k, t.err)
		if l.memory[k].fenced {
			l.shut[k.Pool] = now.Add(FencedRest)
		}
		if over(t.err) || ctx.Err() != nil {
			return errors.Join(errs...)
		}
		if t.seen == nil {
			return errors.Join(errs...) // the pool is gone
		}
		wakes = wakes || sleeps(t.seen)
		turns = append(turns, t)
	}
	if !plan && !wakes {
		return errors.Join(errs...)
	}
	var list []*Observation
	var plans []Plan
	for _, t := range turns {
		list, plans = append(list, t.seen), append(plans, Propose(t.seen, &l.lim))
	}
	Trade(list, plans, &l.lim)
	for i, t := range turns {
		t.early = !plan
		l.correct(t.key, t.seen, now)
		refusal, err := l.decide(ctx, t, plans[i], now)
		fail(t.key, err)
		l.note(t.key, func(r *Report) { r.Plan, r.Refusal = plans[i], refusal })
		if over(err) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// sleeps reports whether something is asked of an empty pool: it wakes at once, whenever
// the next plan is due.
func sleeps(o *Observation) bool {
	return o.Max > 0 && o.Target == 0 && o.Queued > 0 && !o.Open
}

// attend reconciles one target and observes it.
func (l *Loop) attend(ctx context.Context, k state.TargetKey, now time.Time) *turn {
	m := l.memory[k]
	if m == nil {
		l.m.know(k.Pool)
		m = &memory{quietSince: map[state.ReplicaID]time.Time{}, drainSeen: map[state.ReplicaID]time.Time{}}
		l.memory[k] = m
	}
	t := &turn{key: k}
	m.trouble, m.fenced = "", false
	t.actual, t.err = l.reconcile(ctx, k, m, now)
	var lasted time.Duration
	since(&m.troubleSince, m.trouble != "", now, &lasted)
	v := l.cfg.Cluster.View()
	p := poolOf(v, k.Pool)
	if p == nil {
		return t
	}
	t.seen = l.observe(v, p, k, now)
	if t.actual.Discovered && !t.seen.Known && t.err == nil {
		t.seen.Target = t.actual.Asked + foreign(p, k, t.actual)
	}
	t.seen.remember(m, &t.actual, &l.lim, now)
	l.m.show(t.seen, &l.lim)
	problem := problem(&t.actual)
	if late := t.seen.late(&l.lim); problem == "" && late > 0 {
		problem = fmt.Sprintf("%s not ready after %v: not waited for any more", replicas(late), whole(t.seen.PendingFor))
	}
	elsewhere := moved(v.Facts, &t.actual)
	problem = cmp.Or(problem, elsewhere, t.actual.Note)
	if t.err != nil {
		problem = t.err.Error()
	}
	l.note(k, func(r *Report) {
		r.Key, r.At, r.Seen, r.Problem = k, now, *t.seen, problem
		r.Actuator, r.Trouble, r.TroubleSince, r.Fenced = p.Spec.ScaleActuator, m.trouble, m.troubleSince, m.fenced
		if t.err == nil {
			r.Moved = elsewhere
		}
	})
	return t
}

// remember adds what takes a leader's memory, and what the actuator says.
func (o *Observation) remember(m *memory, a *state.Actual, lim *Limits, now time.Time) {
	if a.DryRun {
		o.Pending = 0 // nothing will ever come
		o.Removable = o.Target
	} else {
		o.Removable = removable(a)
	}
	o.Correction = m.correction
	blind := o.Coverage < lim.MinCoverage || o.Readings < 1
	if m.blind && !blind {
		m.calmSince, m.fits = time.Time{}, sizes{} // what was not seen was not calm
	}
	m.blind = blind
	since(&m.pendingSince, o.Pending > 0, now, &o.PendingFor)
	since(&m.calmSince, o.Target > 0 && couldLose(o, lim), now, &o.CalmFor)
	since(&m.hotSince, overloaded(o, lim), now, &o.HotFor)
	m.fits.note(fitting(o, lim), max(o.DownWindow, o.Cooldown), now)
	o.Fits, o.FitsLately = m.fits.most(o.DownWindow, now), m.fits.most(o.Cooldown, now)
}

// correct takes a step of the correction for the objectives, once an interval.
func (l *Loop) correct(k state.TargetKey, o *Observation, now time.Time) {
	m := l.memory[k]
	if !m.correctedAt.IsZero() && now.Sub(m.correctedAt) < l.cfg.Interval {
		return
	}
	m.correctedAt = now
	m.correction = correct(m.correction, o, &l.lim)
}

// note changes what is reported of a target.
func (l *Loop) note(k state.TargetKey, change func(*Report)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reports[k]
	change(&r)
	l.reports[k] = r
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

func removable(a *state.Actual) (n int) {
	for _, i := range a.Instances {
		if !i.Stopping {
			n++
		}
	}
	return n
}
