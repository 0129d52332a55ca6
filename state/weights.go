package state

import "time"

// Weights is the balance loop's one output: an immutable value with an age. If
// that loop stops, pickers go on with the last one.
type Weights struct {
	At       time.Time
	Replicas map[ReplicaID]Weight // absent: no opinion
	Pools    map[string]PoolBalance
}

// Weight is the balance loop's word on one replica.
type Weight struct {
	Ejected bool      // take no ordinary traffic
	Trial   bool      // half open: a limited number of trial requests may go
	Until   time.Time // end of the ejection
	Slow    float64   // 0..1: share of full weight during slow start; 1 = full
	Reason  string
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
	return Weight{Slow: 1}
}
