package main

import (
	"fmt"
	"math"
)

// kpa is Knative's Pod autoscaler on concurrency, as its documentation has it: every
// 2 s, the mean concurrency of all Pods over the stable window (60 s by default) and
// over the panic window, a tenth of it, each divided by the target. When the latter asks
// for twice the ready Pods it panics: the larger of both counts and nothing goes, until
// for a stable window it has asked for less. Upwards at most 1000-fold, downwards at
// most by half at a time; with a delay, downwards only what was enough for that long.
// The target is what is aimed at: a container's concurrency times its utilisation.
type kpa struct {
	target  float64 // requests in flight, a replica
	stable  int     // s
	delay   int     // s, of scaling down
	load    *trail  // concurrency, each second
	asked   *trail  // desired replicas, each 2 s
	panics  bool
	since   int // s, of the last time that it had reason to
	highest int
}

// kpaTick is how often it acts, s.
const kpaTick = 2

func newKPA(target float64, stable, delay int) *kpa {
	return &kpa{target: target, stable: stable, delay: delay, load: newTrail(stable), asked: newTrail(delay/kpaTick + 1)}
}

func (k *kpa) name() string { return "KPA" }

func (k *kpa) setting() string {
	return fmt.Sprintf("concurrency %g, window %d s, delay %d s", k.target, k.stable, k.delay)
}

func (k *kpa) act(p *pool) {
	if !p.w.sees(p.now) {
		return
	}
	load, ready := p.heldN, 0.0
	for _, r := range p.list {
		load += r.inFlight()
		if p.serving(r) {
			ready++
		}
	}
	k.load.add(load)
	if p.now%kpaTick != 0 {
		return
	}
	n := k.desired(p, max(1, ready))
	k.asked.add(float64(n))
	p.resize(int(k.asked.most(k.delay/kpaTick + 1)))
}

func (k *kpa) desired(p *pool, ready float64) int {
	within := func(n float64) int {
		return int(min(max(math.Ceil(n), math.Floor(ready/2)), 1000*ready))
	}
	stable := within(k.load.mean(k.stable) / k.target)
	wants := k.load.mean(k.stable/10) / k.target
	quick := within(wants)
	switch {
	case math.Ceil(wants)/ready >= 2:
		if !k.panics {
			k.highest = 0
		}
		k.panics, k.since = true, p.now
	case k.panics && p.now-k.since >= k.stable:
		k.panics = false
	}
	if !k.panics {
		return stable
	}
	k.highest = max(k.highest, stable, quick)
	return k.highest
}
