package routing

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

const (
	// kvFull is the KV usage from which admission waits for space: below it an
	// engine admits at once, whatever the request.
	kvFull = 0.9
	// minSlow bounds the handicap of slow start.
	minSlow = 0.05
	// maxKVWait and maxTurnWait bound these terms, ms: the estimates are coarse.
	maxKVWait   = 60_000
	maxTurnWait = 60_000
)

// lookup fills in what every candidate holds of the prompt.
func (p *Picker) lookup(c *Choice, req *Request, now time.Time) {
	if p.sketch != nil && len(req.Marks) > 0 {
		p.sketch.Lookup(c.matches, req.Marks, c.slots, now)
	}
}

// survey fills in what candidate i is taken up with, and what its figures are.
func (p *Picker) survey(c *Choice, i int, spec *state.PoolSpec, w *state.Weight, now time.Time) {
	cand := &c.Candidates[i]
	r, t := cand.Replica, &cand.Terms
	par := p.cal.params(r.Slot, r.Pool)
	own := r.Cell.Load()
	foreign := foreignLoad(r, par.Uncached, now)
	t.Own = float64(own.UncachedTokens)
	t.Others = float64(r.Others.UncachedTokens)
	t.Foreign = foreign.tokens
	streams := own.Decode() + r.Others.Decode()
	if r.Role == state.RoleDecode { // what is prefilled elsewhere will be a stream here
		streams = own.InFlight + r.Others.InFlight
	}
	t.Decode = float64(streams) + foreign.decode
	t.Rate = par.RateAt(t.Decode)
	t.Fixed = par.Fixed
	block := p.cfg.BlockTokens
	if b := int(r.Reading.BlockSize); b > 0 {
		block = b
	}
	c.standing[i] = standing{
		par: par, weight: w, kvFull: r.Reading.KVUsage >= kvFull && r.Fresh(now), block: block,
		running: float64(own.InFlight+r.Others.InFlight) + foreign.decode + foreign.waiting, own: own.InFlight, inFlight: r.Others.InFlight + foreign.requests,
		limit: spec.MaxAt(r),
	}
}

// standing is what score needs of a candidate beside its Terms.
type standing struct {
	par    *Params
	weight *state.Weight
	kvFull bool // by a fresh reading
	// running is the requests there, from everybody.
	running float64
	block   int // tokens of a KV block

	inFlight int64 // requests of other routers and of nobody known
	own      int64 // requests of this router
	limit    int64 // the replica's; once it was looked at, of own; 0: none
}

// score fills in candidate i's match and terms, which was surveyed before. All are
// surveyed first: what that reads lies in many places, and is waited for in vain
// between long calculations. Formula: ALGORITHMS 4.
func (p *Picker) score(c *Choice, i int, req *Request, now time.Time) {
	cand, m, s := &c.Candidates[i], &c.matches[i], &c.standing[i]
	t, par, w := &cand.Terms, s.par, s.weight
	perToken := 1000 / t.Rate // ms

	t.Queue = t.QueueTokens() * perToken
	if m.Live|m.Pending|m.Faded != 0 {
		live, pending := matched(m, req.Tokens, c.PromptTokens, s.block)
		cand.Matched = int(max(live, pending))
		cand.Credit = live
		if pending > live {
			cand.Credit += (pending - live) * p.pendingShare(m.PendingAge, t.Queue)
		}
		if deep := faded(m, req.Tokens, c.PromptTokens, s.block); deep > cand.Credit {
			cand.Credit += (deep - cand.Credit) * p.cfg.FadedCredit
		}
	}

	u := float64(c.PromptTokens) - cand.Credit
	t.Prefill = u * perToken
	t.Attention = par.Quadratic * u * float64(c.PromptTokens)
	if req.Hop.Offered && cand.Replica.Role == state.RoleDecode {
		p.hop(cand, req, u)
	}
	if req.Adapter != "" {
		t.Adapter = adapterWait(cand.Replica, req.Adapter, par, t, float64(c.ExpectedOutput))
	}
	if s.kvFull {
		t.KV = kvWait(&cand.Replica.Reading, t, u, par, float64(c.ExpectedOutput))
	}
	if w.Concurrency > 0 && req.Role != state.RolePrefill {
		t.Slots = slotWait(t, c.standing[i].running, w.Concurrency, par, float64(c.ExpectedOutput))
	}
	if !w.BusyUntil.IsZero() {
		t.Busy = max(0, float64(w.BusyUntil.Sub(now))/float64(time.Millisecond))
	}
	t.Eviction = (p.cfg.CopyWeight - 1) * u * perToken
	if req.Role != state.RolePrefill {
		t.Streams = p.cfg.StreamWeight*float64(min(c.ExpectedOutput, p.cfg.StreamTokens))*crowding(par, t.Decode) + p.stall(par, t.Decode, t.Prefill)
	}
	if w.Slow < 1 {
		t.SlowStart = (t.Fixed + t.Queue + t.Prefill) * (1/max(minSlow, w.Slow) - 1)
	}
	cand.Score = t.Score()
}

// crowding is what a further stream costs beside b others, ms a token: it and each of them
// take ITLPerStream longer. It counts by how long a token takes there.
func crowding(par *Params, b float64) float64 {
	return par.ITLPerStream * (2*b + 1) * slowness(par, b)
}

