package routing

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Sketch tells what replicas hold of a prompt. *sketch.Index is one.
type Sketch interface {
	Lookup(dst []sketch.Match, marks []prefix.Mark, slots []state.Slot, now time.Time)
}

// Config is what a Picker can be told. The zero value of a field means its default.
type Config struct {
	// CopyWeight is w: how much more an uncached token counts than its prefill
	// time, since a new copy evicts something. Default 2: on Mooncake conversation,
	// 8 replicas x 8 routers, mean TTFT 1.34 s against 1.39 at 1 (ALGORITHMS 4).
	CopyWeight float64
	// StreamWeight is d: the share of its cost to others that a decode stream is
	// charged. Default 0.35: see DESIGN.md, What a request costs others.
	StreamWeight float64
	// StreamTokens is the most tokens of its output that a stream is charged for: an
	// imbalance doesn't last as long as a long answer. Default 200: see DESIGN.md.
	StreamTokens int
	// StallWeight is s: the share of what its prefill costs the streams beside it, each
	// of which waits for it, that a request is charged. Default 0.08: see DESIGN.md.
	StallWeight float64
	// PendingCredit is the part of a pending placement's match that counts when its
	// prefill has only begun; it grows to 1 as the prefill nears its end. Default
	// 0.88: a burst of one cold 8k prefix then takes a few replicas (see DESIGN.md).
	PendingCredit float64
	// FadedCredit is how much of a match counts that is taken for evicted. Default 0.25:
	// among replicas as good as equal the request goes where it may be found after all,
	// which is how a capacity taken for too small is noticed.
	FadedCredit float64
	// NearShare is how far above the best a score may be to count as equal to it.
	// Default 0.01, and never less than one engine block's prefill.
	NearShare float64
	// BlockTokens is an engine's KV block. Default 16 (vLLM's).
	BlockTokens int
	// HashTokens is the prompt depth that prefix_hash hashes to first; an overflow is
	// hashed to four times that, and so on. Default 512: within common system
	// prompts (a block and more: every request of a product shares its first block).
	HashTokens int
	// HashBound is how far above the mean a hashed replica's load may be. Default
	// 1.25 (Mirrokni et al., Consistent Hashing with Bounded Loads, section 1).
	HashBound float64
	// Rand gives random bits; it must be safe for concurrent use. Default: math/rand/v2,
	// whose sources are per thread.
	Rand func() uint64
}

// What is charged of what a request costs those beside it, where it is not told.
const (
	DefaultStreamTokens = 200
	DefaultStreamWeight = 0.35
	DefaultStallWeight  = 0.08
)

// Validate reports every value that makes no sense.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, field string, v any) {
		if !ok {
			errs = append(errs, fmt.Errorf("routing: %s is out of range: %v", field, v))
		}
	}
	check(c.CopyWeight == 0 || c.CopyWeight >= 1 && c.CopyWeight <= 10, "CopyWeight", c.CopyWeight)
	check(c.StreamWeight >= 0 && c.StreamWeight <= 10, "StreamWeight", c.StreamWeight)
	check(c.StreamTokens >= 0, "StreamTokens", c.StreamTokens)
	check(c.StallWeight >= 0 && c.StallWeight <= 10, "StallWeight", c.StallWeight)
	check(c.PendingCredit >= 0 && c.PendingCredit <= 1, "PendingCredit", c.PendingCredit)
	check(c.FadedCredit >= 0 && c.FadedCredit <= 1, "FadedCredit", c.FadedCredit)
	check(c.NearShare >= 0 && c.NearShare < 1, "NearShare", c.NearShare)
	check(c.BlockTokens >= 0, "BlockTokens", c.BlockTokens)
	check(c.HashTokens >= 0, "HashTokens", c.HashTokens)
	check(c.HashBound == 0 || c.HashBound >= 1, "HashBound", c.HashBound)
	return errors.Join(errs...)
}

