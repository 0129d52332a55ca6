package autoscale

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Why a target changes.
const (
	reasonLoad    = "load"    // more is asked than the replicas carry at the wanted utilisation
	reasonWake    = "wake"    // something is asked of a pool that sleeps
	reasonIdle    = "idle"    // fewer would have carried it, for the whole window
	reasonEnough  = "enough"  // those that serve are enough: what is still starting is called off
	reasonMinimum = "minimum" // below the pool's least number
	reasonMaximum = "maximum" // above its greatest
	reasonBudget  = "budget"  // the roles together are above the pool's budget
	reasonTrade   = "trade"   // another role of the pool needs it more
	reasonUndo    = "undo"    // what was traded did not start
)

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
	Utilisation, Busiest     float64 // wanted of small pools, and at most
	Headroom, Rush           float64
	DownMargin               float64 // share below the wanted utilisation that a step down needs
	DownShare, Regrow        float64
	StepUp                   int
	MinCoverage, MinReadings float64
	SkewLimit                float64
	Attainment               float64 // share of requests that are to meet their objectives
	PendingDeadline          time.Duration
}

// needed is how many whole replicas are.
func needed(n need) int { return int(math.Ceil(n.replicas - 1e-9)) }

// couldLose reports whether the load, forecast and correction included, would stay under
// the wanted utilisation with one replica fewer, by the margin. The last replica goes only when nothing at all is asked.
func couldLose(o *Observation, lim *Limits) bool {
	if o.Target <= 1 {
		return o.Target == 1 && o.idle()
	}
	return fitting(o, lim) < o.Target
}

// overloaded reports whether more replicas are needed than are wanted.
func overloaded(o *Observation, lim *Limits) bool {
	return needed(lim.need(o)) > o.Target
}

// Propose is the plan for one target: a pure function of its arguments. Upwards goes at
// once, by at most StepUp or to three times as many; downwards after a calm window, by
// one or by as many as the whole of it could have done without.
func Propose(o *Observation, lim *Limits) Plan {
	n := lim.need(o)
	p := Plan{From: o.Target, To: o.Target, Needed: needed(n)}
	if o.Max <= 0 {
		return p
	}
	stay, calledOff := enough(o)
	switch {
	case o.Target < o.Min:
		p.To, p.Reason = o.Min, reasonMinimum
		p.Text = fmt.Sprintf("the target is %d, and the pool's minimum %d", o.Target, o.Min)
	case o.Target > o.Max:
		p.To, p.Reason = o.Target-1, reasonMaximum
		p.Text = fmt.Sprintf("the target is %d, and the pool's maximum %d", o.Target, o.Max)
	case o.Target == 0 && !o.idle():
		p.Needed = max(1, p.Needed)
		p.To, p.Reason = 1, reasonWake
		p.Text = fmt.Sprintf("%s to an empty pool", wakers(o))
	case p.Needed > o.Target:
		to := p.Needed
		if grown, ok := outgrown(o, lim); ok {
			to = min(to, grown)
		}
		p.To, p.Reason = min(hasten(o, to, lim), o.Target+max(lim.StepUp, 2*o.Target), o.Max), reasonLoad
		p.Text = explain(o, n, lim)
		if p.To > to {
			p.Text += fmt.Sprintf("; %d more until enough serve", p.To-to)
		}
		if p.To == o.Target {
			p.Reason, p.Refusal = "", refusedMaximum
		}
	case calledOff:
		p.To, p.Reason = stay, reasonEnough
		p.Text = fmt.Sprintf("%s that have not come are called off: the load fits the others; %s", replicas(p.From-p.To), explain(o, n, lim))
	case o.Target > o.Min && couldLose(o, lim) && o.CalmFor >= o.DownWindow:
		p.To, p.Reason = o.Target-stepDown(o, lim), reasonIdle
		p.Text = fmt.Sprintf("for %v the load would have fitted %s; %s", whole(o.CalmFor), replicas(p.To), explain(o, n, lim))
		if p.To == 0 {
			p.Text = fmt.Sprintf("nothing was asked for %v", whole(o.CalmFor))
		}
	}
	return p
}

// wakers is what is asked of a pool that sleeps, in words.
func wakers(o *Observation) string {
	switch n := o.InFlight + o.Queued; {
	case n == 1:
		return "1 request came"
	case n > 1:
		return fmt.Sprintf("%.0f requests came", n)
	}
	return "requests come, or are foreseen,"
}

