package sketch

import (
	"math"
	"sync/atomic"

	"github.com/hearsay-llm/hearsay/state"
)

// entry is one mark on one replica. Lookup reads use, state, slot, hash and since, mostly
// only the first two, which share a cache line; all else is guarded by the replica's mu,
// under which everything is written.
type entry struct {
	use   atomic.Int64  // last use on the own clock, ns; never = not used yet
	state atomic.Uint64 // counts and flags, see below
	slot  state.Slot    // of the replica
	kids  uint32        // entries whose parent this is
	hash  uint64        // never changes
	since atomic.Int64  // placing of the oldest pending placement through it

	parent     *entry
	prev, next *entry // within the bucket of use
	began      int64  // latest placing among its uses; dead_before kills by it
	est        uint32 // tokens between parent and this, estimated
	scale      uint16 // measured correction of est in 1/ScaleOne; 0 = not measured
	known      bool   // inserted, not only named by others as a parent or a touched mark
	gone       bool   // removed from the index
}

// never is the use of an entry that was not used yet; liveAlways the horizon of
// a replica that has forgotten nothing; liveForever is later than any instant.
const (
	never       = math.MinInt64
	liveAlways  = math.MinInt64 + 1
	liveForever = math.MaxInt64
)

// state packs the number of placements that pin the entry as resident, the number
// for which it is still to be prefilled, and whether a prompt with it was prefilled.
const (
	onePin     = 1
	onePend    = 1 << 16
	promptFlag = 1 << 32
	listedFlag = 1 << 33 // while chains are listed only
	countMask  = 1<<16 - 1
)

func pinsOf(s uint64) uint64 { return s & countMask }
func pendOf(s uint64) uint64 { return s >> 16 & countMask }
func held(s uint64) bool     { return s&(1<<32-1) != 0 }

// tokens is the entry's token count, corrected where it was measured.
func (e *entry) tokens() int64 {
	if e.scale == 0 {
		return int64(e.est)
	}
	return (int64(e.est)*int64(e.scale) + ScaleOne/2) / ScaleOne
}

// answer reports that no prompt with this mark was prefilled yet: if it was used,
// an answer made it.
func (e *entry) answer() bool { return e.state.Load()&promptFlag == 0 }
