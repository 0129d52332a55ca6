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

// scratch maps slots to candidates for the length of one Lookup.
type scratch struct {
	open []int32  // by slot: candidate + 1 while it is to be resolved, else 0
	bits []uint64 // slots with a non-zero open
	cand []candidate
}

type candidate struct {
	liveFrom int64
	since    int64
}

// Lookup fills dst[i] with what slots[i] holds of the prompt; len(dst) must be
// len(slots) and no slot may stand twice. It allocates nothing once warm, and
// waits for no lock that is held for more than one mark's change.
func (x *Index) Lookup(dst []Match, marks []prefix.Mark, slots []state.Slot, now time.Time) {
	if len(slots) == 0 {
		return
	}
	sc := x.scratch.Get().(*scratch)
	defer x.scratch.Put(sc)
	replicas := *x.bySlot.Load()
	if len(sc.open) < len(replicas) {
		sc.open = make([]int32, (len(replicas)+63)/64*64)
		sc.bits = make([]uint64, len(sc.open)/64)
	}
	if cap(sc.cand) < len(slots) {
		sc.cand = make([]candidate, len(slots))
	}
	open, bits, cand := sc.open, sc.bits, sc.cand[:len(slots)]
	left := 0
	for i, s := range slots {
		dst[i] = Match{}
		if int(s) >= len(replicas) || replicas[s] == nil {
			continue
		}
		r := replicas[s]
		dst[i].Trust = r.learn.trust()
		cand[i] = candidate{liveFrom: r.liveFrom.Load()}
		open[s] = int32(i) + 1
		bits[s/64] |= 1 << (s % 64)
		left++
	}
	for n := len(marks); n > 0 && left > 0; n-- {
		hash := marks[n-1].Hash
		sh := x.table.shard(hash)
		sh.mu.RLock()
		switch c := sh.find(hash); {
		case c == nil:
		case c.many == nil:
			if s := c.one.slot; int(s) < len(open) && open[s] != 0 {
				i := open[s] - 1
				if resolve(&dst[i], &cand[i], c.one, n) {
					open[s] = 0
					bits[s/64] &^= 1 << (s % 64)
					left--
				}
			}
		case c.many.set == nil:
			for _, ref := range c.many.refs {
				if int(ref.slot) >= len(open) || open[ref.slot] == 0 {
					continue
				}
				i := open[ref.slot] - 1
				if resolve(&dst[i], &cand[i], ref.e, n) {
					open[ref.slot] = 0
					bits[ref.slot/64] &^= 1 << (ref.slot % 64)
					left--
				}
			}
		default:
			refs := c.many.refs
			before := 0 // holders in the words before
			for w, word := range c.many.set {
				if w >= len(bits) {
					break
				}
				for want := word & bits[w]; want != 0; want &= want - 1 {
					bit := want & -want
					ref := refs[before+mathbits.OnesCount64(word&(bit-1))]
					i := open[ref.slot] - 1
					if resolve(&dst[i], &cand[i], ref.e, n) {
						open[ref.slot] = 0
						bits[w] &^= bit
						left--
					}
				}
				before += mathbits.OnesCount64(word)
			}
		}
		sh.mu.RUnlock()
	}
	own := x.ownTime(now)
	for i, s := range slots {
		if int(s) < len(open) {
			open[s] = 0
			bits[s/64] = 0
		}
		if dst[i].Pending > 0 {
			dst[i].PendingAge = time.Duration(max(0, own-cand[i].since))
		}
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
