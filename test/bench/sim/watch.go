package sim

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// PickTruth compares one pick with what the engines really had at its instant.
type PickTruth struct {
	Known  bool
	Regret float64 // true score of the pick less the best one's, ms

	Cached, BestCached int // tokens really cached at the replica picked, and at the deepest holder
	Matched, BestMatch int // what the router believed of the two

	Queue, BestQueue       float64 // true uncached tokens before the request, at the two
	Believed, BestBelieved float64 // what the router believed of the two
	Foreign, BestForeign   float64 // of that, what no router accounts for
	HolderLoses            bool    // the deepest holder's true score is worse than the pick's
}

// picker is a routing.Picker whose picks are compared with the truth.
type picker struct {
	r    *Router
	next *routing.Picker

	mu    sync.Mutex
	probe *seenPick // guarded by mu; where the next dry run is noted
}

type seenPick struct {
	item    int
	chosen  int
	matched int
	truth   PickTruth
	matches []int // what every replica was believed to hold, in id order
	queues  []float64
}

// Pick implements proxy.Picker.
func (p *picker) Pick(c *routing.Choice, req *routing.Request, v *state.View, now time.Time) error {
	cl := p.r.c
	item := -1
	p.mu.Lock()
	probe := p.probe
	p.mu.Unlock()
	switch {
	case req.DryRun && probe != nil:
		item = probe.item
	case req.Session != "":
		item, _ = strconv.Atoi(req.Session) // of Cluster.ask
	}
	if item >= 0 { // a copy: the proxy's request keeps the name for another attempt
		own := *req
		own.Session = cl.work.Items[item].Session
		req = &own
	}
	var truths []Truth
	if item >= 0 && (cl.cfg.Watch || req.DryRun && probe != nil) {
		truths = cl.truths(item) // before the pick: it takes no time here
	}
	if cl.cfg.Truth && item >= 0 {
		cl.truthMu.Lock()
		defer cl.truthMu.Unlock()
		cl.truthItem = item
	}
	if err := p.next.Pick(c, req, v, now); err != nil {
		return err
	}
	if cl.cfg.Shortest && item >= 0 && !req.DryRun {
		cl.shortest(c, item)
	}
	if cl.cfg.Trace && item >= 0 && !req.DryRun {
		cl.Records[item].Seen = seenOf(c)
	}
	if truths == nil {
		return nil
	}
	t := p.compare(c, truths)
	if req.DryRun {
		probe.chosen, probe.matched, probe.truth = cl.replicaIndex(c.Replica.ID), c.MatchedTokens, t
		for i := range c.Candidates {
			probe.matches = append(probe.matches, c.Candidates[i].Matched)
			probe.queues = append(probe.queues, c.Candidates[i].Terms.QueueTokens())
		}
	} else {
		cl.Records[item].Truth = t
	}
	return nil
}

// shortest moves a pick to the replica with the shortest queue, of those with the one with
// the fewest streams, of those a random one. What caches hold has no say in it.
func (cl *Cluster) shortest(c *routing.Choice, item int) {
	truths := cl.truths(item)
	best, equals := c.Chosen, 0
	for i := range c.Candidates {
		t, b := &truths[cl.replicaIndex(c.Candidates[i].Replica.ID)], &truths[cl.replicaIndex(c.Candidates[best].Replica.ID)]
		by := cmp.Or(cmp.Compare(t.Queue, b.Queue), cmp.Compare(t.Decode, b.Decode))
		if by == 0 {
			equals++
		}
		if by < 0 {
			equals = 1
		}
		if by < 0 || by == 0 && rand.IntN(equals) == 0 {
			best = i
		}
	}
	k := &c.Candidates[best]
	c.Chosen, c.Replica, c.MatchedTokens, c.UncachedTokens = best, k.Replica, k.Matched, c.PromptTokens-k.Matched
}

