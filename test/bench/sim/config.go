package sim

import (
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Config says what cluster a cell runs. The zero value of a field is what the
// product does by default, unless said otherwise.
type Config struct {
	Routers, Replicas int
	Seed              uint64
	PickSeed          uint64  // of ties between picks, and of router ids; default Seed
	Policy            string  // default ttft
	NoSharing         bool    // as cluster.sharing: false
	KVTokens          int     // of each engine; default 400,000
	BatchTokens       int     // of an engine's step; default 2048
	Profile           string  // timing of the engines; default h100-70b-tp4
	Speed             float64 // of the engines, beside their profile's; default 1
	SlowFirst         float64 // the first engine takes so many times as long; default 1
	Rate              float64 // multiplies the workload's arrival rate; default 1
	SLO               SLO     // default DefaultSLO
	Link              simnet.Link

	// What is varied to find causes.
	Pick           routing.Config // parameters of the pick; Rand is set here
	ReadEvery      time.Duration
	RowsEvery      time.Duration
	OpsEvery       time.Duration
	CapacityFactor float64 // engines' figure of their cache times this; 0: the truth
	NoLessons      bool    // routers do not teach each other speeds, bytes per token and outputs
	NoForeign      bool    // engines do not say what runs
	OneStore       bool    // all routers share one store: load is known at once
	OneIndex       bool    // all routers share one sketch
	OneCalibration bool    // all routers share what they learned of engines' speeds
	OneRatio       bool    // all routers share what they learned of bytes per token
	Truth          bool    // the sketch's live matches are replaced by the engines' own caches

	// What is measured beside.
	Trace    bool // note what each pick went by
	Watch    bool // compare every pick with the truth
	Probe    int  // every so many requests, offer one to every router; 0: never
	Delays   bool // of gossip
	KeepDisk bool // routers save their sketch
	Loads    bool // sample every replica's load, ten times a second

	Late     int  // the last so many routers are not started at first
	Shortest bool // requests go where the fewest uncached tokens wait, by the engines' own truth
	InTurn   bool // requests go to the routers in turn instead of at random
}

func (c *Config) setDefaults() {
	if c.Routers == 0 {
		c.Routers = 1
	}
	if c.Replicas == 0 {
		c.Replicas = 8
	}
	if c.Policy == "" {
		c.Policy = "ttft"
	}
	if c.KVTokens == 0 {
		c.KVTokens = 400_000
	}
	if c.BatchTokens == 0 {
		c.BatchTokens = 2048
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.Rate == 0 {
		c.Rate = 1
	}
	if c.SLO == (SLO{}) {
		c.SLO = DefaultSLO
	}
	if c.Profile == "" {
		c.Profile = "h100-70b-tp4"
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	if c.PickSeed == 0 {
		c.PickSeed = c.Seed
	}
}
