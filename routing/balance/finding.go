package balance

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Classes of findings.
const (
	Healthy      = "healthy"
	NoReplica    = "no replica"    // nobody takes requests
	DeadMetrics  = "dead metrics"  // it serves, and its readings are stale or unreadable
	KVFull       = "KV full"       // requests wait for KV space
	SlowReplica  = "slow replica"  // far below its pool's pace
	ColdAdapter  = "cold adapter"  // requests wait for an adapter's slot
	BrokenPrefix = "broken prefix" // prompts that are alike part early
	Skewed       = "skewed"        // one queue is long, the others are not
	Short        = "short"         // all queues are long, and it lasts
	Spike        = "spike"         // all queues are long, and it will be over before a replica could start
	PrefillBound = "prefill-bound" // what is waited for is prefill
	DecodeBound  = "decode-bound"  // what is waited for is room among the streams
)

// Owners of findings.
const (
	OwnerSense   = "sense (loop 0)"
	OwnerRoute   = "route (loop 1)"
	OwnerBalance = "balance (loop 2)"
	OwnerScale   = "scale (loop 3)"
	OwnerQueue   = "queueing"
	OwnerClients = "nobody here: it is in the clients' prompts"
	OwnerNone    = "nobody"
)

// Finding is one problem of a pool, or that there is none.
type Finding struct {
	Class    string   `json:"class"`
	Replicas []string `json:"replicas,omitempty"` // whose problem it is; empty: the whole pool's
	Owner    string   `json:"owner"`              // the control loop that has to deal with it
	Text     string   `json:"text"`               // one sentence
	Evidence []Figure `json:"evidence"`
	Next     string   `json:"next"` // what to do
}

// Figure is one number of the evidence.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // s, ms, %, tokens, bytes, ...; none for counts
}

// Evidence is what Diagnose goes by. It is only read.
type Evidence struct {
	Pool    *state.PoolView
	Weights *state.Weights
	// ITL predicts the time between tokens at a replica with that many streams, in ms;
	// nil: unknown.
	ITL func(r *state.ReplicaView, streams float64) float64
	// Partings says where the latest prompts part.
	Partings []prefix.Parting
	// Waiting is what waits at all routers for a replica of the pool.
	Waiting state.Backlog
	// StartUp is how long a replica takes to start.
	StartUp time.Duration
	Now     time.Time
}

// DefaultStartUp is how long a replica is taken to need for its start while none has
// been seen to start: an engine that loads some ten GB of weights.
const DefaultStartUp = time.Minute

// StartUp is how long the pool's last start of replicas took, by the committed
// decisions; DefaultStartUp if there was none, or all that are started are on paper.
func StartUp(f *state.Facts, spec *state.PoolSpec) time.Duration {
	if spec.ScaleActuator == "" || spec.ScaleActuator == state.DryRun {
		return DefaultStartUp
	}
	for i := len(f.Decisions) - 1; i >= 0; i-- {
		d := &f.Decisions[i]
		if took := d.DoneAt.Sub(d.At); d.Pool == spec.Name && d.To > d.From && d.Outcome == state.OutcomeDone && took > 0 {
			return took
		}
	}
	return DefaultStartUp
}
