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
	// Queue is the prefill that waits there, in seconds of it, smoothed.
	Queue float64
	// Concurrency is the number of requests that its engine runs when others begin to
	// wait for one to end, as seen there, or until then at its fellows; 0 unknown: none
	// has been seen to wait.
	Concurrency float64
	// Pace is its prefill rate beside the median of its pool's, as learned; 0 unknown.
	Pace float64
	// Warming says that the replica's cache is empty, as after its start, and that a router
	// sends it the pool's hottest prefixes, or is about to: it is passed over while another
	// can take the request, for MaxWarming from WarmFrom on at most.
	Warming  bool
	WarmFrom time.Time
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

// MaxWarming bounds how long a replica is passed over since it is warmed.
const MaxWarming = 30 * time.Second

// Warms reports whether the replica is being warmed at now.
func (w *Weight) Warms(now time.Time) bool { return w.Warming && now.Sub(w.WarmFrom) < MaxWarming }

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
	Skew    float64 // max/mean estimated queue seconds; 1 = even, 0 = unknown
	Ejected int
	Panic   bool // too many ejected: ejection is ignored
	// Sharing is the share of prompt tokens that some replica already held when this
	// router picked, 0..1, smoothed; Picks is how many picks that rests on, fading like
	// it: 0 means unknown.
	Sharing float64
	Picks   float64
	// LoadOnly is what the policy auto makes of Sharing: caches are left out of account.
	LoadOnly bool
	// Hot are the prefixes with most requests of the last minute, as this router picked
	// them: the greatest share first, at most MaxHotPrefixes.
	Hot []HotPrefix
	// Prewarm is the same of a pool that prewarms, as many as its PoolSpec.Prewarm says and
	// without holders.
	Prewarm []HotPrefix
	// Queue and QueueMost are the mean and the longest Weight.Queue of replicas in traffic
	// that prefill, in seconds.
	Queue, QueueMost float64
	// TrendShort and TrendLong are the slopes of Queue over the last half minute and the
	// last three minutes, in seconds per second; 0 while too little was seen.
	TrendShort, TrendLong float64
	// LongFor is for how long Queue has been above half the pool's objective for the time
	// to first token.
	LongFor time.Duration
}

// MaxHotPrefixes bounds PoolBalance.Hot.
const MaxHotPrefixes = 5

// HotPrefix is a prefix that many prompts of a pool begin with.
type HotPrefix struct {
	Mark    uint64  // its hash
	Tokens  int     // its depth, estimated
	Share   float64 // of requests, 0..1; at least that
	Holders int     // replicas that hold it; negative unknown
}

// HotShare is the share of requests with the hottest prefix, 0 if none stands out.
func (b *PoolBalance) HotShare() float64 {
	if len(b.Hot) == 0 {
		return 0
	}
	return b.Hot[0].Share
}

// Of returns the weight of a replica; the zero Weight with Slow 1 when the loop
// has no opinion.
func (w *Weights) Of(id ReplicaID) Weight {
	if x, ok := w.Replicas[id]; ok {
		return x
	}
	return fullWeight
}
