package sketch

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	minCapacity = 64 // tokens; C_eff never falls below
	maxRatio    = 8  // bound of a sample's Ratio
	trustPace   = 0.1
	rhoPace     = 0.05

	keptSamples = 64 // recent samples kept in order, see learner
	farInside   = 8  // a distance under C_eff/farInside is far inside the horizon
	lostStreak  = 3  // lost samples in a row that mean a cleared cache
)

// learner estimates a replica's capacity and the trust of answer marks from
// samples of all routers. The last samples are kept in the order of their stamps
// and folded anew when a late one comes, so that routers that saw the same
// samples in different orders agree; a sample older than those kept is folded
// where it stands (each step contracts, so what that leaves fades). Guarded by the
// replica's mu, except trusted.
type learner struct {
	usual   float64 // tokens of a replica of which nothing is known
	given   float64
	source  CapacitySource
	slots   bool      // the replica has slots: tokens is what it finds again beside them
	base    learned   // before samples
	samples []stamped // by time, boot, placement
	now     learned   // base with samples folded in
	trusted atomic.Uint64
}

type learned struct {
	tokens, trust, rho float64
	count              uint64
}

type stamped struct {
	at    int64
	boot  state.BootID
	id    uint64 // placement; one sample each
	began int64
	leaf  uint64
	Sample
}

func (l *learner) init(tokens float64) {
	l.usual = tokens
	l.base = learned{tokens: tokens, trust: 1, rho: 1}
	l.fold()
}

// trust of answer marks; safe without the replica's mu.
func (l *learner) trust() float64 { return math.Float64frombits(l.trusted.Load()) }

// give takes the engine's or the configuration's figure. What was learned stands
// while the figure does.
func (l *learner) give(tokens float64, source CapacitySource) bool {
	if source < l.source || source == l.source && tokens == l.given {
		return false
	}
	same := tokens == l.given
	l.given, l.source = tokens, source
	if same {
		return true
	}
	if l.slots {
		tokens = minCapacity
	}
	l.base = learned{tokens: tokens, trust: l.now.trust, rho: l.now.rho}
	l.samples = nil
	l.fold()
	return true
}

// setSlots says whether the replica has slots. With them nothing is taken to be found
// beside them until something is; what was learned so before a restart stands.
func (l *learner) setSlots(on bool) {
	if on == l.slots {
		return
	}
	l.slots = on
	if on && l.now.count > 0 && l.given > 0 && l.now.tokens != l.given {
		return
	}
	tokens := l.given
	switch {
	case on:
		tokens = minCapacity
	case tokens == 0:
		tokens = l.usual
	}
	l.base = learned{tokens: tokens, trust: l.now.trust, rho: l.now.rho}
	l.samples = nil
	l.fold()
}

// beside is the tokens that are found again though no slot holds them, 0 for none: an
// engine with slots may keep elsewhere what was in them.
func (l *learner) beside() int64 {
	if l.now.tokens <= minCapacity {
		return 0
	}
	return int64(l.now.tokens)
}

// reach is how far back, in tokens, what was used may be found.
func (l *learner) reach() float64 {
	if l.slots {
		return max(l.given, l.now.tokens)
	}
	return l.now.tokens
}

// learn adds a sample; a placement's second one is not news.
func (l *learner) learn(s stamped) bool {
	for i := range l.samples {
		if l.samples[i].boot == s.boot && l.samples[i].id == s.id {
			return false
		}
	}
	i, _ := slices.BinarySearchFunc(l.samples, s, compareStamped)
	last := i == len(l.samples)
	l.samples = slices.Insert(l.samples, i, s)
	if len(l.samples) > keptSamples {
		l.base.apply(&l.samples[0].Sample)
		l.samples = slices.Delete(l.samples, 0, 1)
	}
	if last { // the rest has been applied in its order
		l.now.apply(&s.Sample)
		l.trusted.Store(math.Float64bits(l.now.trust))
	} else {
		l.fold()
	}
	return true
}

func compareStamped(a, b stamped) int {
	switch {
	case a.at != b.at:
		return sign(a.at < b.at)
	case a.boot != b.boot:
		return sign(a.boot < b.boot)
	case a.id != b.id:
		return sign(a.id < b.id)
	}
	return 0
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}

// surprising reports whether a mark used so few tokens ago should have been there
// whatever small error C_eff has: it is far inside the horizon. Where nobody gave
// a capacity, C_eff starts as a mere guess, and only something found at a greater
// distance makes it one.
func (l *learner) surprising(distance float32) bool {
	if float64(distance) >= l.reach()/farInside {
		return false
	}
	if l.source != CapacityUnknown {
		return true
	}
	for i := range l.samples {
		if s := &l.samples[i]; (s.Verdict == Kept || s.Verdict == Alive) && s.Distance > distance {
			return true
		}
	}
	return false
}

// adopt takes what a peer learned from more samples than are known here.
func (l *learner) adopt(o Learned) bool {
	if o.Count <= l.now.count || l.source > o.Source || l.source == o.Source && l.given != o.Given {
		return false
	}
	l.given, l.source = o.Given, o.Source
	l.base = learned{tokens: o.Tokens, trust: o.Trust, rho: o.Rho, count: o.Count}
	l.samples = nil
	l.fold()
	return true
}

func (l *learner) export() Learned {
	return Learned{Given: l.given, Source: l.source, Tokens: l.now.tokens, Trust: l.now.trust, Rho: l.now.rho, Count: l.now.count}
}

func (l *learner) fold() {
	l.now = l.base
	for i := range l.samples {
		l.now.apply(&l.samples[i].Sample)
	}
	l.trusted.Store(math.Float64bits(l.now.trust))
}

// apply is one step of the distance rule. Growth is faster than shrinking since
// half of the true capacity costs far more than twice of it.
func (l *learned) apply(s *Sample) {
	d := float64(s.Distance)
	switch {
	case s.Verdict == Alive && d > l.tokens:
		l.tokens += (d - l.tokens) / 2
	case s.Verdict == Missing && d < l.tokens:
		l.tokens -= (l.tokens - d) / 4
	}
	l.tokens = min(max(l.tokens, minCapacity), maxCapacity)
	if s.Trust >= 0 {
		l.trust += (float64(s.Trust) - l.trust) * trustPace
	}
	if s.Ratio >= 0 {
		l.rho += (float64(s.Ratio) - l.rho) * rhoPace
	}
	l.count++
}

// cleared looks for a run of large predictions that were answered by nothing: the
// newest samples, at least lostStreak of them for different prompts, with no
// prediction kept in between and all placed after the last clearing. One prompt
// whose prefix the engine never caches is no run. It returns the instant before
// the first of them was placed.
func (l *learner) cleared(dead int64) (before int64, ok bool) {
	before = math.MaxInt64
	leaves := make(map[uint64]struct{}, lostStreak)
	for i := len(l.samples) - 1; i >= 0; i-- {
		s := &l.samples[i]
		if s.Verdict == Kept || s.Verdict == Alive || s.began <= dead {
			break
		}
		if s.Verdict == Lost {
			leaves[s.leaf] = struct{}{}
			before = min(before, s.began-1)
		}
	}
	return before, len(leaves) >= lostStreak
}
