package netns

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// Link is what becomes of packets from one host to another. The zero value passes all of them at once.
type Link struct {
	Delay  time.Duration // added to every packet
	Jitter time.Duration // uniform further delay in [0, Jitter); packets stay in order
	Loss   float64       // share of packets lost, 0..1
	Cut    bool          // all are lost
	NoUDP  bool          // datagrams are lost
	NoTCP  bool          // segments of streams are lost
}

// Protocols of IP, as its header numbers them.
const (
	protoTCP = 6
	protoUDP = 17
)

// passes says whether a packet gets through, given a draw from [0, 1).
func (l *Link) passes(proto byte, draw float64) bool {
	switch {
	case l.Cut, l.NoUDP && proto == protoUDP, l.NoTCP && proto == protoTCP:
		return false
	}
	return draw >= l.Loss
}

// takes draws how long a packet is under way.
func (l *Link) takes(rng *rand.Rand) time.Duration {
	if l.Jitter <= 0 {
		return l.Delay
	}
	return l.Delay + time.Duration(rng.Int64N(int64(l.Jitter)))
}

// header reads what the switch needs of a packet; false where it is no whole header of IPv4.
func header(b []byte) (to netip.Addr, proto byte, ok bool) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return netip.Addr{}, 0, false
	}
	return netip.AddrFrom4([4]byte(b[16:20])), b[9], true
}