// stall is what a prefill of so many ms costs the streams beside it: each is held up for
// as long as it takes, of which a share is charged.
func (p *Picker) stall(par *Params, b, prefill float64) float64 {
	return p.cfg.StallWeight * b * slowness(par, b) * prefill
}

// slowness is a lone stream's inter-token time as a share of that beside b others. What
// others lose counts by it, as a share of the time they take: to many streams a few more
// matter less than to few.
func slowness(par *Params, b float64) float64 { return par.ITL / par.ITLAt(b+1) }

// whole is the tokens of the whole blocks in n tokens of a prompt, the last of which is
// always computed: engines hold no more.
func whole(n float64, prompt, block int) float64 {
	return float64(max(0, min(int(n), prompt-1)) / block * block)
}

// matched turns a match in marks into prompt tokens: by live marks, and by
// pending placements.
func matched(m *sketch.Match, tokens []int32, prompt, block int) (live, pending float64) {
	depth := func(n int) float64 {
		if n = min(n, len(tokens)); n <= 0 {
			return 0
		}
		return float64(tokens[n-1])
	}
	live = depth(m.Live)
	if m.Answer { // answers may have been retokenised: there with probability Trust
		solid := depth(m.Solid)
		live = solid + (live-solid)*max(0, min(1, m.Trust))
	}
	return whole(live, prompt, block), whole(depth(m.Pending), prompt, block)
}

// pendingShare is how much of a pending placement's match counts: PendingCredit
// when its prefill has only begun, 1 when it should be over. queue is the prefill
// still before it at most, in ms.
func (p *Picker) pendingShare(age time.Duration, queue float64) float64 {
	if queue <= 0 {
		return 1
	}
	left := queue / (queue + float64(age)/float64(time.Millisecond))
	return 1 - (1-p.cfg.PendingCredit)*left
}

// faded is the prompt tokens up to the deepest mark that is taken for evicted.
func faded(m *sketch.Match, tokens []int32, prompt, block int) float64 {
	n := min(m.Faded, len(tokens))
	if n <= 0 {
		return 0
	}
	return whole(float64(tokens[n-1]), prompt, block)
}

type foreign struct {
	tokens float64 // uncached prompt tokens
	decode float64 // streams

	waiting  float64 // requests before their first token
	requests int64
}

// foreignLoad is what runs at r that no router accounts for. Only what waits has
// prompt tokens left to prefill; what runs decodes. Where the engine reports its
// waiting uncached tokens, they are taken instead of the mean.
func foreignLoad(r *state.ReplicaView, mean float64, now time.Time) (f foreign) {
	rd := &r.Reading
	if rd.WaitingUncached < 0 && rd.Running+max(0, rd.Waiting) <= float64(r.KnownAtReading.InFlight) {
		return f // however old that is
	}
	n, ok := r.Foreign(now)
	if !ok {
		return f
	}
	f.requests = n
	waiting := min(float64(n), max(0, rd.Waiting-float64(r.KnownAtReading.Prefill)))
	f.decode, f.waiting = float64(n)-waiting, waiting
	f.tokens = waiting * mean
	if rd.WaitingUncached >= 0 {
		f.tokens = max(0, rd.WaitingUncached-float64(r.KnownAtReading.UncachedTokens))
	}
	return f
}

// kvWait is the time in ms until KV space for the prompt is free: missing tokens
// over the rate at which running streams give theirs back, where the engine says
// it is full.
func kvWait(rd *state.Reading, t *Terms, u float64, par *Params, output float64) float64 {
	if rd.Capacity <= 0 {
		return 0
	}
	missing := t.QueueTokens() + u - (1-min(1, rd.KVUsage))*rd.Capacity
	if missing <= 0 {
		return 0
	}
	// On average the running streams have half of their output before them; all
	// that is in use is then given back over one output's time.
	life := max(1, output) * par.ITLAt(t.Decode)
	return min(maxKVWait, missing*life/(rd.KVUsage*rd.Capacity))
}

// slotWait is the time in ms until a request's turn comes at an engine that runs no more
// than so many at a time: those before it have to end, one after the other, and each
// that runs takes an output's time.
func slotWait(t *Terms, there, atATime float64, par *Params, output float64) float64 {
	before := there + 1 - atATime
	if before <= 0 {
		return 0
	}
	return min(maxTurnWait, before*max(1, output)*par.ITLAt(min(t.Decode, atATime))/atATime)
}

// guardITL drops candidates where one more stream would break the pool's ITL
// objective, while another passes.
func (p *Picker) guardITL(c *Choice, req *Request) {
	limit := float64(req.Pool.Spec.SLOITL) / float64(time.Millisecond)
	if limit <= 0 || req.Role == state.RolePrefill {
		return
	}
	breaks := func(i int) bool { return c.standing[i].par.ITLAt(c.Candidates[i].Terms.Decode+1) > limit }
	passes := false
	for i := range c.Candidates {
		if c.Candidates[i].Excluded == "" && !breaks(i) {
			passes = true
			break
		}
	}
	if !passes {
		return
	}
	for i := range c.Candidates {
		if cand := &c.Candidates[i]; cand.Excluded == "" && breaks(i) {
			cand.Excluded = ExcludedITL
		}
	}
}
