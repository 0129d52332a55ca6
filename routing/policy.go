package routing

// policy chooses among the eligible candidates of a pick.
type policy interface {
	name() string
	// choose returns an index in c.Candidates out of c.order, which is never empty,
	// and the reason. It may set Score.
	choose(p *Picker, c *Choice, req *Request) (at int, reason string)
}

// Names of the routing policies, as pools give them.
const (
	TTFT             = "ttft"
	RoundRobin       = "round_robin"
	Random           = "random"
	LeastOutstanding = "least_outstanding"
	PowerOfTwo       = "power_of_two"
	PrefixHash       = "prefix_hash"
	Session          = "session"
	Hybrid           = "hybrid"
	CacheAware       = "cache_aware"
	Product          = "product"
	TTFTLoad         = "ttft_load"
	Auto             = "auto"
)

// Policies lists the names of all policies, the default first.
func Policies() []string {
	return []string{TTFT, RoundRobin, Random, LeastOutstanding, PowerOfTwo, PrefixHash, Session, Hybrid, CacheAware, Product, TTFTLoad, Auto}
}

// policyNamed finds a policy; unknown names and "" give the default. Policies have
// no state, so these values cost no allocation.
func policyNamed(name string) policy {
	switch name {
	case RoundRobin:
		return roundRobin{}
	case Random:
		return random{}
	case LeastOutstanding:
		return leastOutstanding{}
	case PowerOfTwo:
		return powerOfTwo{}
	case PrefixHash:
		return prefixHash{}
	case Session:
		return session{}
	case Hybrid:
		return hybrid{}
	case CacheAware:
		return cacheAware{}
	case Product:
		return product{}
	case TTFTLoad:
		return ttftLoad{}
	}
	return ttft{}
}

// ttft takes the lowest score, at random among those as good as equal.
type ttft struct{}

func (ttft) name() string { return TTFT }

func (ttft) choose(p *Picker, c *Choice, req *Request) (int, string) {
	if len(c.order) == 1 {
		return int(c.order[0]), ReasonOnly
	}
	if p.sketch == nil {
		return prefixHash{}.choose(p, c, req)
	}
	at := p.lowest(c)
	deepest := 0
	for _, i := range c.order {
		deepest = max(deepest, c.Candidates[i].Matched)
	}
	switch m := c.Candidates[at].Matched; {
	case deepest == 0:
		return at, ReasonCold
	case m+p.cfg.BlockTokens >= deepest:
		return at, ReasonWarm
	default:
		return at, ReasonSpill
	}
}

// lowest is the candidate with the lowest score, at random among scores within the
// larger of NearShare and one block's price.
func (p *Picker) lowest(c *Choice) int {
	best := c.order[0]
	for _, i := range c.order[1:] {
		if c.Candidates[i].Score < c.Candidates[best].Score {
			best = i
		}
	}
	b := &c.Candidates[best]
	block := p.cfg.CopyWeight * float64(p.cfg.BlockTokens) * 1000 / b.Terms.Rate
	limit := b.Score + max(block, p.cfg.NearShare*b.Score)
	n := uint64(0)
	at := best
	for _, i := range c.order {
		if c.Candidates[i].Score > limit {
			continue
		}
		if n++; n == 1 || p.uint64n(n) == 0 {
			at = i
		}
	}
	return int(at)
}

// uint64n is a random number in [0, n). Its bias, below n/2^64, does not matter.
func (p *Picker) uint64n(n uint64) uint64 { return p.cfg.Rand() % n }
