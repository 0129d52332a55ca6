package gossip

// Size is what the traffic of a router depends on.
type Size struct {
	Routers  int     // all of them
	AllPairs int     // Config.AllPairs; 0: its default
	Rate     float64 // requests a second through this router, and through every other
	Links    float64 // new marks of a request, prompt and answer
	Loaded   float64 // replicas a router has load at
}

// Traffic is about how many bytes a router sends in a second, sealing included, TCP
// and IP headers not, as fitted to what test/bench/gossip measures. Where all
// routers have streams to all, news crosses each once; above AllPairs routers it
// crosses every stream, most of them in one direction only.
func Traffic(s Size) float64 {
	if s.Routers < 2 {
		return 0
	}
	all := s.AllPairs
	if all <= 0 {
		all = defaultAllPairs
	}
	own := func(overhead float64) float64 {
		// At a high rate several requests' news share a record.
		return s.Rate*(requestBytes+linkBytes*s.Links+overhead/(1+s.Rate/sharing)) + rowBytes*s.Loaded
	}
	if s.Routers <= all {
		return float64(s.Routers-1)*(own(recordBytes)+idleBytes) + memberBytes
	}
	streams := float64(2 * distances(s.Routers))
	passed := relayShare * (float64(s.Routers-1) - streams) // origins, on one stream
	return streams*(own(recordBytes)+idleBytes+passed*(own(sectionBytes)+sectionIdle)) + memberBytes
}

// What Traffic was fitted with, in bytes.
const (
	requestBytes = 150 // ops and rows of a request, without links
	linkBytes    = 10
	rowBytes     = 10  // of the full rows of each second
	recordBytes  = 115 // frames and seals of a request that shares them with none
	idleBytes    = 265 // beacons, pings, full rows without load
	memberBytes  = 380 // membership
	sharing      = 30  // requests a second at which half of the records are shared
	sectionBytes = 30  // of a request's turns that are passed on
	sectionIdle  = 55  // full rows without load, passed on
	relayShare   = 0.58
)
