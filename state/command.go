package state

import "time"

// Command is one edit of the committed facts, as it is proposed to the cluster.
// Which fields matter depends on Kind.
type Command struct {
	// ID makes repeats harmless: a command whose ID was applied before has no
	// further effect and gives the first one's result. Empty: one is made up.
	ID   string
	Kind CommandKind
	// Epoch, if not zero, is the fence: the command is refused unless it is the
	// present term's epoch.
	Epoch uint64

	Decision *Decision         // set_target
	Hold     bool              // set_target: the target also gets an operator's hold
	Target   TargetKey         // hold, release
	Replica  *Replica          // add_replica
	Settles  string            // settle: the decision's id
	Outcome  Outcome           // settle
	Detail   string            // settle
	At       time.Time         // settle: for display
	Of       ReplicaID         // remove_replica, drain, undrain
	Drain    *Drain            // drain; its Index is filled in by the commit
	Cluster  string            // set_cluster_id
	Router   RouterID          // begin_term, remove_member, leave
	Pool     string            // set_policy
	Policy   string            // set_policy; empty: what the configuration says again
	Pools    map[string]string // set_config: digests by pool
	Facts    *Facts            // restore
	Force    bool              // restore: of another cluster, too
}

// CommandKind says what a Command does.
type CommandKind string

// Kinds of commands. CommandBeginTerm and CommandSetClusterID are proposed by the
// cluster's leader for itself. CommandRemoveMember and CommandLeave change the set of
// voters, not the facts; CommandRead changes nothing.
const (
	CommandSetTarget     CommandKind = "set_target"
	CommandSettle        CommandKind = "settle"
	CommandAddReplica    CommandKind = "add_replica"
	CommandRemoveReplica CommandKind = "remove_replica"
	CommandDrain         CommandKind = "drain"
	CommandUndrain       CommandKind = "undrain"
	CommandHold          CommandKind = "hold"
	CommandRelease       CommandKind = "release"
	CommandSetPolicy     CommandKind = "set_policy"
	CommandBeginTerm     CommandKind = "begin_term"
	CommandSetClusterID  CommandKind = "set_cluster_id"
	CommandRemoveMember  CommandKind = "remove_member"
	CommandLeave         CommandKind = "leave"
	CommandSetConfig     CommandKind = "set_config"
	CommandRestore       CommandKind = "restore"
	CommandRead          CommandKind = "read"
)

// Refusal is the error of a command that was committed, or understood, and has
// had no effect because the facts speak against it. Repeating it is useless until
// they change.
type Refusal struct {
	Code   RefusalCode
	Reason string // one sentence for people
}

// Error renders code and reason.
func (r *Refusal) Error() string { return "refused (" + string(r.Code) + "): " + r.Reason }

// RefusalCode is the machine's word for why.
type RefusalCode string

// Codes of refusals.
const (
	RefusedStaleEpoch RefusalCode = "stale_epoch" // decided in a term that is over
	RefusedOverlap    RefusalCode = "overlap"     // the target's last decision is still being carried out
	RefusedHeld       RefusalCode = "held"        // an operator holds the target
	RefusedChanged    RefusalCode = "changed"     // the target is no longer what the decision started from
	RefusedSettled    RefusalCode = "settled"     // the decision already has another outcome
	RefusedUnknown    RefusalCode = "unknown"     // names what does not exist
	RefusedFull       RefusalCode = "full"        // a bound is reached
	RefusedAlive      RefusalCode = "alive"       // the voter to be removed lives
	RefusedQuorum     RefusalCode = "quorum"      // the voters can't do without the one that wants to leave
	RefusedForeign    RefusalCode = "foreign"     // of another cluster
	RefusedInvalid    RefusalCode = "invalid"     // makes no sense
)
