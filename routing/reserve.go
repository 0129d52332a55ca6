package routing

import (
	"math"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Trunk reservation: a band leaves as many places free as those before it are likely to
// want soon. With Poisson arrivals and n requests at a time on average, that number
// varies by the root of n (Erlang's model; guard channels: Hong and Rappaport 1986).
const (
	// reserveRoots is how many roots beyond what they have at a time on average bands find
	// free.
	reserveRoots = 2
	// reserveMost is the most that is left free, as a part of all places: one in so many.
	reserveMost = 3
)

// places is what a pick knows of the places in replicas that have a cap.
type places struct {
	all, free int64 // of the leg's replicas that may get work
	left      int64 // of those free ones, for higher bands
	// kept says that places are kept for the request's like: whatever this router's share
	// is, it may have any that is free.
	kept bool
}

// look counts places, of candidates that were surveyed, and finds how many are left to
// bands before the request's.
func (p *places) look(c *Choice, req *Request, v *state.View, now time.Time) {
	for i := range c.Candidates {
		if s := &c.standing[i]; s.limit > 0 && hasPlaces(c.Candidates[i].Excluded) {
			p.all += s.limit
			p.free += max(0, s.limit-s.own-s.inFlight)
		}
	}
	if p.all == 0 {
		return
	}
	own := req.Pool.Counter.Holds(now)
	asked := v.Asked(req.Pool, &own)
	rank := req.Band.Rank()
	if !req.Anyway && !req.Due {
		of := p.all
		if req.Role == state.RolePrefill {
			of = max(of, answering(req.Pool))
		}
		p.left = leftTo(&own, &asked, rank, of) * p.all / of
	}
	p.kept = keptFor(&own, &asked, rank, p.all)
}

// keptFor reports whether a place is kept for one more request of that rank: for the first
// band, as many as it lately had here and may have soon, and none where it asks for more
// than could be left to it. Routers go over a cap together by what they place before they
// hear of each other, so for the other bands, of which most are, shares hold.
func keptFor(own *state.Holds, asked *[state.Upper]float64, rank int, all int64) bool {
	if rank != 0 || asked[0] > float64(all/reserveMost) {
		return false
	}
	most := own.Asked[0] + reserveRoots*math.Sqrt(asked[0])
	return most >= 0.5 && float64(own.Running[0]) < most // as leftTo rounds
}

// leftTo is how many of all places a request of that rank leaves free for bands before it.
func leftTo(own *state.Holds, asked *[state.Upper]float64, rank int, all int64) int64 {
	n, sum := 0.0, 0.0
	for k := range rank {
		// What others' requests lack of their mean now is not known: nothing, on average.
		n += own.Asked[k] - float64(own.Running[k])
		sum += asked[k]
	}
	return max(0, min(int64(math.Round(n+reserveRoots*math.Sqrt(sum))), all/reserveMost))
}

// answering is the places in replicas that answer: what bands have at a time is counted
// there, and as large a part is left in those that only prefill.
func answering(pool *state.PoolView) (n int64) {
	for _, r := range pool.Replicas {
		if r.Role != state.RolePrefill {
			n += pool.Spec.MaxAt(r)
		}
	}
	return n
}

// hasPlaces reports whether a replica that this request can't be sent to, or "", may yet
// get others.
func hasPlaces(excluded string) bool {
	switch excluded {
	case "", ExcludedTried, ExcludedPinned, ExcludedAdapter, ExcludedWarming:
		return true
	}
	return false
}

// leave excludes the replicas whose places are left to others, and reports whether there
// are any.
func (p *places) leave(c *Choice) (any bool) {
	if p.left == 0 || p.free > p.left {
		return false
	}
	for i := range c.Candidates {
		if k := &c.Candidates[i]; k.Excluded == "" && c.standing[i].limit > 0 {
			k.Excluded, any = ExcludedReserved, true
		}
	}
	return any
}
