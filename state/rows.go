package state

import (
	"slices"
	"time"
)

// Rows is one router's message about its own load. Values are absolute, so a
// lost delta is repaired by the next one that names the replica, or by the next
// full message.
type Rows struct {
	Router     RouterID
	Boot       BootID
	Seq        uint64 // grows with every message of this boot
	Full       bool   // replicas not named have no load
	FactsIndex uint64 // committed facts the router has applied
	Rows       []Row
	Backlogs   []Backlog // what waits at the router, as Rows are told
	Traffic    []Traffic // of its pools; none: nothing is told of it
}

// Backlog is what waits in a router's queue of one pool.
type Backlog struct {
	Pool     string
	Requests int64
	Tokens   int64 // uncached prompt tokens, as estimated
}

const (
	// MaxRows bounds the rows kept of one router.
	MaxRows = 1 << 16
	// MaxBacklogs bounds the pools of one router's queues.
	MaxBacklogs = 1 << 12
	// MaxRouters bounds the routers remembered, those included that are gone.
	MaxRouters = 4096
)

// routerRows is the writer's side of another router.
type routerRows struct {
	boot    BootID
	retired [8]BootID // boots before this one, a ring: late messages of theirs are no news
	next    int
	seq     uint64
	facts   uint64
	at      time.Time
	gone    bool // dropped: only boots and seq are remembered
	rows    map[ReplicaID]rowLoad
	total   Load

	backlogs []Backlog // in pool order; Views share it
	traffic  []Traffic // likewise
}

type rowLoad struct {
	load   Load
	failed uint32
}

// reboot starts over for a new boot.
func (r *routerRows) reboot(boot BootID) {
	if r.boot != 0 {
		r.retired[r.next%len(r.retired)] = r.boot
		r.next++
	}
	r.boot, r.seq, r.facts = boot, 0, 0
}

// ApplyRows takes another router's load message. It reports false for a message
// that is not news: of this router, of an earlier boot, repeated or overtaken.
func (s *Store) ApplyRows(m Rows) (news bool) {
	s.change(func() { news = s.applyRows(m) })
	return news
}

func (s *Store) applyRows(m Rows) bool {
	if m.Router == s.self {
		return false
	}
	r := s.routers[m.Router]
	switch {
	case r == nil:
		if len(s.routers) >= MaxRouters && !s.forgetGone() {
			s.dropped.Routers++
			return false
		}
		r = &routerRows{boot: m.Boot, rows: map[ReplicaID]rowLoad{}}
		s.routers[m.Router], s.order = r, nil
	case r.boot != m.Boot:
		if m.Boot != 0 && slices.Contains(r.retired[:], m.Boot) {
			return false
		}
		s.clearRows(m.Router, r)
		r.backlogs, r.traffic = nil, nil
		r.reboot(m.Boot)
	case m.Seq <= r.seq:
		return false
	}
	r.seq, r.at, r.facts, r.gone = m.Seq, s.now(), max(r.facts, m.FactsIndex), false
	s.pending.header = true
	if m.Full {
		named := make(map[ReplicaID]struct{}, len(m.Rows))
		for i := range m.Rows {
			named[m.Rows[i].Replica] = struct{}{}
		}
		for id := range r.rows {
			if _, ok := named[id]; !ok {
				s.setRow(m.Router, r, id, rowLoad{})
			}
		}
	}
	for i := range m.Rows {
		row := &m.Rows[i]
		s.setRow(m.Router, r, row.Replica, rowLoad{row.Load.sane(), min(row.Failures, maxFailures)})
	}
	s.setBacklogs(r, m.Backlogs, m.Full)
	r.setTraffic(m.Traffic, r.at)
	return true
}

// maxFailures bounds what is believed of a row's failures.
const maxFailures = 1 << 16

