package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// timed measures how long news takes from where it arises to another router's
// apply, batching included. All routers share the bubble's clock.
type timed struct {
	c *Cluster
	r *Router

	mu   sync.Mutex
	past map[state.ReplicaID][]change // guarded by mu; own load, the latest last
	seen map[rowKey]state.Load        // guarded by mu; others' rows as last applied here
	rows []time.Duration              // guarded by mu; as applied here
	ops  []time.Duration              // guarded by mu
}

type change struct {
	load state.Load
	at   time.Time
}

type rowKey struct {
	boot    state.BootID
	replica state.ReplicaID
}

const (
	maxDelays  = 20000 // samples a router keeps of each kind
	maxChanges = 64    // changes remembered of one replica's load
)

// changed notes own load at a replica that has just changed.
func (t *timed) changed(v *state.ReplicaView) {
	if !t.c.cfg.Delays {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.past == nil {
		t.past = map[state.ReplicaID][]change{}
	}
	list := t.past[v.ID]
	if len(list) >= maxChanges {
		list = slices.Delete(list, 0, maxChanges/2)
	}
	t.past[v.ID] = append(list, change{v.Cell.Load(), time.Now()})
}

// arose is when own load at a replica last became l; zero: not lately.
func (t *timed) arose(id state.ReplicaID, l state.Load) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range slices.Backward(t.past[id]) {
		if x.load == l {
			return x.at
		}
	}
	return time.Time{}
}

// received notes that another router's rows were applied here.
func (t *timed) received(m *state.Rows) {
	from := t.c.byBoot(m.Boot)
	if from == nil {
		return
	}
	for _, row := range m.Rows {
		k := rowKey{m.Boot, row.Replica}
		t.mu.Lock()
		if t.seen == nil {
			t.seen = map[rowKey]state.Load{}
		}
		news := t.seen[k] != row.Load
		t.seen[k] = row.Load
		t.mu.Unlock()
		if at := from.timed.arose(row.Replica, row.Load); news && !at.IsZero() {
			t.note(&t.rows, time.Since(at))
		}
	}
}

func (t *timed) note(list *[]time.Duration, d time.Duration) {
	t.mu.Lock()
	if len(*list) < maxDelays {
		*list = append(*list, d)
	}
	t.mu.Unlock()
}

type timedStore struct {
	gossip.Store
	t *timed
}

func (s timedStore) ApplyRows(r state.Rows) bool {
	news := s.Store.ApplyRows(r)
	if news && s.t.c.cfg.Delays {
		s.t.received(&r)
	}
	return news
}

type timedIndex struct {
	gossip.Index
	t *timed
}

// Apply notes the age of the ops that a request's course makes; snapshots' are old.
func (x timedIndex) Apply(op sketch.Op, now time.Time) bool {
	news := x.Index.Apply(op, now)
	if news && op.Seq != 0 && x.t.c.cfg.Delays {
		if from := x.t.c.byBoot(op.Boot); from != nil {
			x.t.note(&x.t.ops, time.Since(from.clock.Time(op.Stamp.At)))
		}
	}
	return news
}