func orDefault[T int | float64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Picker picks. It is immutable but for turn counters, and safe for concurrent use.
type Picker struct {
	cfg    Config
	sketch Sketch
	cal    *Calibration

	seed  maphash.Seed
	turns [64]atomic.Uint64 // round robin, by hash of the pool's name
}

// NewPicker returns a picker. With a nil sketch nothing is known of caches, and
// ttft picks like prefix_hash.
func NewPicker(cfg Config, sk Sketch, cal *Calibration) *Picker {
	orDefault(&cfg.CopyWeight, 2)
	orDefault(&cfg.StreamWeight, DefaultStreamWeight)
	orDefault(&cfg.StreamTokens, DefaultStreamTokens)
	orDefault(&cfg.StallWeight, DefaultStallWeight)
	orDefault(&cfg.PendingCredit, 0.88)
	orDefault(&cfg.FadedCredit, 0.25)
	orDefault(&cfg.NearShare, 0.01)
	orDefault(&cfg.BlockTokens, 16)
	orDefault(&cfg.HashTokens, 512)
	orDefault(&cfg.HashBound, 1.25)
	if cfg.Rand == nil {
		cfg.Rand = rand.Uint64
	}
	if cal == nil {
		cal = NewCalibration()
	}
	return &Picker{cfg: cfg, sketch: sk, cal: cal, seed: maphash.MakeSeed()}
}

// Pick chooses a replica of req.Pool and fills c. v is the View that req.Pool
// comes from. On error, a *PickError, c holds the candidates with the reasons for
// which they were excluded.
func (p *Picker) Pick(c *Choice, req *Request, v *state.View, now time.Time) error {
	c.begin(req, now)
	if len(c.Candidates) == 0 {
		name := ""
		if req.Pool != nil {
			name = req.Pool.Spec.Name
		}
		return noReplicas(name)
	}
	c.viewAge = 0
	for i := range v.Routers {
		c.viewAge = max(c.viewAge, now.Sub(v.Routers[i].RowsAt))
	}
	c.ExpectedOutput = p.cal.Output(req.Pool.Spec.Name, req.MaxTokens)
	p.lookup(c, req, now)
	p.filter(c, req, v, now)
	if len(c.order) == 0 {
		return noneLeft(req, c, v.Weights, now)
	}
	pol := policyNamed(Effective(req.Pool.Spec.Policy, v.Weights.Pools[req.Pool.Spec.Name]))
	c.Policy = pol.name()
	for {
		at, reason := pol.choose(p, c, req)
		cand := &c.Candidates[at]
		w := v.Weights.For(cand.Replica)
		if w.Trial && !v.Weights.Pools[req.Pool.Spec.Name].Panic {
			if !req.DryRun && !w.Trials.Take() { // another pick was faster
				cand.Excluded = ExcludedTrial
				if c.reorder(); len(c.order) == 0 {
					return noneLeft(req, c, v.Weights, now)
				}
				continue
			}
			reason = ReasonTrial
		}
		c.finish(at, reason)
		return nil
	}
}

// begin resets c for a new pick.
func (c *Choice) begin(req *Request, now time.Time) {
	c.Replica, c.Policy, c.Reason, c.Chosen, c.At = nil, "", "", -1, now
	c.PromptTokens, c.MatchedTokens, c.UncachedTokens = max(0, req.PromptTokens), 0, 0
	c.TTFT, c.ExpectedOutput, c.Hops, c.Limit = 0, 0, false, 0
	n := 0
	if req.Pool != nil {
		n = len(req.Pool.Replicas)
	}
	c.Candidates = resize(c.Candidates, n)
	c.matches = resize(c.matches, n)
	c.slots = resize(c.slots, n)
	c.standing = resize(c.standing, n)
	c.order = c.order[:0]
	c.demandOf, c.places = demandOf{}, places{}
	for i := range n {
		r := req.Pool.Replicas[i]
		c.Candidates[i] = Candidate{Replica: r}
		c.matches[i] = sketch.Match{}
		c.slots[i] = r.Slot
	}
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// filter scores all, marks who can't be picked and lists the others in c.order.
func (p *Picker) filter(c *Choice, req *Request, v *state.View, now time.Time) {
	panicking := v.Weights.Pools[req.Pool.Spec.Name].Panic
	listed := req.Adapter != "" && req.Pool.ListsAdapter(req.Adapter) // then only those that do can serve it
	for i := range c.Candidates {
		cand := &c.Candidates[i]
		w := v.Weights.For(cand.Replica)
		cand.Excluded = p.exclude(req, cand.Replica, w, panicking, listed, now)
		p.survey(c, i, &req.Pool.Spec, w, now)
	}
	c.places.look(c, req, v, now)
	full := false
	longest := longestQueue(&req.Pool.Spec)
	for i := range c.Candidates {
		p.score(c, i, req, now)
		cand, s := &c.Candidates[i], &c.standing[i]
		// Mostly none of it is so, which is found out here.
		if (cand.Terms.Queue > longest || s.kvFull || s.limit > 0) && (cand.Excluded == "" || cand.Excluded == ExcludedWarming) && p.saturated(c, i, req, v, longest, now) {
			cand.Excluded = ExcludedSaturated
			full = true
		}
	}
	if c.places.leave(c) {
		full = true
	}
	if full {
		if c.reorder(); len(c.order) == 0 {
			c.giveWay(ExcludedWarming)
			c.reorder()
		}
		if len(c.order) == 0 {
			if !req.Anyway {
				return
			}
			c.goAnyway()
		}
	}
	p.guardITL(c, req)
	for _, reason := range softExclusions {
		if c.reorder(); len(c.order) > 0 {
			return
		}
		if reason == ExcludedWrongModel && !c.allOfWrongModel(req, now) {
			return
		}
		c.giveWay(reason)
	}
	c.reorder()
}

// giveWay gives the candidates back that were excluded for a soft reason.
func (c *Choice) giveWay(reason string) {
	for i := range c.Candidates {
		if k := &c.Candidates[i]; k.Excluded == reason {
			k.Excluded, k.Despite = "", reason
			if reason != ExcludedWarming { // those are held to their limits
				c.standing[i].limit = 0
			}
		}
	}
}

// reorder lists the eligible candidates.
func (c *Choice) reorder() {
	c.order = c.order[:0]
	for i := range c.Candidates {
		if c.Candidates[i].Excluded == "" {
			c.order = append(c.order, int32(i))
		}
	}
}

// finish fills in the outcome.
func (c *Choice) finish(at int, reason string) {
	cand := &c.Candidates[at]
	c.Chosen, c.Replica, c.Reason = at, cand.Replica, reason
	c.MatchedTokens = cand.Matched
	// What is pending there may yet fail to be shared: its discounted part queues
	// up, so that followers of one cold prefix see each other.
	c.UncachedTokens = c.PromptTokens - int(cand.Credit)
	if c.Hops = cand.Hops; c.Hops {
		c.UncachedTokens = 0
	}
	c.TTFT = time.Duration(cand.Terms.TTFT() * float64(time.Millisecond))
	c.Limit = c.standing[at].limit
}
