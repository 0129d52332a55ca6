package state

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// entry is the writer's side of one replica.
type entry struct {
	replica   Replica
	slot      Slot
	cell      *Cell
	addedAt   time.Time
	reading   Reading
	readingAt time.Time
	askedAt   time.Time // of the last reading of any kind

	knownOwn, knownOthers Load // at the reading
	downSince             time.Time
	downReaders           []RouterID

	adapters    []string // as last told; Views share it
	adaptersSum uint64
	loaded      []string // adapters, the one seen last first; Views share it

	others Load         // sum of rows
	failed uint32       // sum of rows
	past   history      // of others
	rows   []routerLoad // in router id order; Views may share it
	shared bool         // some View does

	place  place // in the View; pool < 0: its pool has no spec
	marked bool  // in pending.entries
}

// pending is what changed since the last View.
type pending struct {
	listing  bool     // pools, replicas or facts: everything is made anew
	header   bool     // routers, weights
	adapters bool     // what some replica lists
	entries  []*entry // these replicas
}

// mark notes that a replica changed.
func (p *pending) mark(e *entry) {
	if !e.marked {
		e.marked = true
		p.entries = append(p.entries, e)
	}
}

// relist works out which replicas exist from all sources. The caller holds mu.
func (s *Store) relist() {
	want := map[ReplicaID]Replica{}
	keys := slices.SortedFunc(maps.Keys(s.listed), func(a, b listKey) int { return strings.Compare(b.pool, a.pool) })
	for _, source := range []Source{SourceStatic, SourceDiscovery} {
		for _, k := range keys { // last one wins: the first pool in name order
			if k.source != source {
				continue
			}
			if source != SourceStatic && !s.hasPool(k.pool) {
				continue // what finds replicas outlives its pool
			}
			for _, r := range s.listed[k] {
				r.Source, r.Pool = source, k.pool
				if _, other := want[r.ID]; !other || r.Leaving != ListedNoMore {
					want[r.ID] = r
				}
			}
		}
	}
	for id, r := range s.facts.Replicas {
		if r.ID, r.Source = id, SourceCommitted; s.hasPool(r.Pool) {
			want[id] = r
		}
	}
	oneOfEach(want)
	want = expandRanks(s.pools, want)
	for id, e := range s.entries {
		if _, ok := want[id]; !ok {
			s.unlist(id, e)
		}
	}
	for id, c := range s.ghosts {
		if c.Load() == (Load{}) {
			delete(s.ghosts, id)
		}
	}
	now := s.now()
	for id, r := range want {
		if e := s.entries[id]; e != nil {
			e.replica = r
			continue
		}
		e := &entry{replica: r, slot: s.slot(id), cell: s.ghosts[id], reading: UnknownReading(id), addedAt: now}
		if e.cell == nil {
			e.cell = &Cell{clock: s.clock}
		}
		delete(s.ghosts, id)
		s.entries[id] = e
		s.relistRows(e)
	}
}

// hasPool reports whether the configuration has a pool: what is listed for one that it
// has no more keeps no replica from another. The caller holds mu.
func (s *Store) hasPool(name string) bool {
	return slices.ContainsFunc(s.pools, func(p PoolSpec) bool { return p.Name == name })
}

// oneOfEach takes out what is listed under a second id at one URL: an address is one
// replica. Who was told of last stays: the facts, then discovery.
func oneOfEach(list map[ReplicaID]Replica) {
	rank := func(r Replica) int {
		if r.Leaving == ListedNoMore {
			return -1 // whoever lists it still is right
		}
		n := map[Source]int{SourceStatic: 0, SourceDiscovery: 2, SourceCommitted: 4}[r.Source]
		if r.Leaving == "" {
			n++
		}
		return n
	}
	at := make(map[string]Replica, len(list))
	for id, r := range list {
		a := Authority(r.URL)
		if a == "" {
			continue
		}
		other, twice := at[a]
		if !twice || rank(r) > rank(other) || rank(r) == rank(other) && id < other.ID {
			at[a] = r
		}
	}
	maps.DeleteFunc(list, func(id ReplicaID, r Replica) bool {
		a := Authority(r.URL)
		return a != "" && at[a].ID != id
	})
}

// unlist takes a replica out. Requests still running there keep their cell, so that
// they count again should it come back before they end.
func (s *Store) unlist(id ReplicaID, e *entry) {
	delete(s.entries, id)
	delete(s.drains, id)
	delete(s.drains, e.replica.Process())
	delete(s.slots, id)
	if e.cell.Load() != (Load{}) {
		s.ghosts[id] = e.cell
	}
	if s.onGone != nil {
		s.onGone(e.slot, id)
	}
}

// publish makes a new View of what changed, if anything did and no Batch is open.
// The caller holds mu.
func (s *Store) publish() {
	p := &s.pending
	if s.batch > 0 || (!p.listing && !p.header && len(p.entries) == 0) {
		return
	}
	s.seq++
	v := &View{At: s.now(), Seq: s.seq, Self: s.self, Facts: s.facts, Weights: s.weights}
	if p.listing {
		s.publishAll(v)
	} else {
		s.publishChanged(v, s.view.Load())
	}
	if p.listing || p.adapters {
		v.adapters = s.indexAdapters(v)
	} else {
		v.adapters = s.view.Load().adapters
	}
	s.publishRouters(v)
	for i, e := range p.entries {
		e.marked = false
		p.entries[i] = nil
	}
	p.listing, p.header, p.adapters, p.entries = false, false, false, p.entries[:0]
	s.view.Store(v)
	select {
	case s.published <- struct{}{}:
	default:
	}
}

