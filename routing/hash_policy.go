package routing

import "github.com/zeebo/xxh3"

// prefixHash is consistent hashing with bounded loads over the replicas: a prompt
// goes to the replica with the highest hash of (prefix, replica), unless its load is
// over HashBound times the mean. Rendezvous instead of a ring: exact balance with
// no virtual nodes, and a replica's leaving moves only what it had.
//
// How deep to hash can't be right for all: a short prefix sends all of a product's
// requests to one place, a long one tears apart prompts that share a short one. So
// an overflow is hashed again, four times deeper: requests that share a system
// prompt stay together as far as one replica can bear them, and beyond that the
// turns of one chat do.
type prefixHash struct{}

func (prefixHash) name() string { return PrefixHash }

func (prefixHash) choose(p *Picker, c *Choice, req *Request) (int, string) {
	marks := min(len(req.Marks), len(req.Tokens))
	if marks == 0 {
		return leastOutstanding{}.choose(p, c, req)
	}
	total := 0.0
	for _, i := range c.order {
		cand := &c.Candidates[i]
		cand.Score = outstanding(cand) - 1
		total += cand.Score
	}
	bound := max(1, p.cfg.HashBound*(total+1)/float64(len(c.order)))
	reason := ReasonHash
	at := 0
	for depth := p.cfg.HashTokens; ; depth *= 4 {
		for at < marks-1 && int(req.Tokens[at]) < depth {
			at++
		}
		owner, fits := c.rendezvous(req.Marks[at].Hash, bound)
		switch {
		case owner == fits:
			return int(owner), reason
		case at == marks-1 && fits >= 0:
			return int(fits), ReasonOverflow
		case at == marks-1: // all back off
			return int(owner), reason
		}
		reason = ReasonOverflow
	}
}

// rendezvous gives the key's own replica among the eligible, and the first in its
// order whose score is below the bound, -1 if there is none.
func (c *Choice) rendezvous(key uint64, bound float64) (owner, fits int32) {
	owner, fits = -1, -1
	var ownerRank, rank uint64
	for _, i := range c.order {
		cand := &c.Candidates[i]
		h := rendezvous(key, string(cand.Replica.ID))
		if owner < 0 || h > ownerRank {
			owner, ownerRank = i, h
		}
		if cand.Score < bound && (fits < 0 || h > rank) {
			fits, rank = i, h
		}
	}
	return owner, fits
}

// rendezvous is the rank of a replica for a key.
func rendezvous(key uint64, replica string) uint64 { return xxh3.HashStringSeed(replica, key) }

// session sends a session to its own replica by rendezvous: the same one on every
// router, without anything to remember. Requests without a session go by ttft, and
// so do those whose replica backs off.
type session struct{}

func (session) name() string { return Session }

func (session) choose(p *Picker, c *Choice, req *Request) (int, string) {
	if req.Session == "" {
		return ttft{}.choose(p, c, req)
	}
	key := xxh3.HashString(req.Session)
	at, rank := int32(-1), uint64(0)
	for _, i := range c.order {
		if h := rendezvous(key, string(c.Candidates[i].Replica.ID)); at < 0 || h > rank {
			at, rank = i, h
		}
	}
	if c.Candidates[at].Terms.Busy > 0 {
		return ttft{}.choose(p, c, req)
	}
	return int(at), ReasonSession
}
