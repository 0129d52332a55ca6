package main

import (
	"fmt"
	"math"
	"strings"
)

// trial is one workload with one seed: what all rules play against.
type trial struct {
	e    *engine
	w    *workload
	seed uint64
	come []second

	looks string // directory for what hearsay's loop saw; empty: none
}

func newTrial(e *engine, w *workload, seed uint64) *trial {
	return &trial{e: e, w: w, seed: seed, come: w.arrivals(e, seed)}
}

// pool is the trial's beginning: replicas for the first rate at 70 %.
func (t *trial) pool() *pool {
	n := int(math.Ceil(t.w.rate(0) / (0.7 * t.e.sustains())))
	return newPool(t.e, t.w, t.seed, t.come, n)
}

// settle is how long a pool goes on by itself before its rule acts, s: a rule that
// begins beside an empty pool sees a load that never was.
const settle = 2 * minute

func (t *trial) play(r rule) outcome { return play(t.pool(), r) }

func (t *trial) hearsay(x variant) (outcome, error) {
	p := t.pool()
	h, err := newHearsay(p, x)
	if err != nil {
		return outcome{}, err
	}
	out := play(p, h)
	if h.err != nil {
		return out, fmt.Errorf("%s, seed %d: %w", t.w.name, t.seed, h.err)
	}
	if t.looks != "" {
		name := fmt.Sprintf("%s-%s-%d.csv", t.w.name, strings.ReplaceAll(h.setting(), ",", "_"), t.seed)
		return out, h.looks.save(t.looks, name, p.measure.bad)
	}
	return out, nil
}

// oracleUses are the shares of a replica's capacity that plans are tried with.
var oracleUses = []float64{0.9, 0.97}

func (t *trial) oracle() outcome {
	best, _ := bestOracle(t.e, t.w, t.seed, t.come, oracleUses)
	return best
}

// family is a rule and the settings it is swept over.
type family struct {
	name  string
	rules []func() rule
}

// Targets of requests in flight a replica, and of waiting requests.
var (
	inFlightTargets = []float64{20, 25, 30, 40, 50, 60, 70, 80}
	queueTargets    = []float64{0.2, 0.5, 1, 2, 5}
)

// families are the rules; coarse, with a few of their settings.
func families(coarse bool) []family {
	targets, queues, delays := inFlightTargets, queueTargets, []int{0, 300, 900}
	if coarse {
		targets, queues, delays = []float64{30, 40, 50, 60}, nil, delays[:2]
	}
	h, k := family{name: "HPA"}, family{name: "KPA"}
	for _, x := range targets {
		for _, window := range []int{60, 300} {
			h.rules = append(h.rules, func() rule { return newHPA("in_flight", x, window) })
		}
		for _, delay := range delays {
			k.rules = append(k.rules, func() rule { return newKPA(x, 60, delay) })
		}
		if !coarse {
			k.rules = append(k.rules, func() rule { return newKPA(x, 300, 300) })
		}
	}
	for _, x := range queues {
		h.rules = append(h.rules, func() rule { return newHPA("queue", x, 300) })
	}
	return []family{h, k}
}
