package state

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// relist works out which replicas exist from all sources. The caller holds mu.
func (s *Store) relist() {
	want := map[ReplicaID]Replica{}
	for _, source := range []Source{SourceStatic, SourceDiscovery} {
		for k, list := range s.listed {
			if k.source != source {
				continue
			}
			for _, r := range list {
				r.Source, r.Pool = source, k.pool
				want[r.ID] = r
			}
		}
	}
	for id, r := range s.facts.Replicas {
		r.Source = SourceCommitted
		want[id] = r
	}
	now := s.now()
	for id, e := range s.entries {
		if _, ok := want[id]; !ok {
			delete(s.entries, id)
			delete(s.drains, id)
			delete(s.slots, id)
			if s.onGone != nil {
				s.onGone(e.slot, id)
			}
		}
	}
	for id, r := range want {
		if e := s.entries[id]; e != nil {
			e.replica = r
			continue
		}
		s.entries[id] = &entry{
			replica: r, slot: s.slot(id), cell: &Cell{},
			reading: UnknownReading(id), addedAt: now,
		}
	}
}

// publish makes a new View of the writer's state. The caller holds mu.
func (s *Store) publish() {
	if s.batch > 0 {
		return
	}
	s.seq++
	now := s.now()
	v := &View{
		At: now, Seq: s.seq, Self: s.self,
		byName: make(map[string]*PoolView, 2*len(s.pools)),
		byID:   make(map[ReplicaID]*ReplicaView, len(s.entries)),
		Facts:  s.facts, Weights: s.weights,
	}
	pools := make(map[string]*PoolView, len(s.pools))
	for _, spec := range s.pools {
		p := &PoolView{Spec: spec}
		pools[spec.Name] = p
		v.Pools = append(v.Pools, p)
	}
	slices.SortFunc(v.Pools, func(a, b *PoolView) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	// A model's or alias's name wins over another pool's own name.
	for _, name := range []func(*PoolSpec) []string{
		func(p *PoolSpec) []string { return []string{p.Name} },
		func(p *PoolSpec) []string { return p.Aliases },
		func(p *PoolSpec) []string { return []string{p.Model} },
	} {
		for _, p := range v.Pools {
			for _, n := range name(&p.Spec) {
				if n != "" {
					v.byName[n] = p
				}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.routers)) {
		r := s.routers[id]
		v.Routers = append(v.Routers, RouterView{
			ID: id, Boot: r.boot, FactsIndex: r.facts, RowsAt: r.at, Total: r.total, rows: r.rows,
		})
	}
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[id]
		p := pools[e.replica.Pool]
		if p == nil {
			continue
		}
		others := s.others(id)
		e.history.note(now, e.cell.Load().Add(others))
		rv := &ReplicaView{
			Replica: e.replica, Slot: e.slot, Cell: e.cell, Others: others,
			Reading: e.reading, ReadingAt: e.readingAt, KnownAtReading: e.known, AddedAt: e.addedAt,
		}
		if d, ok := s.facts.Draining[id]; ok {
			rv.Draining, rv.DrainReason = true, d.Reason
		} else if reason, ok := s.drains[id]; ok {
			rv.Draining, rv.DrainReason = true, reason
		}
		v.byID[id] = rv
		p.Replicas = append(p.Replicas, rv)
	}
	s.view.Store(v)
}

// history remembers what a replica's summed load was, to compare an engine's
// reading with what was known at its instant.
type history struct {
	points [64]point
	next   int
}

type point struct {
	at   time.Time
	load Load
}

func (h *history) note(now time.Time, l Load) {
	last := h.points[(h.next+len(h.points)-1)%len(h.points)]
	if last.load == l && !last.at.IsZero() {
		return
	}
	h.points[h.next] = point{now, l}
	h.next = (h.next + 1) % len(h.points)
}

// at is the load in force at t; fallback when nothing is remembered of it.
func (h *history) at(t time.Time, fallback Load) Load {
	for i := 1; i <= len(h.points); i++ {
		p := h.points[(h.next+len(h.points)-i)%len(h.points)]
		if p.at.IsZero() {
			break
		}
		if !p.at.After(t) {
			return p.load
		}
	}
	return fallback
}
