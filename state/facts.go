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
	Recovered uint64                // times that an operator has founded the cluster anew on these facts
	Epoch     uint64                // index of the present term's first command: the fence for actuators
	Leader    RouterID              // router that began that term; it may have gone since
	Targets   map[TargetKey]int     // wanted replicas
	Holds     map[TargetKey]bool    // an operator's target wins until released
	Decisions []Decision            // oldest first, at most MaxDecisions
	Replicas  map[ReplicaID]Replica // added at run time
	Draining  map[ReplicaID]Drain
	// Undrained has the Raft index of an operator's last undrain of replicas that
	// are not draining. It ends the drains that routers had made alone until then,
	// which are no facts. At most MaxUndrained.
	Undrained map[ReplicaID]uint64
	// Policies are the routing policies that operators gave pools at run time, by the
	// pool's name. They win over the configuration's.
	Policies map[string]string
	// Config is the configuration of the pools that all routers were found to run last.
	Config ConfigMark
}

// MaxUndrained bounds the undrains kept in the committed facts: the oldest is
// forgotten, after which it ends no router's own drain any more.
const MaxUndrained = 1024

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

	// Seen is when this router first learned of the decision, on its own clock. It
	// never travels. Cooldowns count from it, since no foreign wall clock decides;
	// after a restart it is the time of the restart, which only prolongs them.
	Seen time.Time
}

// Open reports whether the decision is still being carried out.
func (d *Decision) Open() bool { return d.Outcome == OutcomeNone }

// ByOperator is what Decision.By says of a target that an operator set.
const ByOperator = "operator"

// LastDecision is the newest decision about k, or nil. The caller must not change
// it.
func (f *Facts) LastDecision(k TargetKey) *Decision {
	for i := len(f.Decisions) - 1; i >= 0; i-- {
		if d := &f.Decisions[i]; d.Pool == k.Pool && d.Role == k.Role {
			return d
		}
	}
	return nil
}

// Decision finds a decision by id, or nil. The caller must not change it.
func (f *Facts) Decision(id string) *Decision {
	for i := range f.Decisions {
		if f.Decisions[i].ID == id {
			return &f.Decisions[i]
		}
	}
	return nil
}

// Outcome says how a decision ended.
type Outcome string

// DryRunDetail is the detail of a decision that was only recorded.
const DryRunDetail = "dry run: recorded, nothing done"

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
	c.Undrained = maps.Clone(f.Undrained)
	c.Policies = maps.Clone(f.Policies)
	c.Config.Pools = maps.Clone(f.Config.Pools)
	c.Decisions = slices.Clone(f.Decisions)
	return &c
}

// NewFacts returns facts before anything was agreed.
func NewFacts() *Facts {
	return &Facts{
		Targets:   map[TargetKey]int{},
		Holds:     map[TargetKey]bool{},
		Replicas:  map[ReplicaID]Replica{},
		Draining:  map[ReplicaID]Drain{},
		Undrained: map[ReplicaID]uint64{},
		Policies:  map[string]string{},
	}
}
