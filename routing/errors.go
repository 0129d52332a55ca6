package routing

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoReplicas says that the pool has no replicas at all: the request may be
// held until there is one.
var ErrNoReplicas = errors.New("pool has no replicas")

// ErrNoneEligible says that none of the pool's replicas may be picked now.
var ErrNoneEligible = errors.New("no replica is eligible")

// ErrSaturated says that every replica that could take the request is saturated: it
// may wait until one is not.
var ErrSaturated = errors.New("every replica is saturated")

// PickError is the error of Pick. It wraps one of the errors above.
type PickError struct {
	Pool    string
	Total   int           // replicas in the pool
	Reasons []ReasonCount // why they were excluded, in the order of the Excluded constants
	// RetryAfter is when asking again may help, at least a second.
	RetryAfter time.Duration
	Wait       time.Duration // of ErrSaturated: the same, not rounded up
	Kind       error         // ErrNoReplicas, ErrNoneEligible or ErrSaturated
}

// ReasonCount is how many replicas were excluded for one reason.
type ReasonCount struct {
	Reason string
	Count  int
}

// Error names the pool and the counted reasons.
func (e *PickError) Error() string {
	if e.Total == 0 {
		return fmt.Sprintf("pool %q: %v", e.Pool, e.Kind)
	}
	var b strings.Builder
	for i, r := range e.Reasons {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", r.Count, r.Reason)
	}
	return fmt.Sprintf("pool %q: %v: %s (of %d)", e.Pool, e.Kind, b.String(), e.Total)
}

// Unwrap is ErrNoReplicas, ErrNoneEligible or ErrSaturated.
func (e *PickError) Unwrap() error { return e.Kind }

// Count is how many replicas were excluded for a reason.
func (e *PickError) Count(reason string) int {
	for _, r := range e.Reasons {
		if r.Reason == reason {
			return r.Count
		}
	}
	return 0
}

// defaultRetryAfter is the wait suggested when nothing says when things change.
const defaultRetryAfter = time.Second

func noReplicas(pool string) error {
	return &PickError{Pool: pool, Kind: ErrNoReplicas, RetryAfter: 5 * defaultRetryAfter}
}

// noneLeft counts the reasons. It runs only when no replica was picked.
func noneLeft(req *Request, c *Choice, w weightsOf, now time.Time) error {
	e := &PickError{Pool: req.Pool.Spec.Name, Total: len(c.Candidates), Kind: ErrNoneEligible}
	if wait, ok := c.drained(req); ok {
		e.Kind, e.RetryAfter, e.Wait = ErrSaturated, wait, wait
	}
	for _, reason := range exclusions {
		n := 0
		for i := range c.Candidates {
			if c.Candidates[i].Excluded != reason {
				continue
			}
			n++
			if reason == ExcludedEjected {
				if d := w.Of(c.Candidates[i].Replica.ID).Until.Sub(now); d > 0 && (e.RetryAfter == 0 || d < e.RetryAfter) {
					e.RetryAfter = d
				}
			}
		}
		if n > 0 {
			e.Reasons = append(e.Reasons, ReasonCount{reason, n})
		}
	}
	e.RetryAfter = max(e.RetryAfter, defaultRetryAfter)
	return e
}
