package sketch

import (
	"math"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Clear says that everything the replica's cache held at deadBefore or earlier is
// gone (it restarted, was flushed, or lost its memory). It is shared; the latest
// instant wins everywhere. An instant ahead of this router's clock counts as now. The
// instant is when it was lost, not when that was noticed: what the new process was
// sent before anyone noticed it stays.
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

// deadStep is by how much dead_before must move on to be news, ns. What is relayed is
// placed anew at every hop and comes out a little later each time; without a step it
// would go round for ever.
const deadStep = int64(100 * time.Millisecond)

// kill makes everything that requests placed at t or before used gone. It reports
// whether that is news to others.
func (r *replica) kill(t int64) (news bool) {
	if t <= r.dead {
		return false
	}
	if r.deadTold == never || t-r.deadTold >= deadStep {
		news, r.deadTold = true, t
	}
	r.dead = t
	r.liveFrom.Store(max(r.liveFrom.Load(), t))
	for _, f := range r.book.held {
		r.unpin(f)
	}
	r.book.held, r.book.dirty = nil, r.book.n > 0
	for _, f := range r.flights {
		if f.began <= t {
			r.release(f, phaseWithdrawn, t)
			continue
		}
		if f.phase == phasePending {
			// What it was matched with is gone: it must prefill all of its path.
			for _, e := range f.path[f.pend:] {
				r.hold(e, onePend, f.began)
				r.unhold(e, onePin)
			}
			f.pend = len(f.path)
		}
		for _, e := range f.path {
			if e.began <= t {
				e.use.Store(never)
			}
		}
	}
	for i := range r.ages.b {
		for e, next := r.ages.b[i].head, (*entry)(nil); e != nil; e = next {
			if next = e.next; e.began <= t {
				r.ages.remove(e)
				r.free(e)
			}
		}
	}
	r.settle()
	return news
}
