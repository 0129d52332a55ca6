package balance

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Kind is what an attempt at a replica says of it.
type Kind uint8

// Kinds of outcomes.
const (
	// Neutral says nothing: the client was wrong (400), or left. It is neither a
	// failure nor proof of health.
	Neutral Kind = iota
	// OK is proof of health: a first token, or a complete answer.
	OK
	// Failed is a transport error, a 5xx, a stream that broke or stalled.
	Failed
	// Busy is back-pressure: 429, 503. Busy is not broken: it never ejects.
	Busy
)

// Outcome is what came of one attempt at a replica.
type Outcome struct {
	Replica    state.ReplicaID
	Kind       Kind
	RetryAfter time.Duration // Busy: what the replica asked for; 0 = nothing
	At         time.Time     // zero: now
}

const (
	// maxTallies bounds the replicas remembered between two steps.
	maxTallies = 1 << 16
	// forgetAfter is how long failures and back-pressure are remembered without
	// news: what was true a minute ago is not evidence.
	forgetAfter = time.Minute
	// rateHalfLife is that of the counts behind the failure rate.
	rateHalfLife = 10 * time.Second

	// Back-off after back-pressure that names no time: doubling while nothing
	// succeeds in between.
	busyFirst = 250 * time.Millisecond
	busyMost  = 5 * time.Second
	// retryAfterMost caps what a replica can ask for.
	retryAfterMost = time.Minute
	// busyRepeats is from how many on, in a row, a healthy load sample no longer
	// ends the back-off early: the engine's own figures are then not to be believed.
	busyRepeats = 3
)

// tally sums up the outcomes of one replica.
type tally struct {
	fails   uint32  // failed since the last OK
	busyRun uint32  // busy since the last OK
	ok, bad float64 // decaying counts, as of rated
	rated   time.Time

	lastOK, lastFailed, lastBusy time.Time

	busyUntil time.Time
	asked     bool // the replica named the time
}

// add takes one outcome.
func (t *tally) add(o Outcome) {
	t.decay(o.At)
	switch o.Kind {
	case OK:
		t.fails, t.busyRun, t.busyUntil = 0, 0, time.Time{}
		t.lastOK = o.At
		t.ok++
	case Failed:
		t.fails++
		t.lastFailed = o.At
		t.bad++
	case Busy:
		t.busyRun++
		t.lastBusy = o.At
		wait := min(busyMost, busyFirst<<min(t.busyRun-1, 10))
		if t.asked = o.RetryAfter > 0; t.asked {
			wait = min(o.RetryAfter, retryAfterMost)
		}
		if until := o.At.Add(wait); until.After(t.busyUntil) {
			t.busyUntil = until
		}
	}
}

// decay lets the counts behind the rate fade until now.
func (t *tally) decay(now time.Time) {
	if d := now.Sub(t.rated); d > 0 && !t.rated.IsZero() {
		f := fade(d, rateHalfLife)
		t.ok *= f
		t.bad *= f
	}
	t.rated = now
}

// age forgets what is old, and back-pressure that a later healthy load sample
// contradicts.
func (t *tally) age(r *state.ReplicaView, now time.Time) {
	if t.fails > 0 && now.Sub(t.lastFailed) > forgetAfter {
		t.fails = 0
	}
	if t.busyRun > 0 && now.Sub(t.lastBusy) > forgetAfter {
		t.busyRun = 0
	}
	switch {
	case !t.busyUntil.After(now):
		t.busyUntil = time.Time{}
	case !t.asked && t.busyRun < busyRepeats && r.ReadingAt.After(t.lastBusy) && idle(r, now):
		t.busyUntil = time.Time{}
	}
}

// idle reports whether a fresh reading says that the replica takes work at once.
func idle(r *state.ReplicaView, now time.Time) bool {
	rd := &r.Reading
	return r.Fresh(now) && !rd.Loading && rd.Waiting == 0 && rd.KVUsage < 0.9
}
