package sketch

import (
	"math"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Clear says that everything the replica's cache held at deadBefore or earlier is
// gone (it restarted, was flushed, or lost its memory). It is shared; the latest
// instant wins everywhere. An instant ahead of this router's clock counts as now. The
// instant is when it was lost, not when that was noticed (Restarted).
func (x *Index) Clear(id state.ReplicaID, deadBefore state.Stamp) {
	now := x.now()
	own := x.ownTime(now)
	at, ok := x.clock.Place(deadBefore, now, time.Duration(own))
	if !ok || id == "" || len(id) > MaxIDBytes {
		return
	}
	x.clear(id, int64(at), own)
}

func (x *Index) clear(id state.ReplicaID, at, own int64) {
	r := x.replica(id, math.MaxInt64, own)
	defer r.mu.Unlock()
	if r.kill(at) {
		stamp := state.Stamp{Boot: x.clock.Boot(), At: time.Duration(at)}
		x.news(r, Op{Kind: OpDead, Replica: id, Boot: x.clock.Boot(), Stamp: stamp}, true, own)
	}
}

// Restart is what a router knows of when a replica's process was replaced. Times
// are of this router, except Started.
type Restart struct {
	// Alive is the last instant at which the process before surely ran: the asking
	// of the last reading it answered. Zero: unknown.
	Alive time.Time
	// Started is when the new process began by its own wall clock
	// (process_start_time_seconds). Zero: unknown.
	Started time.Time
	// Seen is when the new process was first noticed, at the latest now. It must
	// carry a monotonic reading.
	Seen time.Time
}

// deadBefore is the latest instant at which the cache of the process before may
// have been used. The new process' own figure is of a foreign wall clock, so it
// counts only if it lies between Alive and Seen. Without one it is Alive: what was placed
// since may have met either process, and evidence will tell of the old one.
func (r *Restart) deadBefore() time.Time {
	at := r.Alive
	if !r.Started.IsZero() {
		at = r.Seen.Add(-r.Seen.Round(0).Sub(r.Started.Round(0)))
	}
	if at.Before(r.Alive) || at.After(r.Seen) {
		at = r.Alive // that clock is wrong
	}
	if at.IsZero() || at.After(r.Seen) {
		return r.Seen
	}
	return at
}

// Restarted says that the replica runs as another process than before, whose cache
// began empty: like Clear, but what was placed on the new process before anyone
// noticed it stays.
func (x *Index) Restarted(id state.ReplicaID, r Restart) {
	if id == "" || len(id) > MaxIDBytes {
		return
	}
	own := x.ownTime(x.now())
	x.clear(id, min(x.ownTime(r.deadBefore()), own), own)
}
