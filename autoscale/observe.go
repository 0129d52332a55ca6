package autoscale

import (
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Observation is what a plan for one target is made from.
type Observation struct {
	Key    state.TargetKey
	Min    int
	Max    int // 0: the target is not scaled
	Target int // committed, or the replicas there are while nothing was committed
	Known  bool

	Present int // replicas listed
	Serving int // of those, that answer and take work
	Pending int // wanted but not serving
	// PendingFor is how long some have been pending, CalmFor how long the load has
	// been such that one replica could go: by this leader's own watching.
	PendingFor, CalmFor time.Duration

	InFlight      float64 // requests at replicas, those past our routers included
	Queued        float64 // requests that wait at routers
	PrefillTokens float64 // prompt tokens waiting for prefill, at routers too
	Capacity      Capacity

	Coverage float64 // share of live routers with recent rows
	Readings float64 // share of replicas with a recent reading; 1 without replicas
	Skew     float64 // 0: unknown

	Held       bool // by an operator
	Open       bool // the last decision is still being carried out
	OpenUp     bool // and it was upwards
	LastAge    time.Duration
	Decided    bool // there was a decision before; LastAge is its age
	Cooldown   time.Duration
	DownWindow time.Duration
	Removable  int // replicas the actuator could remove
}

// keysOf lists the targets of a pool: one per role that its replicas or its
// committed targets have.
func keysOf(p *state.PoolView, f *state.Facts) []state.TargetKey {
	var keys []state.TargetKey
	add := func(r state.Role) {
		if r == "" {
			r = state.RoleBoth
		}
		if k := (state.TargetKey{Pool: p.Spec.Name, Role: r}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, r := range p.Replicas {
		add(r.Role)
	}
	for k := range f.Targets {
		if k.Pool == p.Spec.Name {
			add(k.Role)
		}
	}
	if len(keys) == 0 {
		add(state.RoleBoth)
	}
	slices.SortFunc(keys, func(a, b state.TargetKey) int { return strings.Compare(string(a.Role), string(b.Role)) })
	return keys
}

// replicasOf are the pool's replicas of one role.
func replicasOf(p *state.PoolView, k state.TargetKey) (list []*state.ReplicaView) {
	for _, r := range p.Replicas {
		if r.Role == k.Role || (r.Role == "" && k.Role == state.RoleBoth) {
			list = append(list, r)
		}
	}
	return list
}

// observe gathers what the plan needs, but for what takes memory.
func (l *Loop) observe(v *state.View, p *state.PoolView, k state.TargetKey, now time.Time) *Observation {
	c := &l.cfg
	o := &Observation{
		Key: k, Min: p.Spec.ScaleMin, Max: p.Spec.ScaleMax,
		Coverage: l.coverage(v, now), Readings: 1, Held: v.Facts.Holds[k],
		Cooldown: p.Spec.ScaleCooldown, DownWindow: p.Spec.ScaleDownWindow,
	}
	replicas := replicasOf(p, k)
	asked, answered, learned := 0, 0, 0
	var sum Capacity
	for _, r := range replicas {
		load := r.Load()
		o.InFlight += float64(load.InFlight)
		o.PrefillTokens += float64(load.UncachedTokens)
		if n, ok := r.Foreign(now); ok {
			o.InFlight += float64(n)
		}
		o.Present++
		if c.Learned != nil {
			if x, ok := c.Learned(r.ID); ok && x.Requests > 0 && x.PrefillTokens > 0 {
				learned++
				sum.Requests += x.Requests
				sum.PrefillTokens += x.PrefillTokens
			}
		}
		recent := !r.ReadingAt.IsZero() && now.Sub(r.ReadingAt) < c.ReadingAge
		if recent && r.Reading.OK && !r.Reading.Loading && !r.Draining {
			o.Serving++
		}
		if now.Sub(r.AddedAt) < c.ReadingAge && !recent {
			continue // too new to be missed
		}
		asked++
		if recent && (r.Reading.OK || r.Reading.Loading) {
			answered++
		}
	}
	if asked > 0 {
		o.Readings = float64(answered) / float64(asked)
	}
	o.Capacity = c.Default
	if learned > 0 {
		o.Capacity = Capacity{sum.Requests / float64(learned), sum.PrefillTokens / float64(learned)}
	}
	if c.Queued != nil && (k.Role == state.RoleBoth || k.Role == state.RolePrefill) {
		o.Queued = float64(c.Queued(p.Spec.Name))
		o.PrefillTokens += float64(v.Backlog(p).Tokens)
	}
	if v.Weights != nil {
		o.Skew = v.Weights.Pools[p.Spec.Name].Skew
	}
	o.Target, o.Known = v.Facts.Targets[k]
	if !o.Known {
		o.Target = o.Present
	} else {
		o.Pending = max(0, o.Target-o.Serving)
	}
	if d := v.Facts.LastDecision(k); d != nil {
		o.Decided, o.LastAge = true, now.Sub(d.Seen)
		o.Open, o.OpenUp = d.Open(), d.To > d.From
	}
	return o
}

// coverage is the share of live routers whose rows are recent. Own rows are.
func (l *Loop) coverage(v *state.View, now time.Time) float64 {
	live := l.cfg.Cluster.Live()
	if len(live) == 0 {
		return 1
	}
	n := 0
	for _, id := range live {
		if id == v.Self {
			n++
		} else if r := router(v, id); r != nil && now.Sub(r.RowsAt) < l.cfg.RowsAge {
			n++
		}
	}
	return float64(n) / float64(len(live))
}

func router(v *state.View, id state.RouterID) *state.RouterView {
	for i := range v.Routers {
		if v.Routers[i].ID == id {
			return &v.Routers[i]
		}
	}
	return nil
}
