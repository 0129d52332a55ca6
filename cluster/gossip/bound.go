package gossip

import (
	"math"
	"time"
)

// Size is what the traffic of a router depends on.
type Size struct {
	Routers  int           // all of them
	Replicas int           // that are read and work is sent to; 0: none are read, and no two requests go to the same
	AllPairs int           // Config.AllPairs; 0: its default
	Rate     float64       // requests a second through this router, and through every other
	Links    float64       // new marks of a request, prompt and answer
	Lasting  time.Duration // of a request, from its dispatch to its end
}

// Bytes are what a router sends in a second, by what it is for: TCP and IP headers
// not included.
type Bytes struct {
	Rows     float64 // frames of load rows
	Ops      float64 // frames of sketch ops
	Readings float64 // frames of engine readings
	Lessons  float64 // frames of lessons
	Beacons  float64 // frames of beacons and their replies
	Pings    float64 // the mesh's own frames
	Seals    float64 // of records
	Members  float64 // membership
}

// Total is their sum.
func (b *Bytes) Total() float64 {
	return b.Rows + b.Ops + b.Readings + b.Lessons + b.Beacons + b.Pings + b.Seals + b.Members
}

// Bytes of what is sent: names, boots and stamps as streams' tables write them.
const (
	sealBytes    = 18   // of a record: its length and its tag
	rowsBytes    = 17.5 // frame of rows without any
	changedBytes = 12   // rows of a request: begun, answered, ended
	fullBytes    = 3    // a row of the full rows
	opsBytes     = 12   // frame of ops without any
	requestBytes = 98   // ops of a request without links: place, first, evidence, end
	linkBytes    = 10
	busyBytes    = 139   // frame of one reading of a replica with work
	idleBytes    = 129   // of one without
	lessonsBytes = 16    // frame of lessons without any
	speedBytes   = 56    // lesson of a replica's speed
	otherBytes   = 27    // those of an answer's length and a prompt's tokens
	beaconBytes  = 72    // a beacon and its reply
	pingBytes    = 10.25 // a ping or a pong
	packetBytes  = 90    // a datagram, membership's or a beacon
	memberBytes  = 120   // of a member in an exchange of all members
)

// How often things happen.
const (
	busyReadings = 9      // a second of a replica with work: 100 ms and until the next look
	idleReadings = 1.95   // of one without: 500 ms
	pings        = 4      // a second, a peer's pongs included
	probes       = 4      // datagrams of membership a second, one router's answers included
	exchange     = 15     // seconds between a router's exchanges of all members, up to 32 routers
	lessonGap    = 0.25   // seconds between two lessons about one thing
	opsWait      = 0.0075 // seconds that ops wait for rows
)

// Above AllPairs routers.
const (
	sectionBytes = 13   // of another router's rows in a frame that passes them on
	relayShare   = 0.58 // of the streams that the news of a router crosses, of those of routers without one to it
)

// Traffic predicts what a router sends where all goes well. Where all routers have
// streams to all, news crosses each once; above AllPairs routers it crosses most
// streams, of some in both directions.
func Traffic(s Size) Bytes {
	if s.Routers < 2 {
		return Bytes{}
	}
	all := s.AllPairs
	if all <= 0 {
		all = defaultAllPairs
	}
	q, n, r := s.Rate, float64(s.Routers), float64(s.Replicas)
	streams, passed := n-1, 0.0 // passed: routers whose news a stream carries beside the sender's
	if s.Routers > all {
		streams = math.Min(n-1, float64(2*distances(s.Routers)))
		passed = relayShare * (n - 1 - streams)
	}
	loaded := q * s.Lasting.Seconds()    // replicas a router has load at
	speed, other := q, q/(1+q*lessonGap) // lessons
	if r > 0 {
		loaded = r * -math.Expm1(-loaded/r)
		speed = q / (1 + q/r*lessonGap)
	}
	often, seldom := s.readings()
	taught := -math.Expm1(-q*lessonsEvery.Seconds()) / lessonsEvery.Seconds()

	news := 1 + passed
	section, _ := paces(s.Routers, 3*q) // a request changes its row three times
	turns, alone := paces(s.Routers, 3*q+passed*section)
	opsFrames := 0.0
	if q > 0 {
		opsFrames = turns - 1 + alone // full rows alone have none
	}
	b := Bytes{
		Rows:     turns*rowsBytes + passed*section*sectionBytes + news*(q*changedBytes+loaded*fullBytes),
		Ops:      opsFrames*opsBytes + news*q*(requestBytes+linkBytes*s.Links),
		Readings: news * (often*busyBytes + seldom*idleBytes),
		Lessons:  news * (taught*lessonsBytes + speed*speedBytes + other*otherBytes),
		Beacons:  beaconBytes,
		Pings:    pings * pingBytes,
		Seals:    (turns + alone + news*(often+seldom+taught) + 2 + pings) * sealBytes,
	}
	for _, x := range []*float64{&b.Rows, &b.Ops, &b.Readings, &b.Lessons, &b.Beacons, &b.Pings, &b.Seals} {
		*x *= streams
	}
	between := exchange * math.Max(1, math.Ceil(math.Log2(n/32))+1)
	b.Members = probes*packetBytes + streams*packetBytes/udpEvery.Seconds() + 2*n*memberBytes/between
	return b
}

// Readings is how many readings a router takes in a second.
func (s Size) Readings() float64 {
	often, seldom := s.readings()
	return often + seldom
}

// readings are those a router takes in a second, of replicas with work and without.
func (s Size) readings() (often, seldom float64) {
	if s.Replicas == 0 {
		return 0, 0
	}
	n, r := float64(s.Routers), float64(s.Replicas)
	busy := -math.Expm1(-n * s.Rate * s.Lasting.Seconds() / r)
	return r / n * busy * busyReadings, r / n * (1 - busy) * idleReadings
}

// paces is how often a router tells a peer of rows in a second, with the ops there
// are, and how often of ops alone, where something changes so often. The first
// change waits for what arises with it, further ones until the pace allows.
func paces(routers int, changes float64) (turns, alone float64) {
	pace := 0.010 * math.Ceil(float64(routers)/fullPace)
	rate := changes + 1 // full rows are a turn too
	turns = 1 / (pace + math.Exp(-rate*(pace-gather.Seconds()))/rate)
	alone = turns * changes * (pace - opsWait) / (1 + changes*opsWait)
	return turns, alone
}
