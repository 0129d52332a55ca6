package sketch

import (
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
	farInside   = 8   // a distance under C_eff/farInside is far inside the horizon
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
		op.Sample = p.sample(matchedTokens, promptTokens, min(cachedTokens, promptTokens), float32(r.capacity()))
	}
	r.evidence(&op, t)
	r.settle()
	x.news(r, op, true, t)
	x.checkCleared(r, now, t)
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
	if op.Scale == 0 {
		return true
	}
	e := r.x.table.get(op.Mark, r.slot)
	for n := uint32(0); e != nil && n < op.Count; e, n = r.up(e), n+1 {
		r.recount(e, e.est, max(e.scale, op.Scale))
	}
	return true
}

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
func (p *Placement) sample(matched, prompt, cached int, capacity float32) Sample {
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
		// The deepest mark found although believed dead: the cache is larger.
		for i := there; i > p.live; i-- {
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
		if 2*cached >= predicted || there >= p.solid {
			s.Verdict = Kept
		}
		return s
	}
	m := &p.marks[there]
	far := m.atFirst < capacity/farInside
	switch {
	case !far:
		s.Verdict, s.Distance = Missing, max(0, m.atFirst)
	case depth(p.solid) >= largeTokens && cached < max(4*blockTokens, depth(p.solid)/32):
		s.Verdict = Lost
	case 2*cached >= predicted:
		s.Verdict = Kept
	}
	return s
}