// explain says in one line what asked, how much of what capacity, what is foreseen, the
// correction, and why it is not loop 2's.
func explain(o *Observation, n need, lim *Limits) string {
	i := n.by
	later := o.asked().most(o.Ahead)
	now, ahead, capacity := o.asked(), later.figures(), o.Capacity.figures()
	parts := []string{fmt.Sprintf("%s %s of %s a replica at %.0f%%",
		figure(now.figures()[i]), resourceUnits[i], figure(capacity[i]), 100*n.aim)}
	if other := byPrefill + byOutput - i; n.beside {
		parts[0] += fmt.Sprintf(" beside %s %s of %s", figure(now.figures()[other]), resourceUnits[other], figure(capacity[other]))
	}
	if n.backlog {
		parts[0] = fmt.Sprintf("%s prompt tokens wait, of %s in time a replica", figure(o.PrefillTokens), figure(o.Capacity.PrefillTokens))
		if r := o.Capacity.PrefillRate; r > 0 {
			parts[0] = fmt.Sprintf("%s prompt tokens wait and %s/s come, of %s/s a replica", figure(o.PrefillTokens), figure(o.PrefillRate), figure(r))
		}
	}
	if n.ahead {
		parts = append(parts, fmt.Sprintf("%s foreseen in %v", figure(ahead[i]), whole(o.Horizon)))
	}
	if o.Judged >= sloLeast {
		parts = append(parts, fmt.Sprintf("SLO met by %.0f%%", 100*o.Attained))
	}
	if o.Correction >= 0.005 {
		parts = append(parts, fmt.Sprintf("corrected by +%.0f%%", 100*o.Correction))
	}
	text := fmt.Sprintf("%s: %s needed", strings.Join(parts, ", "), replicas(needed(n)))
	if late := o.late(lim); late > 0 {
		text += fmt.Sprintf("; %s not ready after %v, not waited for", replicas(late), whole(o.PendingFor))
	}
	if o.Skew > 0 {
		how := "even, so not loop 2's"
		if o.Skew > lim.SkewLimit {
			how = "uneven, so loop 2's"
		}
		text += fmt.Sprintf("; skew %.1f: %s", o.Skew, how)
	}
	return text
}

// late counts the replicas that have been pending for too long.
func (o *Observation) late(lim *Limits) int {
	if o.Pending > 0 && o.PendingFor >= lim.PendingDeadline {
		return o.Pending
	}
	return 0
}

// figure is a number for people.
func figure(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.1fM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.0fk", x/1e3)
	case x >= 10 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

func whole(d time.Duration) time.Duration { return d.Round(time.Second) }

const (
	// evidenceTrade and evidenceUndo mark decisions that later ones depend on.
	evidenceTrade   = "trade"
	evidenceUndo    = "undo"
	evidenceNeeded  = "needed"
	evidenceExactly = "needed_exactly"
	// evidenceBefore is the size before a step up, and before those it goes on from.
	evidenceBefore = "before"
	// evidenceDemand and evidenceForecast go before a resource's name.
	evidenceDemand   = "demand_"
	evidenceForecast = "forecast_"
)

// evidence is what a decision was taken on.
func evidence(o *Observation, p *Plan, lim *Limits) map[string]float64 {
	n := lim.need(o)
	e := map[string]float64{
		"in_flight": o.InFlight, "waiting_inside": o.Inside, "queued": o.Queued, "prefill_tokens": o.PrefillTokens,
		"capacity_prefill_tokens": o.Capacity.PrefillTokens,
		"utilisation_target":      n.aim, "growth": o.Growth, evidenceNeeded: float64(p.Needed), evidenceExactly: n.replicas,
		"present": float64(o.Present), "serving": float64(o.Serving), "pending": float64(o.Pending),
		"coverage": o.Coverage, "readings": o.Readings, "skew": o.Skew,
		"start_up_s": o.StartUp.Seconds(), "calm_s": o.CalmFor.Seconds(), "hot_s": o.HotFor.Seconds(),
	}
	now, capacity := o.asked(), o.Capacity.figures()
	for i, x := range now.figures() {
		if x > 0 || capacity[i] > 0 {
			e[evidenceDemand+resourceNames[i]], e["capacity_"+resourceNames[i]] = x, capacity[i]
		}
		if a := o.Ahead.figures()[i]; a > 0 {
			e[evidenceForecast+resourceNames[i]] = a
		}
	}
	if o.Judged > 0 {
		e["slo_attained"], e["slo_correction"] = o.Attained, o.Correction
	}
	if o.Budget > 0 {
		e["budget"] = float64(o.Budget)
	}
	switch p.Reason {
	case reasonLoad:
		e[evidenceBefore] = float64(o.Target)
		if o.Open && o.OpenUp {
			e[evidenceBefore] = float64(o.OpenFrom)
		}
	case reasonTrade:
		e[evidenceTrade] = 1
	case reasonUndo:
		e[evidenceUndo] = 1
	}
	return e
}
