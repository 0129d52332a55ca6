package state

import (
	"maps"
	"slices"
	"time"
)

// Facts is what the cluster has agreed on through Raft, as of Index. A published
// Facts is immutable; the state machine clones before it changes anything.
type Facts struct {
	Index     uint64 // Raft index of the last command applied
	ClusterID string
	Epoch     uint64                // index of the present term's first command: the fence for actuators
	Targets   map[TargetKey]int     // wanted replicas
	Holds     map[TargetKey]bool    // an operator's target wins until released
	Decisions []Decision            // oldest first, at most MaxDecisions
	Replicas  map[ReplicaID]Replica // added at run time
	Draining  map[ReplicaID]Drain
}

// MaxDecisions bounds the decision log kept in the committed facts.
const MaxDecisions = 256

// TargetKey names what is scaled: a pool and a role in it.
type TargetKey struct {
	Pool string
	Role Role
}

// Drain is a committed wish that a replica gets no new work.
type Drain struct {
	Index    uint64 // Raft index of the command: a router with FactsIndex >= Index has seen it
	Reason   string
	By       string // operator, or a decision's id
	Deadline time.Duration
}

// Decision is one committed change of a target, and what came of it.
type Decision struct {
	ID       string // unique; repeats of the act carry it
	Index    uint64 // Raft index of the commit
	Epoch    uint64 // fence: index of the entry committed at the start of the deciding term
	Pool     string
	Role     Role
	From, To int
	Reason   string // one sentence for people
	Evidence map[string]float64
	By       string    // router id of the leader, or "operator"
	At       time.Time // leader's wall clock, for display only
	Victims  []ReplicaID
	Outcome  Outcome
	Detail   string // of the outcome
	DoneAt   time.Time
}

// Outcome says how a decision ended.
type Outcome string

// Outcomes of a decision. The empty one is still being carried out.
const (
	OutcomeNone       Outcome = ""
	OutcomeDone       Outcome = "done"
	OutcomeFailed     Outcome = "failed"
	OutcomeSuperseded Outcome = "superseded"
)

// Clone copies the facts so that the copy may be changed.
func (f *Facts) Clone() *Facts {
	c := *f
	c.Targets = maps.Clone(f.Targets)
	c.Holds = maps.Clone(f.Holds)
	c.Replicas = maps.Clone(f.Replicas)
	c.Draining = maps.Clone(f.Draining)
	c.Decisions = slices.Clone(f.Decisions)
	return &c
}

// NewFacts returns facts before anything was agreed.
func NewFacts() *Facts {
	return &Facts{
		Targets:  map[TargetKey]int{},
		Holds:    map[TargetKey]bool{},
		Replicas: map[ReplicaID]Replica{},
		Draining: map[ReplicaID]Drain{},
	}
}
