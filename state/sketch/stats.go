package sketch

import (
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// ReplicaStats is what the index says of one replica.
type ReplicaStats struct {
	Entries    int           // marks kept, dead ones included
	Tokens     int64         // their tokens
	Held       int64         // of those, tokens under placements in flight
	Bytes      int64         // memory: entries with their share of the table, and all else of the replica
	CEff       float64       // tokens the cache is taken to hold
	Given      float64       // what the engine or the configuration said; 0 unknown
	HorizonAge time.Duration // age of the oldest use taken to be alive; 0 = nothing was forgotten yet
	Rho        float64       // reported over predicted cached tokens, smoothed: an alarm, no multiplier
	Trust      float64       // share of answer tokens that is found again, 0..1
	Samples    uint64        // reports of cached tokens learned from
	Placements int           // in flight, of all routers that live
	Lost       int           // of routers found dead, resident until the horizon passes them
	DeadBefore time.Time     // zero: never cleared
	Prediction PredictionStats
	Drops      ReplicaDrops
}

// ReplicaDrops counts what bounds took from one replica since it is known.
type ReplicaDrops struct {
	Old         uint64 // marks so far beyond the horizon that C_eff will not grow to them
	NoRoom      uint64 // marks evicted for Bounds.Bytes or Bounds.Entries
	TooMany     uint64 // marks evicted for Bounds.EntriesPerReplica
	Live        uint64 // of all these, marks taken to be alive
	Refused     uint64 // marks not kept: no room, and nothing to evict
	Placements  uint64 // placements not kept: Bounds.Placements
	Phases      uint64 // memory of ended placements given up: a repeated or late placing may count anew
	Corrections uint64 // token counts not corrected: too many for marks not known yet
}

// TotalStats counts over all replicas since the start.
type TotalStats struct {
	Entries  int
	Replicas int
	Tokens   int64
	Bytes    int64 // memory in all, journal included
	Budget   int64 // Bounds.Bytes

	EntriesDropped    uint64 // marks refused: no room
	EvictedLive       uint64 // marks forgotten while they were taken to be alive: bounds too small
	EvictedOld        uint64 // marks forgotten, beyond what C_eff may grow to
	EvictedBytes      uint64 // marks forgotten for Bounds.Bytes
	EvictedEntries    uint64 // marks forgotten for Bounds.Entries or EntriesPerReplica
	ReplicasDropped   uint64 // replicas forgotten: too many
	PlacementsDropped uint64 // placements not kept: too many in flight at one replica
	PlacementsExpired uint64 // placements released: no end came
	OriginsDropped    uint64 // routers whose seen ops were forgotten: too many
	JournalDropped    uint64 // ops given up for the journal's share of Bounds.Bytes, before their turn
	OpsInvalid        uint64 // ops no router of this version makes
	OpsRepeated       uint64 // ops seen before
	OpsLate           uint64 // ops too far behind their origin's newest to be told from repeated ones
	OpsUnplaced       uint64 // ops of origins this clock never heard from
	OpsNews           uint64 // ops of others that changed something
	OpsStale          uint64 // ops of others that changed nothing
}

type totals struct {
	entriesDropped, evictedLive, evictedOld, evictedBytes, evictedEntries atomic.Uint64
	replicasDropped, placementsDropped, placementsExpired, originsDropped atomic.Uint64
	opsInvalid, opsRepeated, opsLate, opsUnplaced, opsNews, opsStale      atomic.Uint64
}

// Stats describes a replica at this moment; the zero value for an unknown one.
func (x *Index) Stats(id state.ReplicaID) ReplicaStats {
	now := x.now()
	r := x.find(id)
	if r == nil {
		return ReplicaStats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := ReplicaStats{
		Entries: r.entries, Tokens: r.ages.sum + r.ages.held, Held: r.ages.held,
		Bytes: r.weighed + int64(r.entries)*entryBytes,
		CEff:  r.learn.reach(), Given: r.learn.given, Rho: r.learn.now.rho, Trust: r.learn.now.trust,
		Samples: r.learn.now.count, Placements: len(r.flights) - r.lost, Lost: r.lost, Drops: r.drops,
		Prediction: r.truth.stats(),
	}
	s.Drops.Phases = r.tombs.lost
	if all := x.entries.Load(); all > 0 {
		s.Bytes += int64(float64(x.table.bytes.Load()) * float64(r.entries) / float64(all))
	}
	s.HorizonAge = r.horizonAge(x.ownTime(now))
	if r.dead != never {
		s.DeadBefore = x.clock.Time(time.Duration(r.dead))
	}
	return s
}

// horizonAge is the age of the horizon at t, 0 while nothing was forgotten.
func (r *replica) horizonAge(t int64) time.Duration {
	h := r.liveFrom.Load()
	if h == liveAlways {
		return 0
	}
	return time.Duration(max(0, t-h))
}

// Totals counts over all replicas.
func (x *Index) Totals() TotalStats {
	t := &x.totals
	x.mu.RLock()
	replicas := len(x.byID)
	x.mu.RUnlock()
	var tokens int64
	for _, r := range *x.bySlot.Load() {
		if r != nil {
			tokens += r.tokens.Load()
		}
	}
	return TotalStats{
		Entries: int(x.entries.Load()), Replicas: replicas, Tokens: tokens,
		Bytes: x.used(), Budget: int64(x.bounds.Bytes),
		EntriesDropped: t.entriesDropped.Load(), EvictedLive: t.evictedLive.Load(), EvictedOld: t.evictedOld.Load(),
		EvictedBytes: t.evictedBytes.Load(), EvictedEntries: t.evictedEntries.Load(),
		ReplicasDropped: t.replicasDropped.Load(), PlacementsDropped: t.placementsDropped.Load(),
		PlacementsExpired: t.placementsExpired.Load(), OriginsDropped: t.originsDropped.Load(),
		JournalDropped: x.journal.dropped.Load(), OpsInvalid: t.opsInvalid.Load(),
		OpsRepeated: t.opsRepeated.Load(), OpsLate: t.opsLate.Load(), OpsUnplaced: t.opsUnplaced.Load(),
		OpsNews: t.opsNews.Load(), OpsStale: t.opsStale.Load(),
	}
}
