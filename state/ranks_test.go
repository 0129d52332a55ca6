package state_test

import (
	"slices"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

func rankedStore() (*state.Store, func() []state.ReplicaID) {
	s, _ := newClockedStore(0)
	s.SetPools([]state.PoolSpec{{Name: "dp", Model: "m", DPRanks: 2}, {Name: "plain", Model: "p"}})
	return s, func() (ids []state.ReplicaID) {
		for _, p := range s.View().Pools {
			for _, r := range p.Replicas {
				ids = append(ids, r.ID)
			}
		}
		return ids
	}
}

// A URL with several ranks is several replicas, whoever lists it.
func TestRanksAreReplicas(t *testing.T) {
	s, ids := rankedStore()
	s.SetReplicas(state.SourceStatic, "dp", []state.Replica{{ID: "a:1", URL: "http://a:1"}})
	s.SetReplicas(state.SourceStatic, "plain", []state.Replica{{ID: "b:1", URL: "http://b:1"}})
	f := state.NewFacts()
	f.Index = 1
	f.Replicas["c:1"] = state.Replica{ID: "c:1", Pool: "dp", URL: "http://c:1"}
	s.SetFacts(f)
	if got, want := ids(), []state.ReplicaID{"a:1#0", "a:1#1", "c:1#0", "c:1#1", "b:1"}; !slices.Equal(got, want) {
		t.Fatalf("listed %v, want %v", got, want)
	}
	a, c := s.View().Replica("a:1#1"), s.View().Replica("c:1#1")
	if a.Rank != 1 || a.URL != "http://a:1" || a.Process() != "a:1" || c.Rank != 1 || c.Source != state.SourceCommitted || a.Slot == s.View().Replica("a:1#0").Slot {
		t.Errorf("%+v, %+v", a.Replica, c.Replica)
	}
	if p := s.View().Replica("b:1"); p.Process() != "b:1" || p.Rank != 0 {
		t.Errorf("%+v", p.Replica)
	}
	if r := s.View().Replica("a:1"); r == nil || r.ID != "a:1#0" {
		t.Errorf("by the process's id: %+v", r)
	}
	s.SetPools([]state.PoolSpec{{Name: "dp", Model: "m"}, {Name: "plain", Model: "p"}})
	if got, want := ids(), []state.ReplicaID{"a:1", "c:1", "b:1"}; !slices.Equal(got, want) {
		t.Errorf("with one rank: %v, want %v", got, want)
	}
}

// Draining a process drains its ranks, draining a rank only that.
func TestDrainOfAProcess(t *testing.T) {
	s, _ := rankedStore()
	s.SetReplicas(state.SourceStatic, "dp", []state.Replica{{ID: "a:1"}, {ID: "b:1"}})
	check := func(when string, want ...state.ReplicaID) {
		t.Helper()
		var got []state.ReplicaID
		for _, r := range s.View().Pools[0].Replicas {
			if r.Draining {
				got = append(got, r.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v drain, want %v", when, got, want)
		}
	}
	s.SetDrain("a:1", true, "local")
	check("locally", "a:1#0", "a:1#1")
	s.SetDrain("a:1", false, "")
	check("no longer")
	s.SetDrain("b:1#1", true, "local")
	check("one rank", "b:1#1")
	f := state.NewFacts()
	f.Index = 1
	f.Draining["a:1"] = state.Drain{Reason: "committed"}
	s.SetFacts(f)
	check("committed", "a:1#0", "a:1#1", "b:1#1")
	s.SetReplicas(state.SourceStatic, "dp", nil)
	s.SetDrain("b:1", true, "too late")
	s.SetReplicas(state.SourceStatic, "dp", []state.Replica{{ID: "b:1"}})
	check("listed again", "b:1#0", "b:1#1")
}
