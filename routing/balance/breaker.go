package balance

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

type phase uint8

const (
	closed   phase = iota // takes traffic
	open                  // takes none until a moment
	halfOpen              // takes one request on trial
)

// breaker is what the loop remembers of one replica from step to step.
type breaker struct {
	phase    phase
	since    time.Time // of the phase
	until    time.Time // end of open
	opens    int       // ejections in a row, for the back-off
	baseline uint32    // of OthersFailures: what was known when the breaker closed is old news
	reason   string
	share    float64 // of recent requests that failed, when that was last the reason

	slowFrom time.Time // slow start began; zero: none
	seen     bool      // slow start was considered when it was first seen
	queue    float64   // smoothed queue, seconds
}

const (
	defaultFailures   = 5
	defaultOpen       = 10 * time.Second
	defaultMaxEjected = 0.5

	// maxBackOff caps how many times an open time is doubled.
	maxBackOff = 3
	// calm is how long a breaker must be closed for its back-off to start over.
	calm = time.Minute
	// ownProof is how young an own success must be to overrule other routers'
	// failures: it may be their path that is broken.
	ownProof = time.Second
	// rateSamples and rateBad eject by rate: so many outcomes of late, so large a
	// share of them failed.
	rateSamples = 10
	rateBad     = 0.5
)

func failures(s *state.PoolSpec) uint32 {
	if s.BreakerFailures > 0 {
		return uint32(s.BreakerFailures)
	}
	return defaultFailures
}

func openTime(s *state.PoolSpec) time.Duration {
	if s.BreakerOpen > 0 {
		return s.BreakerOpen
	}
	return defaultOpen
}

// maxEjected is how many of n replicas may be ejected.
func maxEjected(s *state.PoolSpec, n int) int {
	share := s.BreakerMaxEjected
	if share <= 0 {
		share = defaultMaxEjected
	}
	return int(min(1, share)*float64(n) + 1e-9)
}

// failing says why a replica in traffic should be ejected, or "".
func (b *breaker) failing(t *tally, r *state.ReplicaView, spec *state.PoolSpec, now time.Time) string {
	limit := failures(spec)
	if t.fails >= limit {
		return state.ReasonFailures
	}
	b.baseline = min(b.baseline, r.OthersFailures)
	proof := t.lastOK
	if first := r.Cell.LastFirstToken(); first.After(proof) {
		proof = first
	}
	proven := t.fails == 0 && !proof.IsZero() && now.Sub(proof) < ownProof
	if !proven && t.fails+(r.OthersFailures-b.baseline) >= limit {
		return state.ReasonOthersFailures
	}
	if n := t.ok + t.bad; n >= rateSamples && t.bad > rateBad*n && t.fails > 0 {
		b.share = t.bad / n
		return state.ReasonFailureRate
	}
	return ""
}

// eject opens the breaker.
func (b *breaker) eject(reason string, spec *state.PoolSpec, now time.Time) {
	if b.phase == closed && now.Sub(b.since) > calm {
		b.opens = 0
	}
	b.phase, b.since, b.reason = open, now, reason
	b.until = now.Add(openTime(spec) << min(b.opens, maxBackOff))
	b.opens++
}

// advance moves an ejected replica on: from open to half open when its time is
// over, from there to closed by proof, or back.
func (b *breaker) advance(t *tally, r *state.ReplicaView, spec *state.PoolSpec, panicked bool, now time.Time) {
	proven := t.lastOK.After(b.since) || r.Cell.LastFirstToken().After(b.since)
	switch b.phase {
	case open:
		switch {
		case panicked && proven: // it was in traffic all the same
			b.close(t, r, now)
		case !now.Before(b.until):
			b.phase, b.since = halfOpen, now
		}
	case halfOpen:
		switch {
		case proven:
			b.close(t, r, now)
		case t.lastFailed.After(b.since):
			b.eject(state.ReasonTrialFailed, spec, now)
		}
	}
}

// close ends an ejection. The replica starts slowly, and old evidence is void.
func (b *breaker) close(t *tally, r *state.ReplicaView, now time.Time) {
	b.phase, b.since, b.until, b.reason = closed, now, time.Time{}, ""
	b.baseline = r.OthersFailures
	b.slowFrom = now
	t.fails, t.ok, t.bad = 0, 0, 0
}
