package balance

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// member is one replica of a pool as plan sees and changes it: the loop's memory
// of it, and what came of requests.
type member struct {
	view    *state.ReplicaView
	breaker breaker
	tally   tally
	rate    float64 // prefill tokens/s

	limit  concurrency
	joined bool // a running pool, just now

	over    bool    // should be ejected, and too many are
	atATime float64 // requests it runs at a time, its own or its fellows' figure; 0 unknown
	pace    float64 // rate beside the median of its leg; 0 unknown
}

// poolPlan is the outcome for one pool.
type poolPlan struct {
	ejected int
	panic   bool
	skew    float64

	queue, longest float64 // mean and longest queue of those in traffic that prefill, s
}

const (
	// panicShare is the share of a pool that must be left in good health for
	// ejections to count: with hardly anyone left, it is more likely the path, or the
	// requests, that are at fault. A pool that may be ejected as a whole says that it
	// would rather refuse: it knows no panic.
	panicShare = 0.1
	// overPenalty is how long a failing replica that may not be ejected is passed
	// over while others can take the work, from each step on.
	overPenalty = time.Second
	// joinedLater tells replicas that joined a running pool from those that were
	// there when the router started.
	joinedLater = 2 * time.Second
	// slowest is the share of full weight at which slow start begins.
	slowest = 0.1
	// queueHalfLife smooths the queues behind the skew.
	queueHalfLife = 5 * time.Second
	// evenBelow is the mean queue, seconds, under which a pool counts as even.
	evenBelow = 0.005
)

// plan decides one pool: it changes the members' breakers and tallies and says what
// holds for the pool. It is a pure function of its arguments. panicked is the
// plan's last word on the pool; last is when it spoke.
func plan(spec *state.PoolSpec, members []*member, panicked bool, last, now time.Time) poolPlan {
	var p poolPlan
	var want []*member
	n, healthy := 0, 0
	var legs [3]leg
	others := slices.ContainsFunc(members, func(m *member) bool { return !m.view.OfWrongModel(spec, now) })
	for _, m := range members {
		m.over = false
		m.limit.note(m.view)
		m.tally.decay(now)
		m.tally.age(m.view, now)
		m.breaker.advance(&m.tally, m.view, spec, panicked, now)
		if m.view.Draining || others && m.view.OfWrongModel(spec, now) {
			continue // not in traffic, and no stand-in for those that are
		}
		n++
		l := &legs[legOf(m)]
		l.n++
		switch {
		case m.breaker.phase != closed:
			p.ejected++
			l.ejected++
		default:
			if m.breaker.failing(&m.tally, m.view, spec, now) != "" {
				want = append(want, m)
			} else {
				healthy++
			}
		}
	}
	slices.SortFunc(want, func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.tally.fails, a.tally.fails), cmp.Compare(a.view.ID, b.view.ID))
	})
	for _, m := range want {
		if l := &legs[legOf(m)]; l.ejected < maxEjected(spec, l.n) {
			m.breaker.eject(m.breaker.failing(&m.tally, m.view, spec, now), spec, now)
			p.ejected++
			l.ejected++
			continue
		}
		m.over = true
	}
	p.panic = p.ejected > 0 && maxEjected(spec, n) < n && float64(healthy) < panicShare*float64(n)
	planSlowStart(members, now)
	for i := range legs {
		if of := membersOf(members, i); len(of) > 0 {
			p.skew = max(p.skew, planSkew(of, last, now))
			planPace(of)
			planConcurrency(of)
		}
	}
	p.queue, p.longest = queues(members)
	return p
}

// leg is the replicas of a pool that stand in for each other: those of one role.
type leg struct{ n, ejected int }

// legOf is the place of a member's leg among them.
func legOf(m *member) int {
	switch m.view.Role {
	case state.RolePrefill:
		return 1
	case state.RoleDecode:
		return 2
	}
	return 0
}

// membersOf are those of one leg: all of them in a pool without legs.
func membersOf(members []*member, leg int) []*member {
	other := func(m *member) bool { return legOf(m) != leg }
	if !slices.ContainsFunc(members, other) {
		return members
	}
	return slices.DeleteFunc(slices.Clone(members), other)
}

// planSlowStart begins a slow start for replicas that joined a running pool, once
// they are ready.
func planSlowStart(members []*member, now time.Time) {
	oldest := now
	for _, m := range members {
		if m.view.AddedAt.Before(oldest) {
			oldest = m.view.AddedAt
		}
	}
	for _, m := range members {
		b := &m.breaker
		joined := !b.seen && m.view.AddedAt.Sub(oldest) > joinedLater
		m.joined = joined
		if joined || (m.view.Reading.Loading && m.view.ReadingAt.After(b.slowFrom)) {
			b.slowFrom = now
		}
		b.seen = true
	}
}

// slow is the share of full weight at now.
func (b *breaker) slow(ramp time.Duration, now time.Time) float64 {
	if b.slowFrom.IsZero() || ramp <= 0 {
		return 1
	}
	return min(1, slowest+(1-slowest)*float64(now.Sub(b.slowFrom))/float64(ramp))
}

// planSkew smooths the queues and gives max over mean; 1 for a pool with next to
// nothing queued, 0 for one without replicas in traffic. Where nothing runs and
// nothing waits, what was queued before is forgotten at once: it fades evenly, so
// that its unevenness would long outlive it.
func planSkew(members []*member, last, now time.Time) float64 {
	keep := 0.0
	if !last.IsZero() {
		keep = fade(now.Sub(last), queueHalfLife)
	}
	sum, most, n := 0.0, 0.0, 0
	idle := true
	for _, m := range members {
		load := m.view.Load()
		queued := float64(load.UncachedTokens)
		if rd := &m.view.Reading; rd.WaitingUncached > 0 && m.view.Fresh(now) {
			queued += max(0, rd.WaitingUncached-float64(m.view.KnownAtReading.UncachedTokens))
		}
		idle = idle && load.InFlight == 0 && queued <= 0
		b := &m.breaker
		b.queue = keep*b.queue + (1-keep)*queued/max(1, m.rate)
		if m.view.Draining || b.phase != closed {
			continue
		}
		sum += b.queue
		most = max(most, b.queue)
		n++
	}
	if idle {
		for _, m := range members {
			m.breaker.queue = 0
		}
	}
	switch {
	case n == 0:
		return 0
	case idle:
		return 1
	case sum/float64(n) < evenBelow:
		return 1
	}
	return most / (sum / float64(n))
}

// fade is what is left after d of something with a half-life.
func fade(d, half time.Duration) float64 {
	return math.Exp2(-max(0, float64(d)/float64(half)))
}
