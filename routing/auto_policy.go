package routing

import "github.com/hearsay-llm/hearsay/state"

// Effective is the name of the policy that picks for a pool: the pool's own, and
// what auto makes of the sharing ratio. Unknown names are the default.
func Effective(policy string, b state.PoolBalance) string {
	switch {
	case policy != Auto:
		return policyNamed(policy).name()
	case b.LoadOnly:
		return TTFTLoad
	}
	return TTFT
}

// ttftLoad is ttft without what it knows of caches: every prompt counts as cold, at
// every replica.
type ttftLoad struct{}

func (ttftLoad) name() string { return TTFTLoad }

func (ttftLoad) choose(p *Picker, c *Choice, req *Request) (int, string) {
	for _, i := range c.order {
		cand := &c.Candidates[i]
		t := &cand.Terms
		if t.Hop > 0 {
			continue // the prompt is prefilled elsewhere: nothing of this cache is in the score
		}
		cand.Score += cand.Credit * (p.cfg.CopyWeight*1000/t.Rate + c.standing[i].par.Quadratic*float64(c.PromptTokens))
		if req.Role != state.RolePrefill {
			cand.Score += p.stall(c.standing[i].par, t.Decode, cand.Credit*1000/t.Rate)
		}
	}
	return int(p.lowest(c)), ReasonLoad
}
