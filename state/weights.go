package state

import (
	"sync/atomic"
	"time"
)

// Weights is the balance loop's one output: an immutable value with an age. If
// that loop stops, pickers go on with the last one.
type Weights struct {
	At       time.Time
	Replicas map[ReplicaID]Weight // absent: no opinion
	Pools    map[string]PoolBalance

	bySlot []*Weight // made by the Store; nil where Replicas has none
}

// Weight is the balance loop's word on one replica.
type Weight struct {
	Ejected bool      // take no ordinary traffic
	Trial   bool      // half open: a limited number of trial requests may go
	Until   time.Time // end of the ejection
	Slow    float64   // 0..1: share of full weight during slow start; 1 = full
	Reason  string    // why it is or was ejected, one of the Reason constants; empty while nothing is wrong
	// FailedShare is the share of recent requests that failed, 0..1, where Reason is
	// ReasonFailureRate.
	FailedShare float64
	// BusyUntil is when the replica, which answered "busy" (429, 503), may be
	// expected to take work again. Scorers add what remains as waiting time.
	BusyUntil time.Time
	// Failures counts this router's failed outcomes there since its last success.
	// It travels with the router's rows, so that others eject on it too.
	Failures uint32
	// Trials counts the trial requests that may still go while Trial holds; nil
	// otherwise. It is shared by all Weights of one half-open period.
	Trials *Trials
}

// Reasons of ejections, as codes.
const (
	ReasonFailures       = "failures"        // so many in a row
	ReasonFailureRate    = "failure_rate"    // more than half of the recent requests
	ReasonOthersFailures = "others_failures" // other routers' failures, with own ones
	ReasonTrialFailed    = "trial_failed"    // of a half-open replica
	ReasonEjectionLimit  = "ejection_limit"  // not ejected, though it should be: no more of the pool may be
)

// Trials is a small budget of requests for a half-open replica: the balance loop
// grants, pickers take. Safe for concurrent use; a nil Trials has none left.
type Trials struct{ left atomic.Int32 }

// Grant sets how many requests may go.
func (t *Trials) Grant(n int) { t.left.Store(int32(n)) }

// Left is how many requests may still go.
func (t *Trials) Left() int {
	if t == nil {
		return 0
	}
	return int(max(0, t.left.Load()))
}

// Take uses up one request; it reports false when none is left.
func (t *Trials) Take() bool {
	if t == nil {
		return false
	}
	for {
		n := t.left.Load()
		if n <= 0 {
			return false
		}
		if t.left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// fullWeight is the weight of a replica of which the loop has no opinion. It is
// never changed.
var fullWeight = Weight{Slow: 1}

// For is Of without a search, for a replica of the View that the weights belong to.
// The Weight must not be changed.
func (w *Weights) For(r *ReplicaView) *Weight {
	if int(r.Slot) < len(w.bySlot) {
		if x := w.bySlot[r.Slot]; x != nil {
			return x
		}
	}
	return &fullWeight
}

// PoolBalance is how even one pool's load is.
type PoolBalance struct {
	Skew     float64 // max/mean estimated queue seconds; 1 = even, 0 = unknown
	Ejected  int
	Panic    bool // too many ejected: ejection is ignored
	HotShare float64
	Sharing  float64 // share of prompt tokens that some replica already held
}

// Of returns the weight of a replica; the zero Weight with Slow 1 when the loop
// has no opinion.
func (w *Weights) Of(id ReplicaID) Weight {
	if x, ok := w.Replicas[id]; ok {
		return x
	}
	return fullWeight
}
