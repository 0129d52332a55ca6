package main

import (
	"slices"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// history is what one router's rows were, and since when. A value is told apart
// from others by its uncached tokens, which are made unique.
type history struct {
	mu   sync.Mutex
	rows map[state.ReplicaID][]moment // guarded by mu
}

// note keeps what the router's own row is now.
func (r *router) note(v *state.ReplicaView) {
	if r.watched {
		r.history.note(v.ID, v.Cell.Load(), time.Now())
	}
}

type moment struct {
	load state.Load
	at   time.Time
}

func (h *history) note(id state.ReplicaID, l state.Load, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rows == nil {
		h.rows = map[state.ReplicaID][]moment{}
	}
	h.rows[id] = append(h.rows[id], moment{l, at})
}

// covered is when the oldest change arose that a value tells of to somebody who saw
// the first so many, and how many he has seen then.
func (h *history) covered(id state.ReplicaID, l state.Load, seen int) (since time.Time, now int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.rows[id]
	for i := len(list) - 1; i >= seen; i-- {
		if list[i].load == l {
			return list[seen].at, i + 1
		}
	}
	return time.Time{}, seen
}

// delays are one router's samples, of what others told it.
type delays struct {
	mu   sync.Mutex
	on   bool            // guarded by mu
	rows []time.Duration // guarded by mu
	ops  []time.Duration // guarded by mu
}

// start makes it take samples.
func (d *delays) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = true
}

func (d *delays) add(list *[]time.Duration, x time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on {
		*list = append(*list, x)
	}
}

// watchedStore notes how late rows are. It is called by one goroutine.
type watchedStore struct {
	gossip.Store
	c    *cluster
	d    *delays
	seen map[state.RouterID]map[state.ReplicaID]int
}

func (s *watchedStore) ApplyRows(m state.Rows) bool {
	news := s.Store.ApplyRows(m)
	from := s.c.byID[m.Router]
	if !news || from == nil {
		return news
	}
	seen := s.seen[m.Router]
	if seen == nil {
		seen = map[state.ReplicaID]int{}
		s.seen[m.Router] = seen
	}
	now := time.Now()
	rows := m.Rows
	if m.Full {
		rows = append(slices.Clone(rows), unnamed(seen, rows)...)
	}
	for _, row := range rows {
		since, n := from.history.covered(row.Replica, row.Load, seen[row.Replica])
		if !since.IsZero() {
			s.d.add(&s.d.rows, now.Sub(since))
		}
		seen[row.Replica] = n
	}
	return news
}

// unnamed are the rows that a full message tells by leaving them out: without load.
func unnamed(seen map[state.ReplicaID]int, rows []state.Row) (list []state.Row) {
	for id := range seen {
		if !slices.ContainsFunc(rows, func(r state.Row) bool { return r.Replica == id }) {
			list = append(list, state.Row{Replica: id})
		}
	}
	return list
}

// watchedIndex notes how late ops are.
type watchedIndex struct {
	gossip.Index
	c *cluster
	d *delays
}

func (x *watchedIndex) Apply(op sketch.Op, now time.Time) bool {
	news := x.Index.Apply(op, now)
	if clock := x.c.clocks[op.Stamp.Boot]; news && op.Seq != 0 && clock != nil {
		x.d.add(&x.d.ops, time.Since(clock.Time(op.Stamp.At)))
	}
	return news
}

// quantiles in milliseconds.
func quantiles(list []time.Duration) (p50, p99 float64) {
	if len(list) == 0 {
		return 0, 0
	}
	slices.Sort(list)
	ms := func(i int) float64 { return float64(list[i].Microseconds()) / 1e3 }
	return ms(len(list) / 2), ms(len(list) * 99 / 100)
}