// setRow puts one row and carries the difference to the replica's sums. The caller
// holds mu.
func (s *Store) setRow(router RouterID, r *routerRows, id ReplicaID, to rowLoad) {
	was, had := r.rows[id]
	switch {
	case was == to:
		return
	case to == rowLoad{}:
		delete(r.rows, id)
	case !had && len(r.rows) >= MaxRows:
		s.dropped.Rows++
		return
	default:
		r.rows[id] = to
	}
	r.total = r.total.Add(to.load).sub(was.load)
	if e := s.entries[id]; e != nil {
		s.setEntryRow(e, router, to)
	}
}

// setEntryRow puts one router's row at a listed replica. The caller holds mu.
func (s *Store) setEntryRow(e *entry, router RouterID, to rowLoad) {
	i, found := findRouter(e.rows, router)
	var was rowLoad
	if found {
		was = rowLoad{e.rows[i].load, e.rows[i].failed}
	}
	if was == to {
		return
	}
	// Views share the slice they were published with; within one publication the
	// copy is the writer's own.
	if e.shared {
		e.rows = append(make([]routerLoad, 0, len(e.rows)+1), e.rows...)
		e.shared = false
	}
	switch {
	case to == rowLoad{}:
		e.rows = slices.Delete(e.rows, i, i+1)
	case found:
		e.rows[i].load, e.rows[i].failed = to.load, to.failed
	default:
		e.rows = slices.Insert(e.rows, i, routerLoad{router, to.load, to.failed})
	}
	e.others = e.others.Add(to.load).sub(was.load)
	e.failed += to.failed - was.failed
	now := s.clock.Since(s.now())
	e.past.note(now, e.others)
	if !e.readingAt.IsZero() && now-s.clock.Since(e.readingAt) <= rowsLag {
		e.knownOthers = e.knownOthers.most(e.others)
	}
	s.pending.mark(e)
}

// relistRows gives a newly listed replica the rows that came before it was. The
// caller holds mu.
func (s *Store) relistRows(e *entry) {
	for id, r := range s.routers {
		if row, ok := r.rows[e.replica.ID]; ok {
			s.setEntryRow(e, id, row)
		}
	}
}

// Reinstate takes back that a boot of a router is over: it lives, and the one that
// came after it was another router's with the same id. It reports whether the boot
// had been taken for over.
func (s *Store) Reinstate(id RouterID, boot BootID) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.routers[id]
	if r == nil || boot == 0 {
		return false
	}
	for i := range r.retired {
		if r.retired[i] == boot {
			r.retired[i], was = 0, true
		}
	}
	return was
}

func (s *Store) clearRows(id RouterID, r *routerRows) {
	for replica := range r.rows {
		s.setRow(id, r, replica, rowLoad{})
	}
}

// DropRouter forgets another router's rows: it left, died, or fell silent. What it
// says later with a higher sequence, or after a restart, is news again.
func (s *Store) DropRouter(id RouterID) {
	s.change(func() {
		if r := s.routers[id]; r != nil && !r.gone {
			s.drop(id, r)
		}
	})
}

// DropSilent forgets the rows of routers from which nothing came since before,
// and returns their ids, sorted.
func (s *Store) DropSilent(before time.Time) (dropped []RouterID) {
	s.change(func() {
		for id, r := range s.routers {
			if !r.gone && r.at.Before(before) {
				s.drop(id, r)
				dropped = append(dropped, id)
			}
		}
	})
	slices.Sort(dropped)
	return dropped
}

func (s *Store) drop(id RouterID, r *routerRows) {
	s.clearRows(id, r)
	r.backlogs, r.gone = nil, true
	s.pending.header = true
}

// forgetGone makes room for a router by forgetting the one dropped longest ago; it
// reports false when all are there. The caller holds mu.
func (s *Store) forgetGone() bool {
	var oldest RouterID
	found := false
	for id, r := range s.routers {
		if r.gone && (!found || r.at.Before(s.routers[oldest].at)) {
			oldest, found = id, true
		}
	}
	delete(s.routers, oldest)
	s.order = nil
	return found
}
