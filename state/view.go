package state

import "time"

// View is one immutable picture of the cluster. Nothing in it is ever changed
// after it is published, except what a ReplicaView's Cell counts.
type View struct {
	At      time.Time
	Seq     uint64
	Self    RouterID
	Pools   []*PoolView          // in name order
	byName  map[string]*PoolView // pool name, model or alias
	byID    map[ReplicaID]*ReplicaView
	Routers []RouterView // the other routers, in id order
	Facts   *Facts       // never nil
	Weights *Weights     // never nil; written by the balance loop
}

// PoolView is a pool and its replicas.
type PoolView struct {
	Spec     PoolSpec
	Replicas []*ReplicaView // in id order
}

// ReplicaView is one replica as this router knows it.
type ReplicaView struct {
	Replica
	Slot      Slot
	Cell      *Cell // own load, live
	Others    Load  // sum over the other routers' rows
	Reading   Reading
	ReadingAt time.Time // on the own clock; zero: never read
	// KnownAtReading is the load all routers' rows (own included) summed to when
	// the reading was taken. Engine figures above it are foreign load.
	KnownAtReading Load
	Draining       bool
	DrainReason    string
	AddedAt        time.Time // when this router first saw the replica
	// DownSince is when readings began to find the replica unreachable, none
	// having succeeded since; zero otherwise. Readers counts who found it so.
	DownSince   time.Time
	DownReaders int
	// OthersFailures sums what the other routers say of their failed outcomes
	// there since each one's last success.
	OthersFailures uint32
}

// RouterView is another router as this one knows it.
type RouterView struct {
	ID         RouterID
	Boot       BootID
	FactsIndex uint64    // committed facts it has applied
	RowsAt     time.Time // last time anything of its rows came
	Total      Load
	rows       map[ReplicaID]Load
}

// InFlight is what that router has running at the replica, by its last row.
func (r *RouterView) InFlight(id ReplicaID) int64 { return r.rows[id].InFlight }

// Pool finds the pool that serves a model name as clients give it: the pool's
// model, one of its aliases, or its own name, exact in case. Nil if there is none.
func (v *View) Pool(model string) *PoolView { return v.byName[model] }

// Replica finds a replica by id, or nil.
func (v *View) Replica(id ReplicaID) *ReplicaView { return v.byID[id] }

// Load is own plus others' load, as far as rows tell.
func (r *ReplicaView) Load() Load { return r.Cell.Load().Add(r.Others) }

// Fresh reports whether the replica's reading is young enough to be used at now.
func (r *ReplicaView) Fresh(now time.Time) bool {
	return !r.ReadingAt.IsZero() && r.Reading.OK && now.Sub(r.ReadingAt) < ReadingUseful
}

// Foreign estimates the requests at the engine that no router's row accounts for
// (traffic past us, routers cut off from us, the dead): the engine's running and
// waiting at the reading less what rows summed to at that instant, never negative.
// Unknown figures give zero and ok false.
func (r *ReplicaView) Foreign(now time.Time) (requests int64, ok bool) {
	if !r.Fresh(now) || r.Reading.Running < 0 {
		return 0, false
	}
	n := int64(r.Reading.Running + max(0, r.Reading.Waiting))
	return max(0, n-r.KnownAtReading.InFlight), true
}
