package autoscale

import (
	"fmt"
	"math"
	"time"
)

// Why a target changes.
const (
	reasonLoad    = "load"    // more is asked than the replicas carry at the wanted utilisation
	reasonIdle    = "idle"    // one fewer would carry it, for the whole window
	reasonMinimum = "minimum" // below the pool's least number
	reasonMaximum = "maximum" // above its greatest
)

// Why it does not, although the plan asks for it.
const (
	refusedHold     = "hold"
	refusedCoverage = "coverage"
	refusedReadings = "readings"
	refusedOpen     = "open"
	refusedPending  = "pending"
	refusedSkewed   = "skewed"
	refusedCooldown = "cooldown"
	refusedMaximum  = "maximum"
	refusedNotOurs  = "not_ours"
	refusedActuator = "actuator"
	refusedCommit   = "commit"
	refusedConfig   = "config"
)

var refusals = []string{
	refusedHold, refusedCoverage, refusedReadings, refusedOpen, refusedPending, refusedSkewed,
	refusedCooldown, refusedMaximum, refusedNotOurs, refusedActuator, refusedCommit, refusedConfig,
}

// Plan is what should become of a target, before the guard.
type Plan struct {
	From, To int
	Needed   int
	Reason   string // empty: nothing is to change
	Text     string // one sentence for people
	Refusal  string // the plan's own: the limits forbid what is needed
}

// Limits are the plan's and the guard's constants.
type Limits struct {
	Utilisation              float64
	StepUp                   int
	MinCoverage, MinReadings float64
	SkewLimit                float64
	PendingDeadline          time.Duration
}

// share is the demand in replicas at full use: the larger of what requests and
// waiting prefill ask for.
func share(o *Observation) float64 {
	var s float64
	if o.Capacity.Requests > 0 {
		s = (o.InFlight + o.Queued) / o.Capacity.Requests
	}
	if o.Capacity.PrefillTokens > 0 {
		s = max(s, o.PrefillTokens/o.Capacity.PrefillTokens)
	}
	return s
}

// needed is how many replicas carry the demand at the wanted utilisation.
func needed(o *Observation, utilisation float64) int {
	return int(math.Ceil(share(o)/utilisation - 1e-9))
}

// couldLose reports whether the load would stay under the wanted utilisation with
// one replica fewer: utilisation now, times N/(N-1). The last replica goes only
// when nothing at all is asked.
func couldLose(o *Observation, utilisation float64) bool {
	if o.Target <= 1 {
		return o.Target == 1 && share(o) == 0
	}
	return share(o)/float64(o.Target-1) < utilisation
}

// Propose is the plan: a pure function of its arguments. Upwards goes at once, by
// at most StepUp; downwards by one, after a calm window.
func Propose(o *Observation, lim *Limits) Plan {
	p := Plan{From: o.Target, To: o.Target, Needed: needed(o, lim.Utilisation)}
	if o.Max <= 0 {
		return p
	}
	switch {
	case o.Target < o.Min:
		p.To, p.Reason = o.Min, reasonMinimum
		p.Text = fmt.Sprintf("the target is %d, and the pool's minimum %d", o.Target, o.Min)
	case o.Target > o.Max:
		p.To, p.Reason = o.Target-1, reasonMaximum
		p.Text = fmt.Sprintf("the target is %d, and the pool's maximum %d", o.Target, o.Max)
	case p.Needed > o.Target:
		p.To, p.Reason = min(p.Needed, o.Target+lim.StepUp, o.Max), reasonLoad
		p.Text = fmt.Sprintf("requests %.0f and prefill tokens %.0f need %s at %.0f%% use",
			o.InFlight+o.Queued, o.PrefillTokens, replicas(p.Needed), 100*lim.Utilisation)
		if p.To == o.Target {
			p.Reason, p.Refusal = "", refusedMaximum
		}
	case o.Target > o.Min && couldLose(o, lim.Utilisation) && o.CalmFor >= o.DownWindow:
		p.To, p.Reason = o.Target-1, reasonIdle
		p.Text = fmt.Sprintf("for %v the load would have fitted %s", o.CalmFor.Round(time.Second), replicas(p.To))
		if p.To == 0 {
			p.Text = fmt.Sprintf("nothing was asked for %v", o.CalmFor.Round(time.Second))
		}
	}
	return p
}

// Guard says why a plan must not be carried out now, or "" if it may.
func Guard(o *Observation, p *Plan, lim *Limits) string {
	up := p.To > p.From
	switch {
	case o.Held:
		return refusedHold
	case o.Coverage < lim.MinCoverage:
		return refusedCoverage
	// One replica that is not read is no zero load: enough to add by, not to remove.
	case o.Readings < lim.MinReadings, !up && o.Readings < 1:
		return refusedReadings
	case o.Open && o.OpenUp == up:
		return refusedOpen
	case up && p.Reason == reasonLoad && o.Pending > 0 && !(o.Open && !o.OpenUp) && o.PendingFor < lim.PendingDeadline:
		return refusedPending
	case up && p.Reason == reasonLoad && o.Skew > lim.SkewLimit:
		return refusedSkewed
	// The minimum is not negotiable, and a request that is held wakes an empty pool.
	case o.Decided && o.LastAge < o.Cooldown && p.Reason != reasonMinimum && p.From > 0:
		return refusedCooldown
	case !up && o.Removable == 0:
		return refusedNotOurs
	}
	return ""
}

// evidence is what a decision was taken on.
func evidence(o *Observation, p *Plan, lim *Limits) map[string]float64 {
	return map[string]float64{
		"in_flight": o.InFlight, "queued": o.Queued, "prefill_tokens": o.PrefillTokens,
		"capacity_requests": o.Capacity.Requests, "capacity_prefill_tokens": o.Capacity.PrefillTokens,
		"utilisation_target": lim.Utilisation, "needed": float64(p.Needed),
		"present": float64(o.Present), "serving": float64(o.Serving), "pending": float64(o.Pending),
		"coverage": o.Coverage, "readings": o.Readings, "skew": o.Skew,
	}
}
