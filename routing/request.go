package routing

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Request is what a pick needs to know of a request. The Picker only reads it,
// and only during Pick.
type Request struct {
	Pool         *state.PoolView
	Marks        []prefix.Mark // of the prompt, shallow to deep; may be empty
	Tokens       []int32       // estimated token depth of each mark; len = len(Marks)
	PromptTokens int           // estimated or known tokens of the whole prompt
	MaxTokens    int           // the client's bound on the output; 0 = none

	Adapter string // LoRA adapter, "" for the base model
	Session string // affinity key for the session policy, "" for none
	Tenant  string
	Band    state.Band // its priority: some places may be left to higher ones

	// Exclude names replicas that must not be picked: those already tried.
	Exclude []state.ReplicaID
	// Only names the one replica that can serve the request, since it keeps what the
	// request goes on from; "" for any. It may be draining.
	Only state.ReplicaID
	// Role is the leg to serve: RolePrefill takes replicas of that role, RoleDecode
	// those of that role or of both, which serve the request whole; RoleBoth and ""
	// take only replicas that do both.
	Role state.Role
	// Hop is, for RoleDecode, the offer to have the prompt prefilled elsewhere.
	Hop Hop
	// Anyway says that the request goes to a saturated replica where no other one is
	// left, as one does that has waited before.
	Anyway bool
	// Due says that it is its band's turn, whatever is left to higher ones.
	Due bool
	// DryRun says that nothing will be sent: the pick uses up no trial request
	// and no turn.
	DryRun bool
}

// Hop is the offer to prefill a prompt at another replica, which hands its KV to one
// of role decode.
type Hop struct {
	Offered bool
	// Must says that replicas of role decode can't prefill themselves.
	Must bool
	Time float64 // ms until the prompt is prefilled, predicted
}

// Terms are the parts of a candidate's score. Durations are in milliseconds.
type Terms struct {
	Own     float64 // uncached prompt tokens queued there by this router, live
	Others  float64 // by the other routers, as of their rows
	Foreign float64 // by nobody we know, from the engine's own figures
	Decode  float64 // streams past their first token, all sources; of a replica that decodes, all that it will stream
	Rate    float64 // prefill tokens/s with that decode batch

	Fixed     float64 // round trip and fixed cost
	Queue     float64 // prefill of what waits there
	Prefill   float64 // prefill of this prompt's uncached part
	Attention float64 // its attention to the whole prompt
	Hop       float64 // the prefill of this prompt elsewhere and its way here, instead of the two before
	Adapter   float64 // load of an adapter that is not there, and the wait for a slot
	KV        float64 // wait for KV space
	Slots     float64 // wait for a running request to end, where the engine runs as many as it can
	Busy      float64 // rest of a back-off the replica asked for
	Eviction  float64 // price of one more copy of the uncached part: it evicts something
	Streams   float64 // price of one more decode stream, for it and those running, and of its prefill for those
	SlowStart float64 // handicap of a new or recovered replica
}

// TTFT is the predicted time to first token in milliseconds.
func (t *Terms) TTFT() float64 {
	return t.Fixed + t.Queue + t.Prefill + t.Attention + t.Hop + t.Adapter + t.KV + t.Slots + t.Busy
}

// Score is TTFT plus what the request costs others; lower is better.
func (t *Terms) Score() float64 { return t.TTFT() + t.Eviction + t.Streams + t.SlowStart }

// QueueTokens is the uncached prompt tokens before this request.
func (t *Terms) QueueTokens() float64 { return t.Own + t.Others + t.Foreign }

// Candidate is one replica of the pool as a pick saw it.
type Candidate struct {
	Replica *state.ReplicaView
	Matched int     // prompt tokens it is expected to hold, pending placements in full
	Credit  float64 // the same with pending placements discounted: what the score counts
	Terms   Terms
	Score   float64 // what the policy minimised, ms for ttft; meaningful when eligible
	Hops    bool    // the prompt is prefilled elsewhere for it
	// Excluded is why it could not be picked (one of the Excluded constants); empty
	// when it could.
	Excluded string
	// Despite is why it would not be picked if any other replica were left.
	Despite string
}

// Choice is the outcome of a pick. It may be reused: its buffers are kept. It
// must not be used by two picks at once.
type Choice struct {
	Replica *state.ReplicaView
	Policy  string // name of the policy that chose
	Reason  string // one of the Reason constants

	PromptTokens   int
	MatchedTokens  int           // of the chosen replica
	UncachedTokens int           // prompt tokens it may have to prefill, pending placements discounted; give it to Store.Begin
	ExpectedOutput int           // tokens
	TTFT           time.Duration // predicted
	Hops           bool          // the prompt is to be prefilled elsewhere; UncachedTokens is then 0
	Chosen         int           // index in Candidates, -1 before a pick succeeded
	At             time.Time     // the pick's now
	// Limit is how many requests of this router the chosen replica may have, this one
	// included; 0: any number. Give it to Store.BeginUnder.
	Limit int64

	// Candidates are all replicas of the pool, in id order. Valid until the next
	// pick with this Choice.
	Candidates []Candidate

	matches  []sketch.Match
	slots    []state.Slot
	standing []standing
	order    []int32 // eligible candidates
	viewAge  time.Duration
	demandOf demandOf
	places   places
}

// Held is the most tokens of the prompt that one replica of the pool is expected to
// hold, whether it could be picked or not.
func (c *Choice) Held() (most int) {
	for i := range c.Candidates {
		most = max(most, c.Candidates[i].Matched)
	}
	return most
}

// Sample is what Calibration.Observe needs to know of the pick; the caller fills
// in what was observed.
func (c *Choice) Sample() Sample {
	t := &c.Candidates[c.Chosen].Terms
	return Sample{
		Replica: c.Replica.ID, Slot: c.Replica.Slot, Pool: c.Replica.Pool,
		UncachedTokens: c.PromptTokens - c.MatchedTokens, PromptTokens: c.PromptTokens,
		QueueTokens: t.QueueTokens(), Decode: t.Decode, ViewAge: c.viewAge,
		Loads: t.Adapter > 0 || t.Slots > 0,
	}
}

// Reasons of a choice: the closed set of label values for picks.
const (
	ReasonWarm     = "warm"     // the best score, and it holds part of the prompt
	ReasonSpill    = "spill"    // a deeper holder was passed over for its load
	ReasonCold     = "cold"     // nobody holds any of the prompt
	ReasonLoad     = "load"     // by load alone
	ReasonOnly     = "only"     // the only eligible replica
	ReasonSession  = "session"  // the session's own replica
	ReasonHash     = "hash"     // the prefix hash's own replica
	ReasonOverflow = "overflow" // the hash's own replica was over its bound
	ReasonTurn     = "turn"     // round robin
	ReasonChance   = "chance"   // at random
	ReasonTrial    = "trial"    // a half-open replica on trial
)

// Reasons lists the closed set of pick reasons.
func Reasons() []string {
	return []string{
		ReasonWarm, ReasonSpill, ReasonCold, ReasonLoad, ReasonOnly, ReasonSession,
		ReasonHash, ReasonOverflow, ReasonTurn, ReasonChance, ReasonTrial,
	}
}