// publishAll makes every pool and replica of v anew.
func (s *Store) publishAll(v *View) {
	v.index = &viewIndex{
		names:    make(map[string]int32, 2*len(s.pools)),
		replicas: make(map[ReplicaID]place, len(s.entries)),
	}
	at := make(map[string]int32, len(s.pools))
	for _, spec := range s.pools {
		if i, ok := at[spec.Name]; ok { // named twice: the last spec counts
			v.Pools[i].Spec = spec
			continue
		}
		at[spec.Name] = int32(len(v.Pools))
		v.Pools = append(v.Pools, &PoolView{Spec: spec, Queue: s.queue(spec.Name), Counter: s.counter(spec.Name)})
	}
	slices.SortFunc(v.Pools, func(a, b *PoolView) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	for i, p := range v.Pools {
		at[p.Spec.Name] = int32(i)
		p.FilePolicy = p.Spec.Policy
		if set := s.facts.Policies[p.Spec.Name]; set != "" {
			p.Spec.Policy = set
		}
	}
	v.index.name(v.Pools)
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[id]
		i, ok := at[e.replica.Pool]
		if !ok {
			e.place = place{pool: -1}
			continue
		}
		p := v.Pools[i]
		e.place = place{i, int32(len(p.Replicas))}
		v.index.replicas[id] = e.place
		if of := e.replica.Process(); of != id && e.replica.Rank == 0 {
			v.index.replicas[of] = e.place // operators name processes
		}
		p.Replicas = append(p.Replicas, s.replicaView(e))
		p.Split = p.Split || e.replica.Role == RolePrefill || e.replica.Role == RoleDecode
	}
}

// name fills in the names. A model's name wins over an alias, and both over another
// pool's own name.
func (x *viewIndex) name(pools []*PoolView) {
	for _, names := range []func(*PoolSpec) []string{
		func(p *PoolSpec) []string { return []string{p.Name} },
		func(p *PoolSpec) []string { return p.Aliases },
		func(p *PoolSpec) []string { return []string{p.Model} },
	} {
		for i, p := range pools {
			for _, n := range names(&p.Spec) {
				if n != "" {
					x.names[n] = int32(i)
				}
			}
		}
	}
}

// publishChanged makes v from the View before it, with the marked replicas anew.
func (s *Store) publishChanged(v, prev *View) {
	v.Pools, v.index = prev.Pools, prev.index
	for _, e := range s.pending.entries {
		if e.place.pool < 0 || s.entries[e.replica.ID] != e {
			continue
		}
		if &v.Pools[0] == &prev.Pools[0] {
			v.Pools = slices.Clone(prev.Pools)
		}
		p := v.Pools[e.place.pool]
		if p == prev.Pools[e.place.pool] {
			p = &PoolView{Spec: p.Spec, FilePolicy: p.FilePolicy, Replicas: slices.Clone(p.Replicas), Split: p.Split, Queue: p.Queue, Counter: p.Counter}
			v.Pools[e.place.pool] = p
		}
		p.Replicas[e.place.at] = s.replicaView(e)
	}
}

// publishRouters lists the other routers. Each RouterView looks rows up in its own
// View, so the list is never shared.
func (s *Store) publishRouters(v *View) {
	if s.order == nil {
		s.order = slices.Sorted(maps.Keys(s.routers))
	}
	if len(s.order) == 0 {
		return
	}
	v.Routers = make([]RouterView, 0, len(s.order))
	for _, id := range s.order {
		if r := s.routers[id]; !r.gone {
			v.Routers = append(v.Routers, RouterView{
				ID: id, Boot: r.boot, FactsIndex: r.facts, RowsAt: r.at, Total: r.total, Backlogs: r.backlogs, traffic: r.traffic, view: v,
			})
		}
	}
}

// replicaView is the replica as it is now.
func (s *Store) replicaView(e *entry) *ReplicaView {
	e.shared = true
	rv := &ReplicaView{
		Replica: e.replica, Slot: e.slot, Cell: e.cell, Others: e.others,
		Reading: e.reading, ReadingAt: e.readingAt, AskedAt: e.askedAt, KnownAtReading: e.knownOwn.Add(e.knownOthers),
		Adapters: e.adapters, AdaptersSum: e.adaptersSum, Loaded: e.loaded,
		AddedAt: e.addedAt, DownSince: e.downSince, DownReaders: len(e.downReaders),
		OthersFailures: e.failed, rows: e.rows,
	}
	rv.Draining, rv.DrainReason = e.replica.Leaving != "", e.replica.Leaving
	for _, id := range [2]ReplicaID{e.replica.ID, e.replica.Process()} {
		if d, ok := s.facts.Draining[id]; ok {
			rv.Draining, rv.DrainReason = true, d.Reason
		} else if d, ok := s.drains[id]; ok && !rv.Draining {
			rv.Draining, rv.DrainReason = true, d.reason
		}
	}
	return rv
}
