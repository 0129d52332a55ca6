package autoscale

import (
	"slices"
	"time"
)

// Why a target does not change, although the plan asks for it.
const (
	refusedHold     = "hold"
	refusedCoverage = "coverage"
	refusedReadings = "readings"
	refusedOpen     = "open"
	refusedPending  = "pending"
	refusedSkewed   = "skewed"
	refusedSpike    = "spike"
	refusedCooldown = "cooldown"
	refusedMaximum  = "maximum"
	refusedBudget   = "budget"
	refusedNotOurs  = "not_ours"
	refusedActuator = "actuator"
	refusedCommit   = "commit"
	refusedConfig   = "config"
)

// sentences say each refusal in words, for people.
var sentences = map[string]string{
	refusedHold:     "an operator set the target and holds it",
	refusedCoverage: "too few of the live routers have been heard of lately",
	refusedReadings: "too few of the replicas were read lately: what was not seen is not zero",
	refusedOpen:     "the last decision in this direction is still being carried out",
	refusedPending:  "replicas that were asked for are not serving yet: they are coming capacity",
	refusedSkewed:   "the load is uneven, which more replicas do not help: balance (loop 2) evens it out",
	refusedSpike:    "it is a short burst so far, and the replicas that there are work it off before a new one would serve",
	refusedCooldown: "the last decision was too short a while ago",
	refusedMaximum:  "more is needed than the pool may have",
	refusedBudget:   "the roles of the pool have as many replicas as its budget allows",
	refusedNotOurs:  "the replicas that could go were not started by the actuator, or something else sets their number",
	refusedActuator: "the actuator fails, so nothing could be carried out",
	refusedCommit:   "the commit failed, or its outcome is unknown",
	refusedConfig:   "the routers differ in how the pool is configured",
}

// Sentence says a refusal in words; empty for none.
func Sentence(refusal string) string { return sentences[refusal] }

// Guard says why a plan must not be carried out now, or "" if it may.
func Guard(o *Observation, p *Plan, lim *Limits) string {
	up := p.To > p.From
	byLoad := up && p.Reason == reasonLoad
	turned := o.Open && !o.OpenUp // a step down is under way: to take it back costs nothing
	_, grown := outgrown(o, lim)
	grown = grown && byLoad
	switch {
	case o.Held:
		return refusedHold
	case o.Coverage < lim.MinCoverage:
		return refusedCoverage
	// One replica that is not read is no zero load: enough to add by, not to remove.
	case o.Readings < lim.MinReadings, !up && o.Readings < 1:
		return refusedReadings
	case o.Open && o.OpenUp == up && !grown:
		return refusedOpen
	case byLoad && o.Pending > 0 && !turned && !grown && o.PendingFor < lim.PendingDeadline:
		return refusedPending
	case byLoad && o.Skew > lim.SkewLimit:
		return refusedSkewed
	case byLoad && !turned && o.Serving > 0 && o.HotFor < patience(o) && !o.outlasts():
		return refusedSpike
	// The minimum is not negotiable, a request wakes an empty pool at once, and what
	// did not start is given back.
	case o.Decided && o.LastAge < o.Cooldown && !grown && p.Reason != reasonMinimum && p.Reason != reasonUndo && p.From > 0:
		return refusedCooldown
	case !up && o.Removable == 0:
		return refusedNotOurs
	}
	return ""
}

const (
	// spikeShare is the share of a start that a burst must last before replicas are
	// started for it. Bursts that have lasted for long last on for about as long; those
	// that are younger than a quarter of a start are mostly over before it would help.
	spikeShare = 0.25
	// spikeMost bounds that: one plan. A slow start is a reason to begin early, too.
	spikeMost = 15 * time.Second
)

// patience is how old an overload must be.
func patience(o *Observation) time.Duration {
	return min(time.Duration(spikeShare*float64(o.StartUp)), spikeMost)
}

// refusals are the reasons in the order in which they are documented.
var refusals = []string{
	refusedHold, refusedCoverage, refusedReadings, refusedOpen, refusedPending, refusedSkewed, refusedSpike,
	refusedCooldown, refusedMaximum, refusedBudget, refusedNotOurs, refusedActuator, refusedCommit, refusedConfig,
}

// Refusals lists the reasons for which plans are refused, as metrics have them.
func Refusals() []string { return slices.Clone(refusals) }

// Lasting says a refusal in words if it is one that somebody should look into; empty for
// those that pass by themselves or are a bound's.
func Lasting(refusal string) string {
	switch refusal {
	case refusedCoverage, refusedReadings, refusedActuator:
		return sentences[refusal]
	}
	return ""
}
