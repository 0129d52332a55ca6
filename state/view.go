package state

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// View is one immutable picture of the cluster. Nothing in it is ever changed
// after it is published, except what a ReplicaView's Cell counts. Successive Views
// share what did not change.
type View struct {
	At      time.Time
	Seq     uint64
	Self    RouterID
	Pools   []*PoolView  // in name order
	Routers []RouterView // the other routers, in id order
	Facts   *Facts       // never nil
	Weights *Weights     // never nil; written by the balance loop
	index   *viewIndex
	demands atomic.Pointer[demands] // what was asked of it

	adapters map[string]int32 // adapter -> index in Pools
}

// viewIndex finds things in the Views of one listing.
type viewIndex struct {
	names    map[string]int32    // pool name, model or alias -> index in Pools
	replicas map[ReplicaID]place // of listed replicas
}

// place is where a replica stands in a View.
type place struct{ pool, at int32 }

// PoolView is a pool and its replicas.
type PoolView struct {
	Spec       PoolSpec       // its Policy is the operators' where the facts have one
	FilePolicy string         // the policy that the configuration gives
	Replicas   []*ReplicaView // in id order
	Split      bool           // some replicas serve one leg of a request only
	// Queue counts, live, what waits for a replica at this router: InFlight requests of
	// UncachedTokens.
	Queue *Cell
	// Counter counts, live, what is asked of the pool at this router.
	Counter *Counter
}

// ReplicaView is one replica as this router knows it.
type ReplicaView struct {
	Replica
	Slot      Slot
	Cell      *Cell // own load, live
	Others    Load  // sum over the other routers' rows
	Reading   Reading
	ReadingAt time.Time // on the own clock; zero: never read
	AskedAt   time.Time // when any router last tried to read it, as far as known
	// KnownAtReading is the load all routers' rows (own included) summed to when
	// the reading was taken. Engine figures above it are foreign load.
	KnownAtReading Load
	// Adapters are the LoRA adapters of its model that its engine listed last, sorted,
	// however long ago that was; AdaptersSum is their sum, 0 while nothing was told.
	// Loaded are those that are likely in its slots, the one seen last first.
	Adapters    []string
	AdaptersSum uint64
	Loaded      []string
	Draining    bool
	DrainReason string
	AddedAt     time.Time // when this router first saw the replica
	// DownSince is when readings began to find the replica unreachable, none
	// having succeeded since; zero otherwise. Readers counts who found it so.
	DownSince   time.Time
	DownReaders int
	// OthersFailures sums what the other routers say of their failed outcomes
	// there since each one's last success.
	OthersFailures uint32
	rows           []routerLoad // the other routers' rows that are not zero, in router id order
}

// routerLoad is one router's row at a replica.
type routerLoad struct {
	router RouterID
	load   Load
	failed uint32
}

// RouterView is another router as this one knows it.
type RouterView struct {
	ID         RouterID
	Boot       BootID
	FactsIndex uint64    // committed facts it has applied
	RowsAt     time.Time // last time anything of its rows came
	Total      Load
	Backlogs   []Backlog // what waits at it, in pool order
	traffic    []Traffic // in pool order
	view       *View
}

// InFlight is what that router has running at a replica, by its last row; zero for
// a replica that the View doesn't list.
func (r *RouterView) InFlight(id ReplicaID) int64 {
	if r.view == nil {
		return 0
	}
	rv := r.view.Replica(id)
	if rv == nil {
		return 0
	}
	i, ok := findRouter(rv.rows, r.ID)
	if !ok {
		return 0
	}
	return rv.rows[i].load.InFlight
}

func findRouter(rows []routerLoad, id RouterID) (int, bool) {
	return slices.BinarySearchFunc(rows, id, func(r routerLoad, id RouterID) int {
		return strings.Compare(string(r.router), string(id))
	})
}

// Pool finds the pool that serves a model name as clients give it: the pool's
// model, one of its aliases, or its own name, exact in case. Nil if there is none.
func (v *View) Pool(model string) *PoolView {
	if v.index == nil {
		return nil
	}
	if i, ok := v.index.names[model]; ok {
		return v.Pools[i]
	}
	return nil
}

// PoolNamed finds a pool by its own name, or nil.
func (v *View) PoolNamed(name string) *PoolView {
	i, ok := slices.BinarySearchFunc(v.Pools, name, func(p *PoolView, name string) int { return strings.Compare(p.Spec.Name, name) })
	if !ok {
		return nil
	}
	return v.Pools[i]
}

// Replica finds a replica by id, or nil. The id of a process with several ranks
// finds its first one.
func (v *View) Replica(id ReplicaID) *ReplicaView {
	if v.index == nil {
		return nil
	}
	if p, ok := v.index.replicas[id]; ok {
		return v.Pools[p.pool].Replicas[p.at]
	}
	return nil
}

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
