package main

import (
	"math"
	"slices"
)

// replica is one of the pool's.
type replica struct {
	id       int // the how manieth launched, from 0
	ready    int // s, when it can serve first
	listed   bool
	draining bool
	since    int // s, of the drain
	unready  bool

	waiting, tokens  float64 // requests that wait for their prefill, and their prompts
	streams          float64 // past their first token
	filling          float64 // of the streams, those whose prefill is under way at any moment
	fillingTokens    float64 // and what is left of their prompts
	tpot             float64 // smoothed, s
	wait, rate, step float64 // of the last second: s, prompt tokens/s of full steps, s
	processed        float64 // prompt tokens, cumulative
}

// inFlight are the requests it has.
func (r *replica) inFlight() float64 { return r.waiting + r.streams }

// pool is the model. Its time goes on by tick, one second each.
type pool struct {
	e    *engine
	w    *workload
	seed uint64
	come []second

	now    int
	list   []*replica // launched and not gone, in order of launch
	made   int
	wanted int
	heldN  float64 // requests that no replica could take, and their prompts
	heldT  float64
	fresh  float64 // share of what is dealt out that is not yet counted as missed
	manual bool    // the rule lists replicas before they serve, and stops them itself

	cells   []float64 // scratch of spread
	open    []*replica
	measure measure
	told    counts
}

// counts are what the routers count, all since the beginning: what came, in requests
// and prompt tokens, what ended, in requests and output tokens, first tokens and
// refusals, and streams that ended, and of these those that met their objectives.
type counts struct {
	requests, tokens, ended, output       float64
	firsts, firstsMet, streams, streamMet float64
}

// mostReplicas bounds every rule.
const mostReplicas = 100

// drainTime is how long a draining replica may take to end its requests, s.
const drainTime = 2 * minute

// newPool makes one with so many replicas that serve.
func newPool(e *engine, w *workload, seed uint64, come []second, replicas int) *pool {
	p := &pool{e: e, w: w, seed: seed, come: come, wanted: replicas}
	for range replicas {
		r := p.launch()
		r.ready = 0
		r.streams = e.rest(w.rate(0) / float64(replicas))
		p.measure.come += r.streams
	}
	return p
}

// launch starts a replica.
func (p *pool) launch() *replica {
	r := &replica{id: p.made, ready: p.now + p.w.start(p.seed, p.made)}
	p.made++
	p.list = append(p.list, r)
	return r
}

// up reports whether a replica has started.
func (p *pool) up(r *replica) bool { return p.now >= r.ready }

// serving reports whether a replica gets new requests.
func (p *pool) serving(r *replica) bool {
	return p.up(r) && !r.draining && !r.unready && (r.listed || !p.manual)
}

// stop ends a replica: what it still had is cut off.
func (p *pool) stop(r *replica) {
	p.measure.cut(r.inFlight())
	p.list = slices.DeleteFunc(p.list, func(x *replica) bool { return x == r })
}

// want notes what a rule wants.
func (p *pool) want(n int) {
	p.measure.resized(p.wanted, n)
	p.wanted = n
}

// alive are the replicas that are to stay.
func (p *pool) alive() (n int) {
	for _, r := range p.list {
		if !r.draining {
			n++
		}
	}
	return n
}

// resize is how a Deployment follows: new replicas start at once; those that go are
// first the ones that are not ready, then the youngest. A draining one never comes back.
func (p *pool) resize(n int) {
	n = min(max(1, n), mostReplicas)
	if n != p.wanted {
		p.want(n)
	}
	have := p.alive()
	for ; have < n; have++ {
		p.launch()
	}
	for ; have > n; have-- {
		var victim *replica
		for _, r := range p.list {
			if !r.draining && (victim == nil || p.up(victim) || !p.up(r)) {
				victim = r
			}
		}
		victim.draining, victim.since = true, p.now
	}
}

// sweep stops the drained replicas, and those whose time is over; a rule that is
// manual does it itself.
func (p *pool) sweep() {
	if p.manual {
		return
	}
	for i := len(p.list) - 1; i >= 0; i-- {
		if r := p.list[i]; r.draining && (!p.up(r) || r.inFlight() < 0.5 || p.now-r.since >= drainTime) {
			p.stop(r)
		}
	}
}

