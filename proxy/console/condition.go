package console

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// condition is how a replica is, as operators see it: the word, the reason as a code
// or as its reader put it, and the whole in words, which is empty where nothing is
// wrong.
func condition(v *state.View, p *state.PoolView, r *state.ReplicaView, now time.Time) (is state.Condition, reason, words string) {
	w := v.Weights.Of(r.ID)
	is = r.Condition(&p.Spec, w, now)
	fault, beside := sensed(p, r, now), ""
	if fault != "" {
		beside = fmt.Sprintf("%s: %s", r.Sensed(&p.Spec, now), fault)
	}
	switch is {
	case state.Draining:
		return is, r.DrainReason, joined(r.DrainReason, beside)
	case state.Unreachable:
		if w.Ejected || w.Trial {
			words = "ejected after " + why(&w)
		}
		return is, fault, joined(fault, words)
	case state.Ejected:
		words = why(&w) + retry(w.Until, now)
		if v.Weights.Pools[p.Spec.Name].Panic {
			words = joined(words, "gets requests all the same, since too many replicas of the pool are ejected")
		}
		return is, w.Reason, joined(words, beside)
	case state.HalfOpen:
		words = "waits for a trial request"
		if w.Trials.Left() == 0 {
			words = "its trial request is under way"
		}
		return is, w.Reason, joined(words+" after "+why(&w), beside)
	case state.Failing:
		words = "fails too often"
		if w.Failures > 0 {
			words = fmt.Sprintf("fails too often (%d since its last success)", w.Failures)
		}
		return is, w.Reason, words + ", and no more replicas of the pool may be ejected"
	case state.Warming:
		return is, "", fmt.Sprintf("is sent the pool's hottest prefixes, %v more at most", left(w.WarmFrom.Add(state.MaxWarming), now))
	case state.Busy:
		return is, "", fmt.Sprintf("answered 429 or 503: others are preferred for %v", left(w.BusyUntil, now))
	case state.SlowStart:
		return is, "", fmt.Sprintf("new or recovered, at %.0f %% of its weight", 100*w.Slow)
	}
	return is, fault, fault
}

// sensed says what readings find wrong with a replica, if anything.
func sensed(p *state.PoolView, r *state.ReplicaView, now time.Time) string {
	switch r.Sensed(&p.Spec, now) {
	case state.Ready:
		return ""
	case state.WrongModel:
		return cmp.Or(p.Spec.WrongModel(&r.Reading), "does not serve its pool's model")
	case state.Unread:
		if r.ReadingAt.IsZero() {
			return "no reading yet"
		}
		return "its reading is old"
	}
	return cmp.Or(r.Reading.Err, "no answer")
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// why says in words for what a replica was ejected.
func why(w *state.Weight) string {
	switch w.Reason {
	case state.ReasonFailures:
		return inARow(w.Failures)
	case state.ReasonFailureRate:
		return fmt.Sprintf("%.0f %% of its recent requests failed", 100*w.FailedShare)
	case state.ReasonOthersFailures:
		if w.Failures > 0 {
			return "this router and others saw it fail"
		}
		return "other routers saw it fail"
	case state.ReasonTrialFailed:
		return "its trial request failed"
	}
	return cmp.Or(w.Reason, "for a reason that is not known")
}

// inARow counts failures since the last success; they are forgotten after a minute.
func inARow(n uint32) string {
	switch n {
	case 0:
		return "failures in a row"
	case 1:
		return "1 failure"
	}
	return fmt.Sprintf("%d failures in a row", n)
}

// retry says when something is tried again.
func retry(at, now time.Time) string {
	if !at.After(now) {
		return ""
	}
	return fmt.Sprintf(", tried again in %v", left(at, now))
}

// left is the time until an instant, in whole seconds, rounded up.
func left(at, now time.Time) time.Duration {
	return (at.Sub(now) + time.Second - 1).Truncate(time.Second)
}