// compare scores every candidate by the truth, with what all routers together know
// of the engines' speeds.
func (p *picker) compare(c *routing.Choice, truths []Truth) PickTruth {
	cl := p.r.c
	stream, stall := cmp.Or(cl.cfg.Pick.StreamWeight, routing.DefaultStreamWeight), cmp.Or(cl.cfg.Pick.StallWeight, routing.DefaultStallWeight)
	t := PickTruth{Known: true}
	best, deepest, deepestScore, chosen := math.Inf(1), -1, 0.0, 0.0
	for i := range c.Candidates {
		cand := &c.Candidates[i]
		tr := &truths[cl.replicaIndex(cand.Replica.ID)]
		par := cl.reference.Params(cand.Replica.Slot, Pool)
		perToken := 1000 / par.RateAt(cand.Terms.Decode)
		u := float64(max(0, c.PromptTokens-tr.Cached))
		b := cand.Terms.Decode
		streams := (stream*float64(min(c.ExpectedOutput, routing.DefaultStreamTokens))*par.ITLPerStream*(2*b+1) + stall*b*u*perToken) * par.ITL / par.ITLAt(b+1)
		score := par.Fixed + (float64(tr.Queue)+2*u)*perToken + par.Quadratic*u*float64(c.PromptTokens) + streams
		best = min(best, score)
		if i == c.Chosen {
			chosen = score
			t.Cached, t.Matched, t.Queue, t.Believed, t.Foreign = tr.Cached, cand.Matched, float64(tr.Queue), cand.Terms.QueueTokens(), cand.Terms.Foreign
		}
		if deepest < 0 || tr.Cached > t.BestCached || tr.Cached == t.BestCached && score < deepestScore {
			deepest, deepestScore = i, score
			t.BestCached, t.BestMatch, t.BestQueue, t.BestBelieved = tr.Cached, cand.Matched, float64(tr.Queue), cand.Terms.QueueTokens()
			t.BestForeign = cand.Terms.Foreign
		}
	}
	t.Regret = chosen - best
	t.HolderLoses = deepestScore > chosen
	return t
}

func (c *Cluster) truths(item int) []Truth {
	out := make([]Truth, len(c.Replicas))
	for i, r := range c.Replicas {
		out[i] = r.Truth(&c.work.Items[item].Prompt)
	}
	return out
}

func (c *Cluster) replicaIndex(id state.ReplicaID) int { return c.places[id] }

// trueSketch replaces what an index believes to be live by what the engines hold,
// up to a mark. What is pending stays the index's.
type trueSketch struct {
	c     *Cluster
	index *sketch.Index
}

// Lookup implements routing.Sketch for the item whose pick is under way.
func (s *trueSketch) Lookup(dst []sketch.Match, marks []prefix.Mark, slots []state.Slot, now time.Time) {
	s.index.Lookup(dst, marks, slots, now)
	prompt := &s.c.work.Items[s.c.truthItem].Prompt
	whole := float64(marks[len(marks)-1].Bytes())
	for i, slot := range slots {
		cached := s.c.Replicas[s.c.bySlot(slot)].Truth(prompt).Cached
		n := 0
		for n < len(marks) && float64(marks[n].Bytes())/whole*float64(len(prompt.Tokens)) <= float64(cached+16) {
			n++
		}
		dst[i].Live, dst[i].Solid, dst[i].Answer = n, n, false
		if dst[i].Pending <= n {
			dst[i].Pending = 0
		}
	}
}

// Probe is one request offered to every router at one instant.
type Probe struct {
	Item    int
	Chosen  []int     // replica, by router
	Regret  []float64 // ms, by router
	Matched []int     // cached tokens expected of the replica chosen
	Cached  []int     // cached tokens really there

	Matches [][]int     // cached tokens expected of every replica, by router
	Queues  [][]float64 // uncached tokens believed to wait there, by router
}

// probe offers request i to every router without sending it.
func (c *Cluster) probe(i int) {
	c.probeMu.Lock()
	defer c.probeMu.Unlock()
	p := Probe{Item: i}
	for _, r := range c.alive() {
		seen := &seenPick{item: i, chosen: -1}
		r.picker.mu.Lock()
		r.picker.probe = seen
		r.picker.mu.Unlock()
		_, err := r.core.Explain(context.Background(), chatPath, c.work.Items[i].Body)
		r.picker.mu.Lock()
		r.picker.probe = nil
		r.picker.mu.Unlock()
		if err != nil || seen.chosen < 0 {
			continue
		}
		p.Chosen, p.Regret = append(p.Chosen, seen.chosen), append(p.Regret, seen.truth.Regret)
		p.Matched, p.Cached = append(p.Matched, seen.matched), append(p.Cached, seen.truth.Cached)
		p.Matches, p.Queues = append(p.Matches, seen.matches), append(p.Queues, seen.queues)
	}
	c.Probes = append(c.Probes, p)
}
