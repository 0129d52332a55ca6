package state

import "time"

// Desired is what one pool's role should look like, as the leader tells an
// actuator: a state, never a step, so that telling it twice is telling it once.
type Desired struct {
	// Epoch and Decision are the fence: an actuator refuses, with ErrFenced, an
	// Epoch below the highest it has seen, or a Decision below the highest it has
	// seen for this Target.
	Epoch    uint64
	Decision uint64 // Raft index of the decision that is being carried out
	ID       string // its id, for records
	Target   TargetKey
	Pool     PoolSpec
	// Want is how many replicas the actuator should have, those in Remove not
	// counted.
	Want int
	// Remove lists replicas of the actuator's own that have been drained and may
	// be stopped now. Others are never stopped.
	Remove []ReplicaID
	// Grace is how long a stopping replica may take before it is killed.
	Grace time.Duration
}

// Actual is what an actuator has for one pool's role.
type Actual struct {
	Instances []Instance // in id order, those being stopped included
	// Prefix begins the ids of all replicas of this actuator's own, those that are
	// gone included, and of no others. Empty: there never are any.
	Prefix string
	// Owner names, for people, who else sets the number of replicas, such as a
	// HorizontalPodAutoscaler; empty: nobody. Such a target is left alone.
	Owner string
	// DryRun says that nothing is ever started or stopped: the wish was recorded.
	DryRun bool
}

// Instance is one replica of an actuator's own.
type Instance struct {
	Replica  Replica
	Ready    bool   // it answered its readiness probe
	Stopping bool   // told to stop, not gone yet
	Problem  string // why it is not ready, for people
}

// ErrFenced is an actuator's answer to a leader of the past, or to a decision
// that a later one has replaced.
var ErrFenced error = fencedError{}

type fencedError struct{}

func (fencedError) Error() string { return "fenced: a later term or decision has been seen" }
