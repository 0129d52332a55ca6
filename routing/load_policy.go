package routing

import "hash/maphash"

// weighted reports whether a candidate in slow start takes its turn: with the
// probability of its weight, relative to the heaviest candidate.
func (p *Picker) weighted(c *Choice, i int32, heaviest float64) bool {
	s := slowShare(&c.Candidates[i])
	return s >= heaviest || float64(p.cfg.Rand()>>11)/(1<<53)*heaviest < s
}

// slowShare is the candidate's weight in slow start, 0..1, as its terms carry it,
// and nothing for one that backs off.
func slowShare(cand *Candidate) float64 {
	t := &cand.Terms
	if t.Busy > 0 {
		return 0
	}
	base := t.Fixed + t.Queue + t.Prefill
	if t.SlowStart <= 0 || base <= 0 {
		return 1
	}
	return base / (base + t.SlowStart)
}

func heaviest(c *Choice) (h float64) {
	for _, i := range c.order {
		h = max(h, slowShare(&c.Candidates[i]))
	}
	return h
}

// roundRobin takes turns.
type roundRobin struct{}

func (roundRobin) name() string { return RoundRobin }

func (roundRobin) choose(p *Picker, c *Choice, req *Request) (int, string) {
	turn := &p.turns[maphash.String(p.seed, req.Pool.Spec.Name)%uint64(len(p.turns))]
	h := heaviest(c)
	n := uint64(len(c.order))
	for range len(c.order) {
		var k uint64
		if req.DryRun {
			k = turn.Load()
		} else {
			k = turn.Add(1) - 1
		}
		if i := c.order[k%n]; p.weighted(c, i, h) || req.DryRun {
			return int(i), ReasonTurn
		}
	}
	return int(c.order[p.uint64n(n)]), ReasonTurn
}

// random takes any.
type random struct{}

func (random) name() string { return Random }

func (random) choose(p *Picker, c *Choice, _ *Request) (int, string) {
	return int(p.any(c)), ReasonChance
}

// any is a random candidate that is not held back.
func (p *Picker) any(c *Choice) int32 {
	h := heaviest(c)
	n := uint64(len(c.order))
	for range 8 {
		if i := c.order[p.uint64n(n)]; p.weighted(c, i, h) {
			return i
		}
	}
	return c.order[p.uint64n(n)]
}

// outstanding is a candidate's requests in flight from everybody, over its weight;
// one that backs off counts as having one more than any could.
func outstanding(cand *Candidate) float64 {
	t := &cand.Terms
	l := cand.Replica.Load()
	n := float64(l.InFlight) + t.Foreign/max(1, t.Rate) // waiting foreign requests show as tokens
	if foreignDecode := t.Decode - float64(l.Decode()); foreignDecode > 0 {
		n += foreignDecode
	}
	if t.Busy > 0 {
		return 1e9 + n
	}
	return (n + 1) / slowShare(cand)
}

// leastOutstanding takes the fewest requests in flight, at random among equals.
type leastOutstanding struct{}

func (leastOutstanding) name() string { return LeastOutstanding }

func (leastOutstanding) choose(p *Picker, c *Choice, _ *Request) (int, string) {
	best, at, n := 0.0, int32(-1), uint64(0)
	for _, i := range c.order {
		cand := &c.Candidates[i]
		cand.Score = outstanding(cand)
		switch {
		case at < 0 || cand.Score < best:
			best, at, n = cand.Score, i, 1
		case cand.Score == best:
			if n++; p.uint64n(n) == 0 {
				at = i
			}
		}
	}
	return int(at), ReasonLoad
}

// powerOfTwo takes the less loaded of two at random.
type powerOfTwo struct{}

func (powerOfTwo) name() string { return PowerOfTwo }

func (powerOfTwo) choose(p *Picker, c *Choice, _ *Request) (int, string) {
	for _, i := range c.order {
		c.Candidates[i].Score = outstanding(&c.Candidates[i])
	}
	n := uint64(len(c.order))
	a := p.uint64n(n)
	b := a
	if n > 1 {
		b = (a + 1 + p.uint64n(n-1)) % n
	}
	i, j := c.order[a], c.order[b]
	if c.Candidates[j].Score < c.Candidates[i].Score {
		i = j
	}
	return int(i), ReasonLoad
}
