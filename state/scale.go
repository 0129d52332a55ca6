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
	// Cluster is the routers' cluster id: epochs of others say nothing.
	Cluster string
	ID      string // its id, for records
	Target  TargetKey
	Pool    PoolSpec
	// Want is how many replicas the actuator should have, those in Remove not
	// counted.
	Want int
	// Remove lists replicas of the actuator's own that have been drained and may
	// be stopped now. Others are never stopped.
	Remove []ReplicaID
	// Grace is how long a stopping replica may take before it is killed.
	Grace time.Duration
	// Deadline is when the decision will have failed; zero: it is over already. For
	// actuators whose doers are told by when.
	Deadline time.Time
}

// Actual is what an actuator has for one pool's role.
type Actual struct {
	Instances []Instance // in id order, those being stopped included
	// Prefix begins the ids of all replicas of this actuator's own, those that are
	// gone included, and of no others. Empty: there never are any.
	Prefix string
	// DryRun says that nothing is ever started or stopped: the wish was recorded.
	DryRun bool
	// Discovered says that discovery lists the replicas, under the same ids: the facts
	// neither gain nor lose them. Prefix is empty then.
	Discovered bool
	// Asked is how many there are to be by the orchestrator, where replicas are
	// Discovered: those that it has yet to make included.
	Asked int
	// Note is what befell the replicas that nobody decided, or what keeps more of them
	// from being made; for people.
	Note string
}

// Instance is one replica of an actuator's own.
type Instance struct {
	Replica  Replica
	Ready    bool   // it answered its readiness probe
	Stopping bool   // told to stop, not gone yet
	Problem  string // why it is not ready, for people
	// Turn orders what goes when there are to be fewer, where that is not for us to
	// say: those of a lower Turn go first. Among equals any can be named.
	Turn int
}

// ErrFenced is an actuator's answer to a leader of the past, or to a decision
// that a later one has replaced.
var ErrFenced error = fencedError{}

// ErrNotOurs is an actuator's answer where somebody else sizes the target. It is
// wrapped by who that is.
var ErrNotOurs error = notOursError{}

type notOursError struct{}

func (notOursError) Error() string { return "it is not this cluster's to scale" }

type fencedError struct{}

func (fencedError) Error() string { return "fenced: a later term or decision has been seen" }
