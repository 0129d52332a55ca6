package sim

import (
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// timed measures how long news takes from where it arises to another router's
// apply, batching included. All routers share the bubble's clock.
type timed struct {
	c *Cluster
	r *Router

	mu     sync.Mutex
	dirty  time.Time            // guarded by mu; first own change not told yet
	origin map[uint64]time.Time // guarded by mu; by rows message, when its first change arose
	seq    uint64               // guarded by mu; of the rows message being sent
	dec    wire.Decoder         // guarded by mu
	rows   []time.Duration      // guarded by mu; as received
	ops    []time.Duration      // guarded by mu
}

// touched notes a change of own load.
func (t *timed) touched() {
	t.mu.Lock()
	if t.dirty.IsZero() {
		t.dirty = time.Now()
	}
	t.mu.Unlock()
}

// maxDelays bounds the samples a router keeps of each kind.
const maxDelays = 20000

// received notes that a message of another router's rows was applied here.
func (t *timed) received(rows *state.Rows) {
	from := t.c.byBoot(rows.Boot)
	if from == nil {
		return
	}
	from.timed.mu.Lock()
	at, ok := from.timed.origin[rows.Seq]
	from.timed.mu.Unlock()
	if ok {
		t.note(&t.rows, time.Since(at))
	}
}

func (t *timed) note(list *[]time.Duration, d time.Duration) {
	t.mu.Lock()
	if len(*list) < maxDelays {
		*list = append(*list, d)
	}
	t.mu.Unlock()
}

type timedMesh struct {
	gossip.Mesh
	t *timed
}

// Send notes the instant a rows message's first change arose, at its first sending.
func (m timedMesh) Send(to state.RouterID, k wire.Kind, payload []byte) bool {
	if k == wire.KindRows && m.t.c.cfg.Delays {
		m.t.mu.Lock()
		if rows, err := m.t.dec.Rows(payload); err == nil && rows.Boot == m.t.r.clock.Boot() && rows.Seq != m.t.seq {
			m.t.seq = rows.Seq
			if !m.t.dirty.IsZero() && !rows.Full {
				if m.t.origin == nil {
					m.t.origin = map[uint64]time.Time{}
				}
				m.t.origin[rows.Seq] = m.t.dirty
				delete(m.t.origin, rows.Seq-10000)
			}
			m.t.dirty = time.Time{}
		}
		m.t.mu.Unlock()
	}
	return m.Mesh.Send(to, k, payload)
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
