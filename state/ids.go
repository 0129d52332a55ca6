package state

import (
	"strconv"
	"time"
)

// RouterID names a router for as long as its data directory lives.
type RouterID string

// BootID names one start of a router's process. Zero means unknown.
type BootID uint64

// String renders the boot id as 16 hexadecimal digits.
func (b BootID) String() string {
	s := strconv.FormatUint(uint64(b), 16)
	return "0000000000000000"[:16-len(s)] + s
}

// ReplicaID names one replica in the whole cluster: the UID that discovery gave,
// else its normalised URL and data-parallel rank.
type ReplicaID string

// OfRank is the id of one data-parallel rank of the process that id names.
func (id ReplicaID) OfRank(rank int) ReplicaID {
	return id + ReplicaID("#"+strconv.Itoa(rank))
}

// Slot is this router's dense number for a replica. A Slot is never given to a
// second replica within one process, so a stale one can only miss.
type Slot uint32

// Stamp is a moment on its origin's monotonic clock: At is the time since that
// boot began. It is relayed unchanged; only the receiver's Clock places it.
type Stamp struct {
	Boot BootID
	At   time.Duration
}