// tick lets a second pass.
func (p *pool) tick() {
	come := p.come[p.now]
	n, tokens := float64(come.requests), float64(come.tokens)
	p.measure.begin(p, n)
	p.told.requests += n
	p.told.tokens += tokens
	p.open = p.open[:0]
	for _, r := range p.list {
		if p.w.flaps != nil {
			r.unready = p.w.unready(p.seed, r.id, p.now)
		}
		if p.serving(r) {
			p.open = append(p.open, r)
		}
	}
	if len(p.open) == 0 {
		p.measure.missed(n)
		p.hold(n, tokens)
	} else {
		p.fresh = n / max(1e-9, n+p.heldN)
		p.spread(n+p.heldN, tokens+p.heldT)
		p.heldN, p.heldT = 0, 0
	}
	for _, r := range p.list {
		if p.up(r) && !slices.Contains(p.open, r) {
			p.work(r, 0, 0)
		}
	}
	p.now++
	p.measure.end(p)
}

// hold keeps requests for which no replica serves, up to a bound on all of them.
func (p *pool) hold(n, tokens float64) {
	if p.heldN > 1000 {
		p.measure.turnedAway(n)
		return
	}
	p.heldN += n
	p.heldT += tokens
}

// streamTokens is how many waiting prompt tokens count as much as a stream in the
// choice of a replica.
const streamTokens = 64

// spread deals a second's requests out so that the replicas which get some are loaded
// alike, as picks of the shortest queue do.
func (p *pool) spread(n, tokens float64) {
	p.cells = p.cells[:0]
	sum, count := tokens, 0.0
	for _, r := range p.open {
		level := r.tokens + streamTokens*(r.streams+r.waiting)
		p.cells = append(p.cells, level)
		sum += level
		count++
	}
	level := sum / count
	for changed := true; changed; { // leave out who has more than the level already
		changed = false
		for i, x := range p.cells {
			if x > level && !math.IsInf(x, 1) {
				p.cells[i] = math.Inf(1)
				sum, count, changed = sum-x, count-1, true
				level = sum / count
			}
		}
	}
	for i, r := range p.open {
		share := max(0, level-p.cells[i])
		if tokens == 0 || math.IsInf(p.cells[i], 1) {
			share = 0
		}
		p.work(r, n*share/max(tokens, 1), share)
	}
}

// work is a replica's second, in which n requests of so many prompt tokens come to it.
func (p *pool) work(r *replica, n, tokens float64) {
	e := p.e
	fullStep, rate := e.full(r.streams)
	if over := r.tokens + tokens - patience*rate; over > 0 && tokens > 0 {
		turned := n * min(1, over/tokens)
		p.told.firsts += turned
		p.measure.turnedAway(turned)
		p.measure.missed(turned * p.fresh)
		tokens -= tokens * turned / n
		n -= turned
	}
	// The wait of who comes: for what is there, and half of what comes while it is worked off.
	wait := max(0, r.tokens/rate+(tokens/rate-1)/2)
	r.tokens += tokens
	r.waiting += n
	step, ok := e.step(r.tokens, r.streams)
	done := r.tokens
	if !ok {
		step = fullStep
		done = min(r.tokens, rate)
	}
	ended := r.streams * min(1, 1/(step*e.output))
	first := r.waiting
	if r.tokens > 0 {
		first *= done / r.tokens
	}
	if room := max(0, e.most-r.streams+ended); first > room {
		wait += (first - room) * step * e.output / max(1, r.streams)
		done *= room / first
		first = room
	}
	r.tokens -= done
	r.waiting -= first
	r.streams += first - ended
	r.processed += done
	r.tpot += (step - r.tpot) / smoothTPOT
	p.measure.missed(n * p.fresh * e.late(wait, rate, step))
	p.measure.decoded(r.streams, r.tpot > sloTPOT)
	r.wait, r.rate, r.step = wait, rate, step
	p.measure.finished(ended)
	p.count(first, ended, e.late(wait, rate, step), r.tpot)
	// By Little's law: a prompt that meets no queue is in prefill for its tokens' time.
	r.filling = min(n*e.prompt/rate, r.streams)
	r.fillingTokens = r.filling * e.prompt / 2
}

// count is for a replica's second in which so many requests had their first token, a
// share of them late, and so many ended.
func (p *pool) count(first, ended, late, tpot float64) {
	c := &p.told
	c.firsts += first
	c.firstsMet += first * (1 - late)
	c.ended += ended
	c.output += ended * p.e.output
	c.streams += ended
	if tpot <= sloTPOT {
		c.streamMet += ended
	}
}
