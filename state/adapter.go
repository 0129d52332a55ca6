package state

import (
	"hash/fnv"
	"slices"
)

// MaxAdapters bounds the LoRA adapters that are known of one engine.
const MaxAdapters = 1024

// SumAdapters tells one list of adapters from another: no list gives 0, an empty one
// neither.
func SumAdapters(names []string) uint64 {
	h := fnv.New64a()
	for _, n := range names {
		_, _ = h.Write([]byte(n))
		_, _ = h.Write([]byte{0})
	}
	return max(1, h.Sum64())
}

// ListsAdapters reports whether a reading holds the adapters that its sum is of.
func (r *Reading) ListsAdapters() bool {
	return r.AdaptersSum != 0 && SumAdapters(r.Adapters) == r.AdaptersSum
}

// maxLoaded bounds the adapters taken to be in an engine's slots.
const maxLoaded = 64

// noteAdapters takes what a reading says of adapters, and reports whether the list of
// those served is another now. One that could not be read leaves the last list in
// place: an adapter does not go away with a lost reading. A list of which only an
// unknown sum came is left too, until the list comes.
func (e *entry) noteAdapters(r *Reading) (changed bool) {
	if !r.OK {
		if r.Loading || r.Refused {
			e.loaded = nil // another process, or one with empty slots
		}
		return false
	}
	if was := e.reading.Started; was > 0 && r.Started > was+1 {
		e.loaded = nil // another process; its start, told by its own clock, may waver
	}
	if r.AdapterSlots > 0 {
		e.loaded = load(e.loaded, r.AdaptersRunning, min(r.AdapterSlots, maxLoaded))
	}
	if r.AdaptersSum == e.adaptersSum || !r.ListsAdapters() {
		return false
	}
	e.adapters, e.adaptersSum = r.Adapters, r.AdaptersSum
	return true
}

// load is what an engine has in its slots after some adapters were seen running: an
// engine gives up the one that was used least recently. Both lists are left alone.
func load(loaded, running []string, slots int) []string {
	if len(running) == 0 && len(loaded) <= slots {
		return loaded
	}
	next := make([]string, 0, slots)
	for _, list := range [2][]string{running, loaded} {
		for _, n := range list {
			if len(next) < slots && !slices.Contains(next, n) {
				next = append(next, n)
			}
		}
	}
	if slices.Equal(next, loaded) {
		return loaded
	}
	return next
}

// ListsAdapter reports whether the replica's engine served an adapter when it was last
// read.
func (r *ReplicaView) ListsAdapter(name string) bool {
	_, ok := slices.BinarySearch(r.Adapters, name)
	return ok
}

// HasLoaded reports whether an adapter is likely in one of the engine's slots, and
// whether anything is known of those.
func (r *ReplicaView) HasLoaded(name string) (loaded, known bool) {
	return slices.Contains(r.Loaded, name), r.Reading.AdapterSlots > 0
}

// ListsAdapter reports whether any replica of the pool lists an adapter.
func (p *PoolView) ListsAdapter(name string) bool {
	return slices.ContainsFunc(p.Replicas, func(r *ReplicaView) bool { return r.ListsAdapter(name) })
}

// Adapters are the names that replicas of the pool list, sorted, each once.
func (p *PoolView) Adapters() (names []string) {
	for _, r := range p.Replicas {
		names = append(names, r.Adapters...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Resolve finds the pool that serves a name as clients give it, and the adapter that
// is meant if it is one. Names of pools and aliases win over adapters, and of two pools
// whose replicas list an adapter the one configured first. Nil if there is none.
func (v *View) Resolve(model string) (p *PoolView, adapter string) {
	if p := v.Pool(model); p != nil {
		return p, ""
	}
	if i, ok := v.adapters[model]; ok {
		return v.Pools[i], model
	}
	return nil, ""
}

// indexAdapters finds the pool of every adapter that is listed. The caller holds mu.
func (s *Store) indexAdapters(v *View) map[string]int32 {
	at := make(map[string]int32, len(v.Pools))
	for i, p := range v.Pools {
		at[p.Spec.Name] = int32(i)
	}
	var index map[string]int32
	for _, spec := range s.pools {
		i := at[spec.Name]
		for _, r := range v.Pools[i].Replicas {
			for _, n := range r.Adapters {
				if index == nil {
					index = map[string]int32{}
				}
				if _, ok := index[n]; !ok {
					index[n] = i
				}
			}
		}
	}
	return index
}

// AdaptersOf are the adapters of the pool's model that a reading as it was taken lists.
// vLLM and SGLang serve one model, by any of several names, so theirs are all of it; of
// other engines only those whose parent is the pool's model. The result is sorted, each
// name once, bounded.
func (p *PoolSpec) AdaptersOf(r *Reading) (names []string) {
	if p.WrongModel(r) != "" {
		return nil
	}
	own := r.Kind == EngineVLLM || r.Kind == EngineSGLang
	for i, n := range r.Adapters {
		if n != p.UpstreamName() && (own || i < len(r.AdapterParents) && r.AdapterParents[i] == p.UpstreamName()) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), MaxAdapters)]
}
