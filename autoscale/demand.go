package autoscale

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Demand is what is asked of a target's replicas together. Zero is nothing, or not
// known.
type Demand struct {
	Requests    float64 // under way, those past our routers included, and held at routers
	PrefillRate float64 // prompt tokens to be prefilled that come in a second
	OutputRate  float64 // output tokens a second that the requests that come will ask for
	KVTokens    float64 // KV tokens held
}

// Capacity is what one replica carries at its service level. A zero is not known, and
// does not count; of Default only Requests and PrefillTokens must be known.
type Capacity struct {
	Requests      float64 // requests in flight at once
	PrefillTokens float64 // prompt tokens waiting for prefill that it works off within the TTFT objective
	PrefillRate   float64 // prompt tokens/s that it prefills while the time between tokens keeps its objective, if little is decoded
	OutputRate    float64 // output tokens/s likewise, if little is prefilled: prefill and output share its time
	KVTokens      float64 // KV tokens that it has room for
}

// resource is what a replica can run out of.
type resource int

const (
	byRequests resource = iota
	byPrefill
	byOutput
	byKV
	resources int = iota
)

// resourceNames are the labels of metrics; resourceUnits are for people.
var (
	resourceNames = [resources]string{"requests", "prefill", "output", "kv"}
	resourceUnits = [resources]string{"requests", "prompt tokens/s", "output tokens/s", "KV tokens"}
)

func (d *Demand) figures() [resources]float64 {
	return [resources]float64{d.Requests, d.PrefillRate, d.OutputRate, d.KVTokens}
}

func (c *Capacity) figures() [resources]float64 {
	return [resources]float64{c.Requests, c.PrefillRate, c.OutputRate, c.KVTokens}
}

func demandOf(f [resources]float64) Demand {
	return Demand{f[byRequests], f[byPrefill], f[byOutput], f[byKV]}
}

// most is the greater of each figure.
func (d Demand) most(o Demand) Demand {
	a, b := d.figures(), o.figures()
	for i := range a {
		a[i] = max(a[i], b[i])
	}
	return demandOf(a)
}

// servedBy reports whether replicas of a role have that resource to give: prefill is for
// those that prefill, output for those that decode.
func (r resource) servedBy(role state.Role) bool {
	switch role {
	case state.RolePrefill:
		return r != byOutput
	case state.RoleDecode:
		return r != byPrefill
	}
	return true
}

// need is what a demand asks for.
type need struct {
	replicas float64  // at the wanted utilisation, corrected, the backlog worked off
	aim      float64  // the wanted utilisation
	by       resource // that asks for most
	beside   bool     // both prefill and output ask, of the same steps
	backlog  bool     // it is what waits that asks for more than what comes
	ahead    bool     // it is the forecast that asks for more than there is now
}

// needOf is how many replicas carry what is asked of a target now and, by the forecast,
// until new ones would serve. What waits for prefill is to be worked off beside what
// comes, for which all of the replicas may be used.
func needOf(o *Observation, utilisation float64) need {
	later := o.asked().most(o.Ahead)
	return loadOf(o, &later).at(o, &later, utilisation)
}

// need is needOf at the utilisation that the limits want of such a load.
func (lim *Limits) need(o *Observation) need {
	later := o.asked().most(o.Ahead)
	n := loadOf(o, &later)
	return n.at(o, &later, lim.aim(n.replicas, &o.Capacity, o.Growth))
}

// loadOf is how many replicas a demand would keep wholly busy.
func loadOf(o *Observation, later *Demand) (n need) {
	now := o.asked()
	capacity := o.Capacity.figures()
	var shares [resources]float64
	for i, d := range later.figures() {
		if capacity[i] <= 0 || !resource(i).servedBy(o.Key.Role) {
			continue
		}
		shares[i] = d / capacity[i]
		if shares[i] > n.replicas {
			n.replicas, n.by = shares[i], resource(i)
			n.ahead = d > now.figures()[i]
		}
	}
	// Prefill and decode share an engine's steps.
	if both := shares[byPrefill] + shares[byOutput]; both > n.replicas {
		n.replicas, n.beside = both, shares[byPrefill] > 0 && shares[byOutput] > 0
		if n.by = byPrefill; shares[byOutput] > shares[byPrefill] {
			n.by = byOutput
		}
		n.ahead = later.figures()[n.by] > now.figures()[n.by]
	}
	return n
}

// at is what a load needs at a utilisation, corrected, the backlog worked off.
func (n need) at(o *Observation, later *Demand, utilisation float64) need {
	n.aim = utilisation
	n.replicas *= (1 + o.Correction) / utilisation
	if x := o.toWorkOff(later.PrefillRate); x > n.replicas {
		n.replicas, n.by, n.backlog, n.beside = x, byPrefill, true, false
		n.ahead = later.PrefillRate > o.PrefillRate
	}
	return n
}

// toWorkOff is how many replicas work off what waits for prefill beside what comes:
// within the time of a start, since sooner none that is decided on now would help; where
// their rate is not known, within the objective for the first token. What waits at an
// empty pool does not count: one wakes it.
func (o *Observation) toWorkOff(rate float64) float64 {
	c := &o.Capacity
	switch {
	case o.Target == 0 || o.PrefillTokens <= 0:
		return 0
	case c.PrefillRate > 0:
		within := max(o.Objective, o.StartUp, time.Second)
		return (rate + o.PrefillTokens/within.Seconds()) / c.PrefillRate
	case c.PrefillTokens > 0:
		return o.PrefillTokens / c.PrefillTokens
	}
	return 0
}

// asked is what is asked of the target now. What waits inside engines does so since they
// are full, or for prefill: the need for that does not grow with how long it has.
func (o *Observation) asked() Demand {
	return Demand{
		Requests: o.InFlight - o.Inside + o.Queued, PrefillRate: o.PrefillRate, OutputRate: o.OutputRate, KVTokens: o.KVTokens,
	}
}

// idle reports that nothing at all is asked. What caches hold is not asked for.
func (o *Observation) idle() bool {
	d := o.asked().most(o.Ahead)
	return d.Requests == 0 && d.PrefillRate == 0 && d.OutputRate == 0 && o.PrefillTokens == 0
}

// outlasts reports whether the work that is there now, were none to come any more, keeps
// the present replicas at it for longer than a new one takes to start.
func (o *Observation) outlasts() bool {
	n, c := float64(max(1, o.Serving)), &o.Capacity
	start := o.StartUp.Seconds()
	rate := c.PrefillRate
	if rate == 0 && o.Objective > 0 {
		rate = c.PrefillTokens / o.Objective.Seconds()
	}
	if rate > 0 && o.PrefillTokens/(n*rate) > start {
		return true
	}
	return c.OutputRate > 0 && (o.InFlight+o.Queued)*o.MeanOutput/(n*c.OutputRate) > start
}
