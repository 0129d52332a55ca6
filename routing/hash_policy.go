package routing

import "github.com/zeebo/xxh3"

// prefixHash is consistent hashing with bounded loads over the replicas: a prompt
// goes to the replica with the highest hash of (prefix, replica) whose load is
// below HashBound times the mean. Rendezvous instead of a ring: exact balance with
// no virtual nodes, and a replica's leaving moves only what it had.
type prefixHash struct{}

func (prefixHash) name() string { return PrefixHash }

func (prefixHash) choose(p *Picker, c *Choice, req *Request) (int, string) {
	key, ok := p.prefixKey(req)
	if !ok {
		return leastOutstanding{}.choose(p, c, req)
	}
	total := 0.0
	for _, i := range c.order {
		total += outstanding(&c.Candidates[i]) - 1
	}
	bound := max(1, p.cfg.HashBound*(total+1)/float64(len(c.order)))
	owner, at := int32(-1), int32(-1)
	var ownerRank, rank uint64
	for _, i := range c.order {
		cand := &c.Candidates[i]
		cand.Score = outstanding(cand) - 1
		h := rendezvous(key, string(cand.Replica.ID))
		if owner < 0 || h > ownerRank {
			owner, ownerRank = i, h
		}
		if cand.Score < bound && (at < 0 || h > rank) {
			at, rank = i, h
		}
	}
	switch {
	case at < 0: // all back off
		return int(owner), ReasonHash
	case at != owner:
		return int(at), ReasonOverflow
	}
	return int(at), ReasonHash
}

// prefixKey is the hash of the prompt up to HashTokens, or of all of it if it is
// shorter. Never only its first block: every request of a product shares that.
func (p *Picker) prefixKey(req *Request) (uint64, bool) {
	n := min(len(req.Marks), len(req.Tokens))
	if n == 0 {
		return 0, false
	}
	at := 0
	for at < n-1 && int(req.Tokens[at]) < p.cfg.HashTokens {
		at++
	}
	return req.Marks[at].Hash, true
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
