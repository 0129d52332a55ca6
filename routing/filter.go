package routing

import (
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Reasons for which a replica can't be picked. Those from ExcludedLoading on give
// way, the last one first, when nothing would be left.
const (
	ExcludedRole        = "role"        // serves another leg
	ExcludedTried       = "tried"       // named in Request.Exclude
	ExcludedPinned      = "pinned"      // not the one in Request.Only
	ExcludedDraining    = "draining"    // gets no new work
	ExcludedEjected     = "ejected"     // by the balance loop, and its pool isn't in panic
	ExcludedTrial       = "trial"       // half open, and its trial requests are out
	ExcludedAdapter     = "adapter"     // others list the adapter, it doesn't
	ExcludedLoading     = "loading"     // answers, but isn't ready
	ExcludedUnreachable = "unreachable" // readers agree that it can't be reached, and nothing it served says otherwise
	ExcludedWrongModel  = "wrong_model" // does not serve the pool's model, and would answer 404
	ExcludedSaturated   = "saturated"   // its queue is too long, it has all requests it may have, or its KV is full
	ExcludedReserved    = "reserved"    // its free places are left to higher bands
	ExcludedITL         = "itl"         // one more stream would break the pool's ITL objective
	ExcludedWarming     = "warming"     // its cache is empty and is being filled
)

// exclusions is every reason in the order of precedence.
var exclusions = [...]string{
	ExcludedRole, ExcludedTried, ExcludedPinned, ExcludedDraining, ExcludedEjected, ExcludedTrial,
	ExcludedAdapter, ExcludedLoading, ExcludedUnreachable, ExcludedWrongModel, ExcludedSaturated, ExcludedReserved, ExcludedITL, ExcludedWarming,
}

// Exclusions lists the closed set of reasons for which a replica can't be picked.
func Exclusions() []string { return exclusions[:] }

// softExclusions give way in this order when no replica is left: a cold replica is
// better than one that can't keep its objective, and than waiting for one that is
// saturated. That of another model does so only where all replicas of the leg are of one: then the pool's model
// may be what is wrong, and the engines' own answer tells best. Any other replica,
// though it can't take the request now, may be back when the client asks again.
var softExclusions = [...]string{ExcludedWarming, ExcludedITL, ExcludedUnreachable, ExcludedLoading, ExcludedWrongModel}

const (
	// downAfter is how long readings must have found a replica unreachable before
	// it counts: twice the bound within which another reader takes over.
	downAfter = 2 * time.Second
	// downAlone is the same where no second reader has confirmed it.
	downAlone = 5 * time.Second
	// loadingUseful is the age past which "still loading" is no longer believed.
	loadingUseful = 10 * time.Second
)

// weightsOf is what filter reads of the weights; *state.Weights.
type weightsOf interface {
	Of(state.ReplicaID) state.Weight
}

// exclude says why r can't take the request, or "".
func (p *Picker) exclude(req *Request, r *state.ReplicaView, w *state.Weight, panicking, listed bool, now time.Time) string {
	switch {
	case !serves(r.Role, req.Role):
		return ExcludedRole
	case len(req.Exclude) > 0 && slices.Contains(req.Exclude, r.ID):
		return ExcludedTried
	case req.Only != "" && r.ID != req.Only:
		return ExcludedPinned
	case r.Draining && req.Only == "":
		return ExcludedDraining
	case w.Ejected && !w.Trial && !panicking:
		return ExcludedEjected
	case w.Trial && !panicking && w.Trials.Left() == 0:
		return ExcludedTrial
	case listed && !r.ListsAdapter(req.Adapter):
		return ExcludedAdapter
	case r.Reading.Loading && now.Sub(r.ReadingAt) < loadingUseful:
		return ExcludedLoading
	case refused(r, now), unreachable(r, now):
		return ExcludedUnreachable
	case r.OfWrongModel(&req.Pool.Spec, now):
		return ExcludedWrongModel
	case req.Only == "" && w.Warms(now):
		return ExcludedWarming
	}
	return ""
}

// allOfWrongModel reports whether no replica of the leg is known to be, or may be, of
// the pool's model.
func (c *Choice) allOfWrongModel(req *Request, now time.Time) bool {
	for i := range c.Candidates {
		k := &c.Candidates[i]
		if k.Excluded != ExcludedRole && !k.Replica.OfWrongModel(&req.Pool.Spec, now) {
			return false
		}
	}
	return true
}

// serves reports whether a replica of role have takes the leg want.
func serves(have, want state.Role) bool {
	if have == "" {
		have = state.RoleBoth
	}
	switch want {
	case state.RolePrefill:
		return have == want
	case state.RoleDecode:
		return have == want || have == state.RoleBoth
	default:
		return have == state.RoleBoth
	}
}

// refused reports whether nothing listened at r a moment ago, and no first token
// has come from it since.
func refused(r *state.ReplicaView, now time.Time) bool {
	return r.Reading.Refused && now.Sub(r.ReadingAt) < loadingUseful && !r.Cell.LastFirstToken().After(r.ReadingAt)
}

// unreachable reports whether readings have said for long enough that r can't be
// reached. Metrics that can't be read are not a dead engine: while requests get
// first tokens there, or one is out to find out, the replica stays in; and a first
// request may always go. So a replica whose metrics hang keeps its traffic, and a
// dead one costs one attempt at a time until the breaker opens.
func unreachable(r *state.ReplicaView, now time.Time) bool {
	if r.DownSince.IsZero() {
		return false
	}
	down := now.Sub(r.DownSince)
	if down < downAfter || (r.DownReaders < 2 && down < downAlone) {
		return false
	}
	if r.Cell.LastFirstToken().After(r.DownSince) {
		return false
	}
	return r.Cell.Load().Prefill > 0
}
