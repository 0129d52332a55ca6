package autoscale

import (
	"cmp"
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
	// been such that one replica could go, HotFor how long more were needed than are
	// wanted: by this leader's own watching. Calm counts only while all was seen.
	PendingFor, CalmFor, HotFor time.Duration
	// Fits is the size that would have fitted the load, by the margin, through all of the
	// window for steps down, FitsLately through the last cooldown; 0: not all was seen.
	Fits, FitsLately int

	InFlight      float64 // requests at replicas, those past our routers included
	Inside        float64 // of those, that wait inside the engines
	Queued        float64 // requests that wait at routers
	PrefillTokens float64 // prompt tokens waiting for prefill, at routers too
	PrefillRate   float64 // prompt tokens to be prefilled that come in a second; 0 while unknown
	OutputRate    float64 // output tokens a second that what comes will ask for; likewise
	MeanOutput    float64 // tokens of an answer; 0 unknown
	KVTokens      float64 // KV tokens held
	Capacity      Capacity

	Growth    float64       // share by which what came has lately exceeded what was foreseen a start before
	Ahead     Demand        // to be expected Horizon from now where that is more; else 0
	Horizon   time.Duration // until a replica that is decided on now serves, and the next one may be decided on
	StartUp   time.Duration // how long replicas take from the decision until they serve
	Objective time.Duration // for the time to first token

	// Attained is the share of Judged requests of the last minutes that met their
	// objectives, as all routers saw them: the lesser of those for the first token and
	// for the time between tokens. Correction is what is needed more for that, as a share.
	Attained   float64
	Judged     int64
	Correction float64

	Coverage float64 // share of live routers with recent rows
	Readings float64 // share of replicas with a recent reading; 1 without replicas
	Skew     float64 // 0: unknown

	Held       bool // by an operator
	Open       bool // the last decision is still being carried out
	OpenUp     bool // and it was upwards
	OpenFrom   int  // from so many, which are the least that are kept
	LastAge    time.Duration
	Decided    bool // there was a decision before; LastAge is its age
	Last       Past // what that one was
	Cooldown   time.Duration
	DownWindow time.Duration
	Removable  int // replicas the actuator could remove

	Budget int // most replicas of all roles of the pool together; 0: no such bound
}

