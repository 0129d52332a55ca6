package sketch

import (
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// SetCapacity gives the tokens a replica's cache holds, as its engine or the
// configuration says. It may be repeated with every reading; what was learned
// stands until the figure changes. Not shared: every router hears readings.
func (x *Index) SetCapacity(id state.ReplicaID, tokens float64, source CapacitySource) {
	if !(tokens >= minCapacity && tokens <= maxCapacity) || source == CapacityUnknown || id == "" || len(id) > MaxIDBytes {
		return
	}
	t := x.ownTime(x.now())
	r := x.replica(id, t, t)
	if r == nil {
		return
	}
	defer r.mu.Unlock()
	if r.learn.give(tokens, source) {
		r.settle()
	}
}

const (
	largeTokens = 512 // a prediction of at least so many tokens, answered by nothing, is Lost
	blockTokens = 16  // engines count whole blocks
)

// Evidence tells what the engine reported: cachedTokens of promptTokens came from
// its cache, where matchedTokens had been predicted from live marks before the
// placing (0 when the match was only pending: nothing is learned from such). Call
// it once, when usage came; before or after End.
func (p *Placement) Evidence(matchedTokens, promptTokens, cachedTokens int) {
	if p == nil {
		return
	}
	r := p.r
	x, now := r.x, r.x.now()
	t := x.ownTime(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.told || p.f.phase == phasePending || p.f.phase == phaseWithdrawn || len(p.marks) == 0 || promptTokens <= 0 {
		return
	}
	p.told = true

	op := p.op(OpEvidence, now)
	op.Scale, op.Count = p.scale(promptTokens)
	if cachedTokens >= 0 {
		cachedTokens = min(cachedTokens, promptTokens)
		op.Sample = p.sample(matchedTokens, promptTokens, cachedTokens)
		if whole := p.marks[len(p.marks)-1].tokens; whole > 0 && (matchedTokens > 0 || !p.pending()) {
			r.truth.add(float64(matchedTokens)*float64(promptTokens)/float64(whole), float64(cachedTokens))
		}
	}
	r.evidence(&op, t)
	r.settle()
	x.news(r, op, true, t)
	x.checkCleared(r, now, t)
}

// pending reports that another placement was about to prefill a part of the prompt.
func (p *Placement) pending() bool {
	return slices.ContainsFunc(p.marks, func(m placed) bool { return m.pending })
}

// checkCleared moves dead_before when the samples say that the cache was cleared.
func (x *Index) checkCleared(r *replica, now time.Time, t int64) {
	before, ok := r.learn.cleared(r.dead)
	if !ok || !r.kill(before) {
		return
	}
	stamp := x.clock.Stamp(now)
	stamp.At = time.Duration(before)
	x.news(r, Op{Kind: OpDead, Replica: r.id, Boot: x.clock.Boot(), Stamp: stamp}, true, t)
}

// evidence applies an op of that kind.
func (r *replica) evidence(op *Op, t int64) bool {
	s := stamped{at: t, boot: op.Boot, id: op.Placement, began: t - int64(op.Age), leaf: op.Mark, Sample: op.Sample}
	if s.began <= r.dead || !r.learn.learn(s) {
		return false
	}
	if op.Scale != 0 {
		r.rescale(op.Mark, op.Scale, op.Count)
		if k := (flightKey{op.Boot, op.Placement}); r.flights[k] == nil && !r.tombs.m[k].placed {
			r.tombs.put(k, tomb{scale: op.Scale, count: op.Count})
		}
	}
	return true
}

// rescale corrects the token counts of count marks from hash upward. Where the
// chain is not known that far, the rest is owed until it is.
func (r *replica) rescale(hash uint64, scale uint16, count uint32) {
	e := r.x.table.get(hash, r.slot)
	for n := uint32(0); n < count; n++ {
		if e == nil || !e.known {
			if l := r.owed[hash]; len(l) < maxOwed && len(r.owed) < maxOwed {
				r.owed[hash] = append(l, owed{scale, count - n})
			} else {
				r.drops.Corrections++
			}
			return
		}
		r.recount(e, e.est, max(e.scale, scale))
		if e = r.up(e); e == nil {
			return
		}
		hash = e.hash
	}
}

// settleOwed applies a correction that came before the mark was known.
func (r *replica) settleOwed(e *entry) {
	list := r.owed[e.hash]
	delete(r.owed, e.hash)
	for _, o := range list {
		r.rescale(e.hash, o.scale, o.count)
	}
}

// owed is a correction for marks that are not known yet.
type owed struct {
	scale uint16
	count uint32
}

// maxOwed bounds them, marks and corrections per mark: they exist only while ops overtake each other.
const maxOwed = 64

// scale is the correction of the estimates of those marks at the prompt's end
// that were not measured before, so that the whole becomes promptTokens.
func (p *Placement) scale(promptTokens int) (scale uint16, count uint32) {
	n := len(p.marks)
	from := n
	for from > 0 && !p.marks[from-1].measured {
		from--
	}
	if from == n {
		return 0, 0
	}
	estimate, measured := float64(p.marks[n-1].tokens), float64(promptTokens)
	if from > 0 {
		// What was measured before is taken to have the overall error of estimates
		// removed already: its part of the prompt is left out on both sides.
		base := float64(p.marks[from-1].tokens)
		known := p.knownTokens(from)
		if estimate-base > 0 && measured > known {
			estimate, measured = estimate-base, measured-known
		}
	}
	if estimate <= 0 {
		return 0, 0
	}
	s := measured / estimate * ScaleOne
	return uint16(min(max(s, minScale), maxScale)), uint32(n - from)
}

// knownTokens is the measured depth of the first n marks.
func (p *Placement) knownTokens(n int) float64 {
	var sum int64
	for _, e := range p.r.walk(nil, p.r.x.table.get(p.marks[n-1].hash, p.r.slot)) {
		sum += e.tokens()
	}
	return float64(sum)
}

// sample compares what was reported with how the marks stood at the placing.
func (p *Placement) sample(matched, prompt, cached int) Sample {
	s := Sample{Trust: -1, Ratio: -1}
	n := len(p.marks)
	if whole := p.marks[n-1].tokens; whole > 0 && prompt > 0 {
		// Compare in estimated tokens, the unit of the marks' depths.
		cached = int(float64(cached) * float64(whole) / float64(prompt))
	}
	depth := func(marks int) int {
		if marks <= 0 {
			return 0
		}
		return int(p.marks[marks-1].tokens)
	}
	if matched >= largeTokens/8 {
		s.Ratio = min(float32(cached)/float32(matched), maxRatio)
	}
	// there is the number of leading marks that were wholly cached.
	there := 0
	for there < n && depth(there+1) <= cached+blockTokens {
		there++
	}
	if there > p.live {
		// The deepest mark found although believed dead: the cache is larger. One
		// spacing is left out, since depths are estimates and blocks are coarse.
		for i := there; i > max(p.live, p.unsure); i-- {
			if i == n || depth(i+1) > cached {
				continue
			}
			if m := &p.marks[i-1]; m.atPlace > 0 && !m.pending {
				s.Verdict, s.Distance = Alive, m.atPlace
				return s
			}
		}
	}
	if p.live == 0 {
		return s
	}
	predicted := depth(p.live)
	if answer := predicted - depth(p.solid); answer > 0 && there >= p.solid {
		s.Trust = min(max(float32(cached-depth(p.solid))/float32(answer), 0), 1)
	}
	if there >= p.solid || depth(p.solid)-cached <= depth(there+1)-depth(there) {
		// All is there up to one mark's spacing, or the shortfall is an answer's.
		if there > 0 && (2*cached >= predicted || there >= p.solid) {
			s.Verdict, s.Distance = Kept, max(0, p.marks[min(there, p.live)-1].atPlace)
		}
		return s
	}
	m := &p.marks[there]
	switch {
	case !p.r.learn.surprising(m.atFirst):
		s.Verdict, s.Distance = Missing, max(0, m.atFirst)
	case depth(p.solid) >= largeTokens && cached < max(4*blockTokens, depth(p.solid)/32):
		s.Verdict = Lost
	case there > 0 && 2*cached >= predicted:
		s.Verdict, s.Distance = Kept, max(0, p.marks[there-1].atPlace)
	}
	return s
}
