package sketch

import (
	mathbits "math/bits"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Match is what one replica holds of a prompt. Counts are of leading marks: n
// means marks[:n], 0 none.
type Match struct {
	Live int // marks up to the deepest live one
	// Solid is as Live, but of the deepest live mark that is not an answer's, at
	// most Live. What lies between the two is there with probability Trust.
	Solid int
	// Pending is the marks up to the deepest one that a placement without a first
	// token will have prefilled; 0 when that is not deeper than Live.
	Pending    int
	PendingAge time.Duration // age of the oldest such placement
	// Faded is the marks up to the deepest one that is known and taken for evicted; 0
	// when that is not deeper than Live. It may be there after all where C_eff is taken
	// for too small, and only a request that goes there can tell.
	Faded  int
	Answer bool    // the deepest live mark is an answer's: Solid < Live
	Trust  float64 // 0..1, share of answer tokens this replica is known to find again
}

// search is what one Lookup has still to find.
type search struct {
	open []int32  // by slot: candidate + 1 while it is to be resolved, else 0
	bits []uint64 // slots with a non-zero open
	any  uint64   // bit n: one of them is n modulo 64
	left int      // how many they are
	cand []candidate
	dst  []Match
}

type candidate struct {
	liveFrom int64
	since    int64
}

// ahead is how many marks are looked up before the first of them is judged.
const ahead = 32

// Lookup fills dst[i] with what slots[i] holds of the prompt; len(dst) must be
// len(slots) and no slot may stand twice. It allocates nothing once warm, and takes
// no lock.
func (x *Index) Lookup(dst []Match, marks []prefix.Mark, slots []state.Slot, now time.Time) {
	if len(slots) == 0 {
		return
	}
	s := x.searches.Get().(*search)
	defer x.searches.Put(s)
	s.begin(dst, slots, *x.bySlot.Load())
	var near [ahead]*cell
	for n := len(marks); n > 0 && s.left > 0; {
		some := marks[max(0, n-ahead):n]
		// Their cells lie anywhere in memory. A processor fetches many as fast as one
		// as long as no branch depends on what it waits for.
		for i := range some {
			x.table.fetch(some[i].Hash)
		}
		for i := range some {
			near[i] = x.table.find(some[i].Hash)
		}
		for i := len(some); i > 0 && s.left > 0; i, n = i-1, n-1 {
			if c := near[i-1]; c != nil && c.filter.Load()&s.any != 0 {
				s.meet(c, some[i-1].Hash, n)
			}
		}
	}
	s.finish(slots, x.ownTime(now))
}

// begin takes those slots that have a replica.
func (s *search) begin(dst []Match, slots []state.Slot, replicas []*replica) {
	if len(s.open) < len(replicas) {
		s.open = make([]int32, (len(replicas)+63)/64*64)
		s.bits = make([]uint64, len(s.open)/64)
	}
	if cap(s.cand) < len(slots) {
		s.cand = make([]candidate, len(slots))
	}
	s.cand, s.dst, s.any, s.left = s.cand[:len(slots)], dst, 0, 0
	for i, slot := range slots {
		dst[i] = Match{}
		if int(slot) >= len(replicas) || replicas[slot] == nil {
			continue
		}
		r := replicas[slot]
		dst[i].Trust = r.learn.trust()
		s.cand[i] = candidate{liveFrom: r.liveFrom.Load()}
		s.open[slot] = int32(i) + 1
		s.bits[slot/64] |= filterBit(slot)
		s.any |= filterBit(slot)
		s.left++
	}
}

// finish leaves everything as begin needs it.
func (s *search) finish(slots []state.Slot, now int64) {
	for i, slot := range slots {
		if int(slot) < len(s.open) {
			s.open[slot] = 0
			s.bits[slot/64] = 0
		}
		if m := &s.dst[i]; m.Pending > 0 {
			m.PendingAge = time.Duration(max(0, now-s.cand[i].since))
		}
	}
	s.dst = nil
}

// meet looks at those holders of the n-th mark that are still open. The cell may be
// another mark's by now.
func (s *search) meet(c *cell, hash uint64, n int) {
	h := c.many.Load()
	if h == nil {
		if e := c.one.Load(); e != nil && int(e.slot) < len(s.open) && e.hash == hash && s.open[e.slot] != 0 {
			s.judge(e, e.slot, n)
		}
		return
	}
	if h.hash != hash {
		return
	}
	before := 0 // holders in the words before
	for w := int(h.from); w < min(h.end(), len(s.bits)); w++ {
		word := h.bits(w)
		for want := word & s.bits[w]; want != 0; want &= want - 1 {
			bit := mathbits.TrailingZeros64(want)
			e := h.refs[before+mathbits.OnesCount64(word&(1<<bit-1))]
			s.judge(e, state.Slot(64*w+bit), n)
		}
		before += mathbits.OnesCount64(word)
	}
}

// judge takes what an open slot's entry of the n-th mark says.
func (s *search) judge(e *entry, slot state.Slot, n int) {
	i := s.open[slot] - 1
	if !resolve(&s.dst[i], &s.cand[i], e, n) {
		return
	}
	s.open[slot] = 0
	s.bits[slot/64] &^= filterBit(slot)
	s.left--
	s.any = 0
	for _, word := range s.bits {
		s.any |= word
	}
}

// resolve looks at one holder, coming from deeper marks, and reports whether the
// candidate needs no shallower ones.
func resolve(m *Match, c *candidate, e *entry, n int) bool {
	s := e.state.Load()
	switch {
	case pinsOf(s) > 0 || e.use.Load() > c.liveFrom:
		if m.Live == 0 {
			m.Live = n
		}
		if s&promptFlag != 0 {
			m.Solid = n
			m.Answer = n < m.Live
			return true
		}
		m.Answer = true
	case pendOf(s) > 0 && m.Live == 0 && m.Pending == 0:
		m.Pending, c.since = n, e.since.Load()
	case m.Live == 0 && m.Faded == 0 && pendOf(s) == 0 && s&promptFlag != 0:
		m.Faded = n
	}
	return false
}