// Past is what the last decision about a target was.
type Past struct {
	Index  uint64
	Up     bool
	Failed bool
	Needed float64 // replicas, exactly; 0 unknown
	Came   Demand  // what came then or was foreseen: rates alone
	Traded bool    // it gave a replica to another role
	Undone bool    // it took such a one back
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

// observe gathers what the plan needs, but for what takes a leader's memory. Any router
// may, at any time.
func (l *Loop) observe(v *state.View, p *state.PoolView, k state.TargetKey, now time.Time) *Observation {
	o := &Observation{
		Key: k, Min: p.Spec.ScaleMin, Max: p.Spec.ScaleMax, Budget: p.Spec.ScaleBudget,
		Coverage: l.coverage(v, now), Held: v.Facts.Holds[k],
		Cooldown: p.Spec.ScaleCooldown, DownWindow: p.Spec.ScaleDownWindow,
		Objective: cmp.Or(p.Spec.SLOTTFT, defaultObjective),
	}
	list := replicasOf(p, k)
	most := l.countReplicas(o, list, now)
	l.countQueue(o, v, p)
	if v.Weights != nil {
		o.Skew = v.Weights.Pools[p.Spec.Name].Skew
	}
	o.Target, o.Known = v.Facts.Targets[k]
	if !o.Known {
		o.Target = o.Present
	} else {
		o.Pending = max(0, o.Target-o.Serving)
	}
	o.past(v.Facts.LastDecision(k), now)
	o.StartUp = l.cfg.StartUp
	if p.Spec.ScaleActuator != state.DryRun { // on paper nothing starts
		o.StartUp = startUp(v.Facts, k, l.cfg.StartUp, l.cfg.PendingDeadline)
	}
	o.Horizon = o.StartUp + o.Cooldown

	l.watching.Lock()
	defer l.watching.Unlock()
	w := l.watchOf(k)
	w.most = max(w.most, most)
	w.rates.note(v, p, now)
	share, due := shareOf(p, k), w.due(l.cfg.Interval, now)
	o.arrivals(&w.rates, rateWindow, share)
	o.Capacity = w.steady(l.capacityOf(p, list, w.most, now), due && !o.distressed(&l.lim), l.cfg.Rated)
	w.step(o.asked(), l.cfg.Interval, now) // trends are told of noise, by which they judge
	o.arrivals(&w.rates, w.rates.window(), share)
	o.Ahead = w.ahead(o.asked(), o.Horizon, l.cfg.Interval, p.Spec.ScaleDaily, now)
	if due {
		w.growth.note(o.asked().most(o.Ahead), o.asked(), o.Horizon, &l.cfg, now)
	}
	o.Growth = w.growth.share
	return o
}

// distressed reports that requests miss their objectives: what engines teach of their
// rates then is not what they can do.
func (o *Observation) distressed(lim *Limits) bool {
	return o.Judged >= sloLeast && o.Attained < lim.Attainment
}

// defaultObjective is the objective for the first token of a pool that has none.
const defaultObjective = 2 * time.Second

// countReplicas counts the replicas and what is at them; most is the most requests at
// one of them.
func (l *Loop) countReplicas(o *Observation, list []*state.ReplicaView, now time.Time) (most float64) {
	asked, answered, kv, kvOf := 0, 0, 0.0, 0
	for _, r := range list {
		load := r.Load()
		n := float64(load.InFlight)
		o.PrefillTokens += float64(load.UncachedTokens)
		if foreign, ok := r.Foreign(now); ok {
			n += float64(foreign)
		}
		o.InFlight += n
		if r.Fresh(now) {
			o.Inside += min(n, max(0, r.Reading.Waiting))
		}
		most = max(most, n)
		o.Present++
		recent := !r.ReadingAt.IsZero() && now.Sub(r.ReadingAt) < l.cfg.ReadingAge
		if recent && r.Reading.OK && !r.Reading.Loading && !r.Draining {
			o.Serving++
		}
		if recent && keepsKV(r) {
			kv += r.Reading.KVUsage * r.Reading.Capacity
			kvOf++
		}
		if now.Sub(r.AddedAt) < l.cfg.ReadingAge && !recent {
			continue // too new to be missed
		}
		asked++
		if recent && (r.Reading.OK || r.Reading.Loading) {
			answered++
		}
	}
	if o.Readings = 1; asked > 0 {
		o.Readings = float64(answered) / float64(asked)
	}
	if kvOf > 0 { // those that were not read hold as much as the others
		o.KVTokens = kv * float64(o.Present) / float64(kvOf)
	}
	if o.Key.Role == state.RoleDecode {
		o.PrefillTokens = 0 // what is prefilled there came of a handover that failed
	}
	return most
}

// countQueue counts what waits at the routers. A request of a pool of two legs waits for
// both.
func (l *Loop) countQueue(o *Observation, v *state.View, p *state.PoolView) {
	if l.cfg.Queued != nil {
		o.Queued = float64(l.cfg.Queued(p.Spec.Name))
	}
	if o.Key.Role != state.RoleDecode {
		o.PrefillTokens += float64(v.Backlog(p).Tokens)
	}
}

// past notes the last decision.
func (o *Observation) past(d *state.Decision, now time.Time) {
	if d == nil {
		return
	}
	o.Decided, o.LastAge = true, now.Sub(d.Seen)
	o.Open, o.OpenUp, o.OpenFrom = d.Open(), d.To > d.From, d.From
	o.Last = Past{
		Index: d.Index, Up: d.To > d.From, Failed: d.Outcome == state.OutcomeFailed,
		Needed: d.Evidence[evidenceExactly],
		Traded: d.Evidence[evidenceTrade] > 0, Undone: d.Evidence[evidenceUndo] > 0,
	}
	rate := func(r resource) float64 {
		return max(d.Evidence[evidenceDemand+resourceNames[r]], d.Evidence[evidenceForecast+resourceNames[r]])
	}
	o.Last.Came = Demand{PrefillRate: rate(byPrefill), OutputRate: rate(byOutput)}
	if n := int(d.Evidence[evidenceBefore]); n > 0 {
		o.OpenFrom = n
	}
	if d.By == state.ByOperator {
		o.OpenFrom = d.To // not to be called off
	}
}

// arrivals notes what came over a window, of which the target's replicas take a share, and
// how it was answered.
func (o *Observation) arrivals(r *rates, window time.Duration, share [resources]float64) {
	if t, _, ok := r.over(sloWindow); ok {
		if t.Answers > 0 {
			o.MeanOutput = float64(t.Output) / float64(t.Answers)
		}
		o.Attained, o.Judged = attained(t, o.Key.Role)
	}
	t, d, ok := r.over(window)
	if !ok {
		return
	}
	if byPrefill.servedBy(o.Key.Role) {
		o.PrefillRate = float64(t.Uncached) / d.Seconds() * share[byPrefill]
	}
	if byOutput.servedBy(o.Key.Role) {
		o.OutputRate = float64(t.Requests) / d.Seconds() * o.MeanOutput * share[byOutput]
	}
}

// attained is the share of requests that met their objectives, and how many were
// judged: prefill answers for the first token, decode for those after it, replicas that
// do both for the worse of the two.
func attained(t state.Traffic, role state.Role) (share float64, of int64) {
	share = 1
	if t.Firsts > 0 && role != state.RoleDecode {
		share, of = float64(t.FirstsMet)/float64(t.Firsts), t.Firsts
	}
	if t.Streams > 0 && role != state.RolePrefill {
		if s := float64(t.StreamsMet) / float64(t.Streams); s < share || of == 0 {
			share, of = s, t.Streams
		}
	}
	return share, of
}

// shareOf is what share of a pool's work is a target's, by the replicas that could do it:
// all of it, but in a pool that has both legs and replicas for whole requests.
func shareOf(p *state.PoolView, k state.TargetKey) (share [resources]float64) {
	var own, of [resources]float64
	for _, r := range p.Replicas {
		role := cmp.Or(r.Role, state.RoleBoth)
		for i := range of {
			if !resource(i).servedBy(role) {
				continue
			}
			of[i]++
			if role == k.Role {
				own[i]++
			}
		}
	}
	for i := range share {
		if share[i] = 1; of[i] > 0 {
			share[i] = own[i] / of[i]
		}
	}
	return share
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
