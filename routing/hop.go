package routing

const (
	// hopLeast is the uncached tokens, in engine blocks, up to which a prompt is never
	// prefilled elsewhere: less than what a step of a decoding engine has room for
	// beside its streams.
	hopLeast = 4
	// hopStreams is how many streams a replica that decodes is taken to have at least:
	// it is there for them, and more will come while it prefills.
	hopStreams = 4
	// hopStall is the share that counts of what a prefill costs the streams beside it. It is
	// more than the score's StallWeight: another replica is there to spare them that.
	hopStall = 0.3
	// transferMS is what one token's KV takes from engine to engine, ms: 100-320 kB
	// (models of 8B to 70B) at 10-25 GB/s.
	transferMS = 0.01
)

// hop decides whether a candidate that decodes gets the prompt prefilled elsewhere; u
// is its uncached tokens there. It does if that is over sooner than its own prefill,
// which also holds up the streams that run beside it: by its whole time each, of which a
// share counts.
func (p *Picker) hop(cand *Candidate, req *Request, u float64) {
	t := &cand.Terms
	own := t.Prefill + t.Attention + hopStall*max(hopStreams, t.Decode)*t.Prefill
	hop := req.Hop.Time + transferMS*u
	if !req.Hop.Must && (u <= float64(hopLeast*p.cfg.BlockTokens) || own <= hop) {
		return
	}
	cand.Hops = true
	t.Prefill, t.Attention, t.Hop = 0, 0, hop
}
