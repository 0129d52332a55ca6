package state_test

import (
	"slices"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

// idsOf are the ids of all replicas, by pool and id; those that drain are marked.
func idsOf(s *state.Store) (out []string) {
	for _, p := range s.View().Pools {
		for _, r := range p.Replicas {
			id := p.Spec.Name + " " + string(r.ID)
			if r.Draining {
				id += " draining: " + r.DrainReason
			}
			out = append(out, id)
		}
	}
	return out
}

func wantListed(t *testing.T, s *state.Store, want ...string) {
	t.Helper()
	if have := idsOf(s); !slices.Equal(have, want) {
		t.Errorf("listed %q, want %q", have, want)
	}
}

// An address is one replica, whoever lists it by whatever id: the facts win over
// discovery, and that over static lists.
func TestAddressIsOneReplica(t *testing.T) {
	s, _ := newClockedStore(0)
	s.SetPools([]state.PoolSpec{{Name: "a", Model: "a"}, {Name: "b", Model: "b"}})
	s.SetReplicas(state.SourceStatic, "a", []state.Replica{{ID: "h:1", URL: "http://h:1"}, {ID: "h:2", URL: "http://h:2"}})
	s.SetReplicas(state.SourceDiscovery, "b", []state.Replica{{ID: "uid-1", URL: "http://h:1"}})
	wantListed(t, s, "a h:2", "b uid-1")
	s.SetReplicas(state.SourceDiscovery, "a", []state.Replica{{ID: "uid-0", URL: "http://h:1", Leaving: "stops"}})
	wantListed(t, s, "a h:2", "b uid-1") // who stays has it
	f := state.NewFacts()
	f.Index = 1
	f.Replicas["h:1"] = state.Replica{ID: "h:1", Pool: "a", URL: "http://h:1"}
	s.SetFacts(f)
	wantListed(t, s, "a h:1", "a h:2")
}

// A replica that discovery has draining drains, whatever operators undrain, and keeps
// its slot when it is back. Its end ends no operator's drain.
func TestLeavingReplicaDrains(t *testing.T) {
	s, _ := newClockedStore(0)
	s.SetPools([]state.PoolSpec{{Name: "a", Model: "a", DPRanks: 1}})
	set := func(leaving string) {
		s.SetReplicas(state.SourceDiscovery, "a", []state.Replica{{ID: "u", URL: "http://h:1", Leaving: leaving, Ranks: 2}})
	}
	set("")
	slot := s.View().Replica("u#1").Slot
	set("stops")
	wantListed(t, s, "a u#0 draining: stops", "a u#1 draining: stops")
	s.SetDrain("u", false, "")
	wantListed(t, s, "a u#0 draining: stops", "a u#1 draining: stops")
	s.SetDrain("u#0", true, "by hand")
	set("")
	wantListed(t, s, "a u#0 draining: by hand", "a u#1")
	if r := s.View().Replica("u#1"); r.Slot != slot || r.Rank != 1 {
		t.Errorf("%+v", r)
	}
	if n := (&state.PoolSpec{DPRanks: 4}).RanksOf(&s.View().Replica("u#1").Replica); n != 2 {
		t.Errorf("%d ranks", n)
	}
}

// A replica that discovery lists no more is as another list has it: the static one, or
// that of another pool, which it was moved to. Nobody else having it, it drains.
func TestListedNoMoreLosesToOthers(t *testing.T) {
	s, _ := newClockedStore(0)
	s.SetPools([]state.PoolSpec{{Name: "a", Model: "a"}, {Name: "b", Model: "b"}})
	s.SetReplicas(state.SourceStatic, "a", []state.Replica{{ID: "h:1", URL: "http://h:1"}, {ID: "h:4", URL: "http://h:4"}})
	s.SetReplicas(state.SourceDiscovery, "b", []state.Replica{{ID: "h:2", URL: "http://h:2"}})
	no := state.ListedNoMore
	s.SetReplicas(state.SourceDiscovery, "a", []state.Replica{
		{ID: "h:1", URL: "http://h:1", Leaving: no},
		{ID: "h:2", URL: "http://h:2", Leaving: no},
		{ID: "h:3", URL: "http://h:3", Leaving: no},
		{ID: "uid", URL: "http://h:4", Leaving: no},
	})
	wantListed(t, s, "a h:1", "a h:3 draining: "+no, "a h:4", "b h:2")
	s.SetReplicas(state.SourceDiscovery, "a", []state.Replica{{ID: "h:1", URL: "http://h:1", Leaving: "its file says drain"}})
	wantListed(t, s, "a h:1 draining: its file says drain", "a h:4", "b h:2")
}

// A pool that the configuration has no more keeps no replica from another, whatever is
// still found or committed for it.
func TestPoolThatIsGoneHasNoReplicas(t *testing.T) {
	s, _ := newClockedStore(0)
	old := []state.PoolSpec{{Name: "old", Model: "m"}}
	s.SetPools(old)
	s.SetReplicas(state.SourceDiscovery, "old", []state.Replica{{ID: "h:1", URL: "http://h:1"}})
	f := state.NewFacts()
	f.Index = 1
	f.Replicas["h:2"] = state.Replica{ID: "h:2", Pool: "old", URL: "http://h:2"}
	s.SetFacts(f)
	wantListed(t, s, "old h:1", "old h:2")
	s.SetPools([]state.PoolSpec{{Name: "new", Model: "m"}})
	s.SetReplicas(state.SourceStatic, "new", []state.Replica{{ID: "h:1", URL: "http://h:1"}, {ID: "h:2", URL: "http://h:2"}})
	wantListed(t, s, "new h:1", "new h:2")
	s.SetPools(old)
	s.SetReplicas(state.SourceStatic, "new", nil)
	wantListed(t, s, "old h:1", "old h:2")
}
