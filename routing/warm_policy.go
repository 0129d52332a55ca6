package routing

// The policies of this file are known from other routers; they are here to be
// compared with, and for those who want what they know.

const (
	// hybridQueue is the queue, in ms of prefill, past which hybrid leaves a holder.
	hybridQueue = 1000.0

	// SGLang's cache-aware router, as its users know it: match share from which a
	// holder is taken, and the imbalance in requests from which load alone counts.
	cacheAwareMatch = 0.3
	cacheAwareAbs   = 64.0
	cacheAwareRel   = 1.5
)

// deepest is the eligible candidate that holds most of the prompt, the less loaded
// one among those within a block of it; -1 if none holds any. Those that back off
// don't count.
func (p *Picker) deepest(c *Choice) int32 {
	most := 0
	for _, i := range c.order {
		if cand := &c.Candidates[i]; cand.Terms.Busy <= 0 {
			most = max(most, cand.Matched)
		}
	}
	if most == 0 {
		return -1
	}
	at, least := int32(-1), 0.0
	for _, i := range c.order {
		cand := &c.Candidates[i]
		if cand.Terms.Busy > 0 || cand.Matched+p.cfg.BlockTokens <= most {
			continue
		}
		if n := outstanding(cand); at < 0 || n < least {
			at, least = i, n
		}
	}
	return at
}

// hybrid stays with the deepest holder until its queue is long; then it takes the
// best score, and who gets that becomes a holder.
type hybrid struct{}

func (hybrid) name() string { return Hybrid }

func (hybrid) choose(p *Picker, c *Choice, req *Request) (int, string) {
	at := p.deepest(c)
	switch {
	case at < 0:
		return ttft{}.choose(p, c, req)
	case c.Candidates[at].Terms.Queue <= hybridQueue:
		return int(at), ReasonWarm
	}
	return p.lowest(c), ReasonSpill
}

// cacheAware takes the deepest holder if it holds enough and load is even, else the
// least loaded replica. (Not the one that holds least in all: that piles cold
// prompts on a slow replica.)
type cacheAware struct{}

func (cacheAware) name() string { return CacheAware }

func (cacheAware) choose(p *Picker, c *Choice, req *Request) (int, string) {
	at := p.deepest(c)
	if at < 0 || float64(c.Candidates[at].Matched) <= cacheAwareMatch*float64(c.PromptTokens) {
		return leastOutstanding{}.choose(p, c, req)
	}
	least, most := -1.0, 0.0
	for _, i := range c.order {
		if c.Candidates[i].Terms.Busy > 0 {
			continue
		}
		n := outstanding(&c.Candidates[i]) - 1
		most = max(most, n)
		if least < 0 || n < least {
			least = n
		}
	}
	if most-least > cacheAwareAbs && most > cacheAwareRel*least {
		return leastOutstanding{}.choose(p, c, req)
	}
	return int(at), ReasonWarm
}

// product takes the lowest product of what must be prefilled and what runs.
type product struct{}

func (product) name() string { return Product }

func (product) choose(p *Picker, c *Choice, _ *Request) (int, string) {
	best, at, n := 0.0, int32(-1), uint64(0)
	matched := 0
	for _, i := range c.order {
		cand := &c.Candidates[i]
		matched = max(matched, cand.Matched)
		cand.Score = (float64(c.PromptTokens) - cand.Credit + cand.Terms.QueueTokens() + 1) * outstanding(cand)
		switch {
		case at < 0 || cand.Score < best:
			best, at, n = cand.Score, i, 1
		case cand.Score == best:
			if n++; p.uint64n(n) == 0 {
				at = i
			}
		}
	}
	switch m := c.Candidates[at].Matched; {
	case matched == 0:
		return int(at), ReasonCold
	case m+p.cfg.BlockTokens >= matched:
		return int(at), ReasonWarm
	}
	return int(at), ReasonSpill
}
