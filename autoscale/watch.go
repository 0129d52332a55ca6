package autoscale

import (
	"context"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// watch is what this router has seen of a target's demand, leading or not: a new leader
// has its rates, trends and days at once. Guarded by Loop.watching.
type watch struct {
	rates  rates
	most   float64   // requests that were seen at one replica
	stepAt time.Time // of the last step of trends
	trends [resources]trend
	days   [resources]profile
	growth growth
	rated  [2][]float64 // what a replica prefills and puts out, as learned, at the last steps
}

// steady is a capacity with rates that do not swing: medians of so many points. What
// calibration learns swings by 7 % while nothing changes.
func (w *watch) steady(c Capacity, due bool, points int) Capacity {
	for i, f := range []*float64{&c.PrefillRate, &c.OutputRate} {
		if *f <= 0 { // not known
			w.rated[i] = nil
			continue
		}
		if due || len(w.rated[i]) == 0 {
			w.rated[i] = append(w.rated[i], *f)
		}
		if over := len(w.rated[i]) - points; over > 0 {
			w.rated[i] = slices.Delete(w.rated[i], 0, over)
		}
		*f = median(slices.Clone(w.rated[i]))
	}
	return c
}

// Watch follows the demand until ctx ends. Every router does, so that whichever is
// elected has seen what the last leader saw. It decides nothing.
func (l *Loop) Watch(ctx context.Context) error {
	t := time.NewTicker(l.cfg.Reconcile)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			l.look(time.Now())
		}
	}
}

// look notes the counters of every scaled target, and a step of its trends when one is
// due.
func (l *Loop) look(now time.Time) {
	v := l.cfg.Cluster.View()
	seen := map[state.TargetKey]bool{}
	for _, p := range v.Pools {
		if p.Spec.ScaleMax <= 0 {
			continue
		}
		for _, k := range keysOf(p, v.Facts) {
			seen[k] = true
			l.watching.Lock()
			w := l.watchOf(k)
			w.rates.note(v, p, now)
			due := w.due(l.cfg.Interval, now)
			l.watching.Unlock()
			if due {
				l.observe(v, p, k, now)
			}
		}
	}
	l.watching.Lock()
	defer l.watching.Unlock()
	for k := range l.watches {
		if !seen[k] {
			delete(l.watches, k)
		}
	}
}

// watchOf is a target's watch. The caller holds watching.
func (l *Loop) watchOf(k state.TargetKey) *watch {
	w := l.watches[k]
	if w == nil {
		w = &watch{}
		l.watches[k] = w
	}
	return w
}

// due reports whether the trends' next step is. Steps are equal but for half a second,
// whoever looks.
func (w *watch) due(every time.Duration, now time.Time) bool {
	return w.stepAt.IsZero() || now.Sub(w.stepAt) >= every-every/30
}

// step notes the present demand, when that is due.
func (w *watch) step(d Demand, every time.Duration, now time.Time) {
	if !w.due(every, now) {
		return
	}
	if gap := now.Sub(w.stepAt); !w.stepAt.IsZero() && gap > 4*every {
		w.trends = [resources]trend{} // it was not looked at for a while
	}
	w.stepAt = now
	for i, x := range d.figures() {
		w.trends[i].note(x)
		w.days[i].note(x, now)
	}
}

// ahead is the demand to be expected a while from now, where it will be above the
// present one; else 0.
func (w *watch) ahead(d Demand, in, every time.Duration, daily bool, now time.Time) Demand {
	var f [resources]float64
	for i, x := range d.figures() {
		f[i] = w.trends[i].ahead(float64(in) / float64(every))
		if daily {
			f[i] = max(f[i], w.days[i].ahead(x, in, now))
		}
		if f[i] <= x {
			f[i] = 0
		}
	}
	return demandOf(f)
}
