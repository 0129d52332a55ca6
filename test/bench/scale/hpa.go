package main

import (
	"fmt"
	"math"
)

// hpa is Kubernetes' HorizontalPodAutoscaler (autoscaling/v2) with one metric of type
// Pods, as its documentation has it: every 15 s, ratio of the mean over the Pods that
// have the metric to its target; no change within 10 %; Pods without the metric
// count as idle when the ratio is above 1 and as at the target when it is below, and
// never turn the direction; upwards at most doubling or 4 Pods in 15 s, at once;
// downwards to the highest recommendation of the stabilisation window. An engine gives
// the metric once it has started; without any the size stays.
type hpa struct {
	metric string  // in_flight: running and waiting requests; queue: waiting requests
	target float64 // of the metric, a replica
	window int     // s, of stabilisation downwards
	seen   *trail  // recommendations, each 15 s
}

// hpaSync is how often it acts, s: the default.
const hpaSync = 15

func newHPA(metric string, target float64, window int) *hpa {
	return &hpa{metric: metric, target: target, window: window, seen: newTrail(window/hpaSync + 1)}
}

func (h *hpa) name() string { return "HPA" }

func (h *hpa) setting() string {
	return fmt.Sprintf("%s %g, window %d s", h.metric, h.target, h.window)
}

func (h *hpa) act(p *pool) {
	if p.now%hpaSync != 0 || !p.w.sees(p.now) {
		return
	}
	n, ok := h.recommend(p)
	if !ok {
		return
	}
	h.seen.add(float64(n))
	n = min(n, max(2*p.wanted, p.wanted+4))
	if n < p.wanted {
		n = min(p.wanted, int(h.seen.most(h.window/hpaSync+1)))
	}
	p.resize(n)
}

// recommend is the size that the metric asks for.
func (h *hpa) recommend(p *pool) (n int, ok bool) {
	sum, with, without := 0.0, 0.0, 0.0
	for _, r := range p.list {
		switch {
		case r.draining:
		case !p.up(r):
			without++
		case h.metric == "queue":
			sum += r.waiting
			with++
		default:
			sum += r.inFlight()
			with++
		}
	}
	if with == 0 {
		return 0, false
	}
	ratio := sum / with / h.target
	if without == 0 {
		if math.Abs(ratio-1) <= 0.1 {
			return p.wanted, true
		}
		return int(math.Ceil(ratio*with - 1e-9)), true
	}
	if ratio < 1 {
		sum += without * h.target
	}
	all := with + without
	next := sum / all / h.target
	if math.Abs(next-1) <= 0.1 || (ratio < 1) != (next < 1) {
		return p.wanted, true
	}
	n = int(math.Ceil(next*all - 1e-9))
	if next < 1 && n > p.wanted || next > 1 && n < p.wanted {
		return p.wanted, true
	}
	return n, true
}
