package state

import (
	"sync/atomic"
	"time"
)

// Load is what one router (or the sum of several) has at one replica.
type Load struct {
	InFlight       int64 // requests sent and not ended
	Prefill        int64 // of those, without a first token yet
	UncachedTokens int64 // prompt tokens those without a first token must still prefill
}

// Decode is the number of requests past their first token.
func (l Load) Decode() int64 { return max(0, l.InFlight-l.Prefill) }

// Add is the sum of two loads.
func (l Load) Add(o Load) Load {
	return Load{l.InFlight + o.InFlight, l.Prefill + o.Prefill, l.UncachedTokens + o.UncachedTokens}
}

func (l Load) sub(o Load) Load {
	return Load{l.InFlight - o.InFlight, l.Prefill - o.Prefill, l.UncachedTokens - o.UncachedTokens}
}

// Row is one router's load at one replica, as it travels.
type Row struct {
	Replica ReplicaID
	Load
	// Failures counts the writer's failed outcomes there since its last success.
	Failures uint32
}

// Cell is this router's own live load at one replica, shared by all Views so that
// a dispatch counts for the very next pick. All methods are safe for concurrent
// use. Every Begin is followed by exactly one End; FirstToken comes between them
// at most once. Tickets (Store.Begin) enforce that.
type Cell struct {
	inFlight atomic.Int64
	prefill  atomic.Int64
	uncached atomic.Int64
	version  atomic.Uint64 // bumped at every change
	first    atomic.Int64  // last first token, nanoseconds after clock's start; 0 = none

	refreshed atomic.Int64 // last refresh of the reading, same clock

	clock *Clock  // nil in a Cell made outside a Store
	past  history // of this load
}

// LastFirstToken is when a request last got its first token there through this
// router: proof that the replica serves. Zero if none did.
func (c *Cell) LastFirstToken() time.Time {
	d := c.first.Load()
	if d == 0 || c.clock == nil {
		return time.Time{}
	}
	return c.clock.Time(time.Duration(d))
}

// Load is the present own load.
func (c *Cell) Load() Load {
	return Load{c.inFlight.Load(), c.prefill.Load(), c.uncached.Load()}
}

// Version changes whenever the load does.
func (c *Cell) Version() uint64 { return c.version.Load() }

func (c *Cell) add(now time.Time, inFlight, prefill, uncached int64) {
	c.inFlight.Add(inFlight)
	c.prefill.Add(prefill)
	c.uncached.Add(uncached)
	c.version.Add(1)
	if c.clock != nil {
		c.past.note(c.clock.Since(now), c.Load())
	}
}

// Reading is what an engine said of itself at one moment. Counts and ratios that
// the engine did not report are negative: unknown, neither zero nor full.
type Reading struct {
	Replica ReplicaID
	Reader  RouterID
	At      Stamp // moment of the reading on the reader's clock
	OK      bool  // false: not reached, not ready or not readable; Err says why
	Loading bool  // answered, but not ready to serve (503 while loading, sleeping)
	Refused bool  // the connection was refused: nothing listens there
	// Answered: not OK, but what listens there answered, in a way that can't be read.
	Answered bool
	Err      string
	Kind     EngineKind
	Version  string
	Started  float64 // engine's process start by its own wall clock, Unix seconds; 0 unknown
	// Uptime is the age of the engine's process at the reading, whatever its wall
	// clock shows; negative unknown. It errs by at most a second, towards too young.
	Uptime   time.Duration
	Running  float64
	Waiting  float64
	KVUsage  float64 // 0..1
	Capacity float64 // KV tokens: blocks x block size, or slots x context
	// BlockSize is the tokens of a KV block. An engine with slots instead (Slots > 0)
	// keeps the last prompt of each, of up to Context tokens.
	BlockSize, Slots, Context float64
	// WaitingUncached is the number of prompt tokens still to prefill, where the
	// engine reports it.
	WaitingUncached float64
	Queries, Hits   float64 // prefix cache counters in tokens, cumulative
	Processed       float64 // prompt tokens since the process began, cumulative
	// Adapters are the LoRA adapters of its pool's model that the engine lists, sorted,
	// each once; AdaptersSum is SumAdapters of them, 0 where they are not known. Between
	// routers a list that did not change travels as its sum alone: then there are none
	// and the sum is of another list.
	Adapters    []string
	AdaptersSum uint64
	// AdapterParents are what the Adapters' parents are called, as an engine lists both;
	// nil once only those of the pool's model are left.
	AdapterParents []string
	// AdaptersRunning are those of requests that run, AdaptersWaiting of those that wait,
	// and AdapterSlots how many may run at a time; 0: the engine tells nothing of it.
	AdaptersRunning []string
	AdaptersWaiting []string
	AdapterSlots    int
	// Models are the names that the engine serves, adapters' included; none where it
	// is not known or any name will do. To other routers readings carry some of them, and
	// only of an engine that does not serve its pool's model.
	Models []string
	// WrongModel is the model that the reader's pool would ask the engine for and that
	// it does not serve: it would answer 404. Empty if there is none.
	WrongModel string
}

// UnknownReading returns a reading in which every figure is unknown.
func UnknownReading(id ReplicaID) Reading {
	return Reading{
		Replica: id, Uptime: -1, Running: -1, Waiting: -1, KVUsage: -1, Capacity: -1, BlockSize: -1, Slots: -1, Context: -1,
		WaitingUncached: -1, Queries: -1, Hits: -1, Processed: -1,
	}
}

// sane makes a reading's figures safe to calculate with: what is no number or
// absurd is unknown.
func (r Reading) sane() Reading {
	for _, f := range []*float64{
		&r.Running, &r.Waiting, &r.KVUsage, &r.Capacity, &r.BlockSize, &r.Slots, &r.Context,
		&r.WaitingUncached, &r.Queries, &r.Hits, &r.Processed,
	} {
		if !(*f >= 0 && *f <= maxFigure) {
			*f = -1
		}
	}
	if !(r.Started >= 0 && r.Started <= maxFigure) {
		r.Started = 0
	}
	if r.Uptime < 0 || r.Uptime > maxUptime {
		r.Uptime = -1
	}
	return r
}

// maxUptime bounds what is believed of a process's age.
const maxUptime = 10 * 365 * 24 * time.Hour

// maxFigure bounds what is believed of an engine's count or a router's row; sums
// of such over all routers fit in an int64.
const maxFigure = 1 << 48

// sane brings a foreign row's load within bounds.
func (l Load) sane() Load {
	l.InFlight = min(max(0, l.InFlight), maxFigure)
	l.Prefill = min(max(0, l.Prefill), l.InFlight)
	l.UncachedTokens = min(max(0, l.UncachedTokens), maxFigure)
	return l
}

// ReadingUseful is the age past which a reading's counts are unknown to scorers.
const ReadingUseful = 3 * time.Second
