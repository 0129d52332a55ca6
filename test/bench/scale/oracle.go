package main

import (
	"math"
	"slices"
)

// oracle knows what will come and how long each replica will take to start. Its plan
// is how many replicas should serve at each second.
type oracle struct {
	plan  []int
	ahead []int // the most of plan from a second on, over the time that keeps a replica
}

// keep is for how long an idle replica is kept for work to come, s: starting another
// would cost as much.
const keep = (startMin + startMax) / 2

func (o *oracle) name() string    { return "oracle" }
func (o *oracle) setting() string { return "knows the arrivals and start-up times" }

func (o *oracle) act(p *pool) {
	for p.alive() < mostReplicas {
		start := p.now + p.w.start(p.seed, p.made)
		if start >= len(o.plan) || o.by(p, start) >= o.plan[start] {
			break
		}
		p.want(p.wanted + 1)
		p.launch()
	}
	if o.by(p, p.now) <= max(1, o.ahead[p.now]) {
		return
	}
	for _, r := range p.list {
		if p.serving(r) {
			p.want(p.wanted - 1)
			r.draining, r.since = true, p.now
			return
		}
	}
}

// by is how many replicas will serve at a second.
func (o *oracle) by(p *pool, t int) (n int) {
	for _, r := range p.list {
		if !r.draining && r.ready <= t {
			n++
		}
	}
	return n
}

// newOracle makes the plan: what the mean rate of a minute needs, then one replica
// more around each minute that was violated, until none is.
func newOracle(e *engine, w *workload, seed uint64, come []second, use float64) (*oracle, outcome) {
	carries := e.sustains() * e.prompt * use // prompt tokens/s
	o := &oracle{plan: make([]int, len(come))}
	const around = minute + 1 // s, centred; what varies within is waited for
	sum := 0.0
	for t := range come {
		sum += float64(come[t].tokens)
		if t >= around {
			sum -= float64(come[t-around].tokens)
			o.plan[t-around/2] = max(1, int(math.Ceil(sum/around/carries)))
		}
	}
	for t := range around {
		o.plan[t] = o.plan[around]
		o.plan[len(o.plan)-1-t] = o.plan[len(o.plan)-1-around]
	}
	var out outcome
	for range 40 {
		o.look()
		p := newPool(e, w, seed, come, o.ahead[0])
		out = play(p, o)
		if out.Violated == 0 {
			break
		}
		for m, bad := range p.measure.bad {
			if !bad {
				continue
			}
			for t := max(0, (m-1)*minute); t < min(len(o.plan), (m+1)*minute); t++ {
				o.plan[t] = min(o.plan[t]+1, mostReplicas)
			}
		}
	}
	return o, out
}

// look fills in ahead: the maximum of plan over a window that slides.
func (o *oracle) look() {
	o.ahead = slices.Clone(o.plan)
	var queue []int // seconds whose plans fall
	for t := len(o.plan) - 1; t >= 0; t-- {
		for len(queue) > 0 && o.plan[queue[len(queue)-1]] <= o.plan[t] {
			queue = queue[:len(queue)-1]
		}
		queue = append(queue, t)
		for queue[0] > t+keep {
			queue = queue[1:]
		}
		o.ahead[t] = o.plan[queue[0]]
	}
}

// bestOracle is the cheapest of several plans without a violation.
func bestOracle(e *engine, w *workload, seed uint64, come []second, uses []float64) (best outcome, plan *oracle) {
	for _, use := range uses {
		o, out := newOracle(e, w, seed, come, use)
		if plan == nil || out.Violated < best.Violated || out.Violated == best.Violated && out.Hours < best.Hours {
			best, plan = out, o
		}
	}
	return best, plan
}
