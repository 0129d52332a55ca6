package state_test

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func listed(s *state.Store) (ids []string) {
	for _, p := range s.View().Pools {
		for _, r := range p.Replicas {
			ids = append(ids, fmt.Sprintf("%s/%s/%s", p.Spec.Name, r.ID, r.Source))
		}
	}
	return ids
}

func TestPoolLookup(t *testing.T) {
	s := state.NewStore(state.Config{Self: "self", Clock: state.NewClock(1, time.Now()), Pools: []state.PoolSpec{
		{Name: "b", Model: "llama", Aliases: []string{"default", "c"}},
		{Name: "a", Model: "qwen", Aliases: []string{"llama", ""}},
		{Name: "c", Model: "phi"},
		{Name: "e"},
	}})
	f := func(name, want string) {
		t.Helper()
		got := ""
		if p := s.View().Pool(name); p != nil {
			got = p.Spec.Name
		}
		if got != want {
			t.Errorf("pool of %q is %q, want %q", name, got, want)
		}
	}
	f("llama", "b") // a model wins over another's alias
	f("qwen", "a")
	f("default", "b")
	f("a", "a")
	f("b", "b")
	f("c", "b") // an alias wins over another pool's own name
	f("phi", "c")
	f("e", "e")
	f("Llama", "") // exact in case
	f("", "")
	if (&state.View{}).Pool("llama") != nil || (&state.View{}).Replica("x") != nil {
		t.Error("an empty view finds something")
	}
	s.SetPools([]state.PoolSpec{{Name: "a", Model: "one"}, {Name: "a", Model: "two"}})
	f("one", "")
	f("two", "a")
	f("llama", "")
	if len(s.View().Pools) != 1 {
		t.Error("a pool named twice is there twice")
	}
}

func TestTheSameReplicaFromSeveralSources(t *testing.T) {
	s := state.NewStore(state.Config{Self: "self", Clock: state.NewClock(1, time.Now()), Pools: []state.PoolSpec{{Name: "p"}, {Name: "q"}}})
	one := func(id string) []state.Replica { return []state.Replica{{ID: state.ReplicaID(id)}} }
	f := func(what string, want ...string) {
		t.Helper()
		if got := listed(s); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	s.SetReplicas(state.SourceStatic, "p", one("x"))
	slot, cell := s.View().Pools[0].Replicas[0].Slot, s.View().Pools[0].Replicas[0].Cell
	f("static", "p/x/static")
	s.SetReplicas(state.SourceDiscovery, "q", one("x"))
	f("discovery wins over static", "q/x/discovery")
	facts := state.NewFacts()
	facts.Index, facts.Replicas["x"] = 5, state.Replica{ID: "x", Pool: "p"}
	s.SetFacts(facts)
	f("committed wins over both", "p/x/committed")
	older := state.NewFacts()
	older.Index = 4
	s.SetFacts(older)
	f("older facts change nothing", "p/x/committed")
	newer := facts.Clone()
	newer.Index = 6
	delete(newer.Replicas, "x")
	s.SetFacts(newer)
	f("back to discovery", "q/x/discovery")
	s.SetReplicas(state.SourceDiscovery, "q", nil)
	f("back to static", "p/x/static")
	if r := s.View().Replica("x"); r.Slot != slot || r.Cell != cell {
		t.Error("the replica lost its slot or cell on the way")
	}
	s.SetReplicas(state.SourceStatic, "q", one("x"))
	f("in two pools of one source: the first in name order", "p/x/static")
	s.SetReplicas(state.SourceStatic, "nowhere", one("y"))
	f("a pool nobody specified", "p/x/static")
	if s.View().Replica("y") != nil {
		t.Error("a replica without a pool is in the view")
	}
	s.SetPools([]state.PoolSpec{{Name: "nowhere"}})
	f("its pool appears", "nowhere/y/static")
}

func TestAReplicaThatGoesFreesItsSlot(t *testing.T) {
	s, _ := newClockedStore(2)
	var gone []string
	s.OnGone(func(slot state.Slot, id state.ReplicaID) { gone = append(gone, fmt.Sprint(slot, " ", id)) })
	r := s.View().Replica(replicaID(1))
	if s.SlotOf(r.ID) != r.Slot || s.ForgetSlot(r.ID) {
		t.Error("a listed replica's slot can be forgotten")
	}
	early := s.SlotOf("early")
	s.SetDrain(r.ID, true, "test")
	s.SetReplicas(state.SourceStatic, "chat", replicas(1))
	if want := []string{fmt.Sprint(r.Slot, " ", r.ID)}; !slices.Equal(gone, want) {
		t.Errorf("gone %v, want %v", gone, want)
	}
	s.SetReplicas(state.SourceStatic, "chat", append(replicas(2), state.Replica{ID: "early"}))
	back := s.View().Replica(r.ID)
	if back.Slot == r.Slot || back.Draining {
		t.Errorf("the replica came back with slot %d, draining %v", back.Slot, back.Draining)
	}
	if s.View().Replica("early").Slot != early {
		t.Error("a slot given before the listing changed with it")
	}
	if s.SlotOf("never"); !s.ForgetSlot("never") {
		t.Error("the slot of an unlisted replica can't be forgotten")
	}
}

func TestRunningRequestsSurviveAFlappingListing(t *testing.T) {
	s, _ := newClockedStore(2)
	ticket := s.Begin(s.View().Replica(replicaID(1)), 10)
	s.SetReplicas(state.SourceStatic, "chat", replicas(1))
	s.SetReplicas(state.SourceStatic, "chat", replicas(2))
	r := s.View().Replica(replicaID(1))
	if r.Cell.Load().InFlight != 1 {
		t.Error("the running request is not counted after the replica came back")
	}
	ticket.End()
	if l := r.Cell.Load(); l != (state.Load{}) {
		t.Errorf("%+v left after its end", l)
	}
}

func TestDraining(t *testing.T) {
	s, _ := newClockedStore(1)
	id := replicaID(0)
	f := func(want bool, reason string) {
		t.Helper()
		if r := s.View().Replica(id); r.Draining != want || r.DrainReason != reason {
			t.Errorf("draining %v (%s), want %v (%s)", r.Draining, r.DrainReason, want, reason)
		}
	}
	f(false, "")
	s.SetDrain(id, true, "by hand")
	f(true, "by hand")
	facts := state.NewFacts()
	facts.Index, facts.Draining[id] = 1, state.Drain{Reason: "scale down"}
	s.SetFacts(facts)
	f(true, "scale down")
	s.SetDrain(id, false, "")
	f(true, "scale down")
	facts = facts.Clone()
	facts.Index = 2
	delete(facts.Draining, id)
	s.SetFacts(facts)
	f(false, "")
}

// A committed undrain ends the drains that routers made alone before they heard of
// it, and none that they make after.
func TestCommittedUndrainEndsALocalDrain(t *testing.T) {
	s, _ := newClockedStore(1)
	id := replicaID(0)
	f := func(what string, index uint64, undrained map[state.ReplicaID]uint64, want bool) {
		t.Helper()
		facts := state.NewFacts()
		facts.Index, facts.Undrained = index, undrained
		s.SetFacts(facts)
		if got := s.View().Replica(id).Draining; got != want {
			t.Errorf("%s: draining is %v", what, got)
		}
	}
	s.SetDrain(id, true, "by hand")
	f("another fact", 7, nil, true)
	f("another replica's undrain", 8, map[state.ReplicaID]uint64{"other": 8}, true)
	f("an undrain, heard of late", 12, map[state.ReplicaID]uint64{id: 9}, false)
	s.SetDrain(id, true, "once more")
	f("drained after it", 13, map[state.ReplicaID]uint64{id: 9}, true)
	f("the next", 14, map[state.ReplicaID]uint64{id: 14}, false)
}

func TestBatchPublishesOnce(t *testing.T) {
	s, _ := newClockedStore(2)
	seq := s.View().Seq
	s.Batch(func() {
		s.ApplyRows(inFlight(1, 7, 1, true, 1, 2))
		s.Batch(func() { s.ApplyRows(inFlight(2, 8, 1, true, 1, 2)) })
		if s.View().Seq != seq {
			t.Error("published inside a batch")
		}
		s.SetDrain(replicaID(0), true, "x")
	})
	v := s.View()
	if v.Seq != seq+1 {
		t.Errorf("published %d times", v.Seq-seq)
	}
	if got := others(s); !slices.Equal(got, []int64{2, 4}) || !v.Pools[0].Replicas[0].Draining {
		t.Errorf("others %v", got)
	}
	s.Batch(func() {})
	s.ApplyRows(inFlight(1, 7, 1, true, 9))
	if s.View() != v {
		t.Error("a new view, and nothing is new")
	}
}

// Every partial publication must agree with one made from nothing.
func TestPublishingChangesAgreesWithPublishingAll(t *testing.T) {
	s, c := newClockedStore(5)
	s.SetPools([]state.PoolSpec{{Name: "chat", Model: "llama"}, {Name: "other"}})
	s.SetReplicas(state.SourceDiscovery, "other", []state.Replica{{ID: "z"}})
	for i := range 40 {
		c.advance(3)
		s.ApplyRows(inFlight(i%3, 7, uint64(i+1), i%5 == 0, int64(i%4), -1, int64(i%2)))
		s.SetDrain(replicaID(i%5), i%2 == 0, "x")
		r := state.UnknownReading(replicaID(i % 5))
		r.OK, r.Running, r.At = true, float64(i), s.Clock().Stamp(c.now())
		s.ApplyReading(r)
		partial := s.View()
		s.SetPools([]state.PoolSpec{{Name: "chat", Model: "llama"}, {Name: "other"}})
		whole := s.View()
		for p := range whole.Pools {
			if !reflect.DeepEqual(partial.Pools[p], whole.Pools[p]) {
				t.Fatalf("step %d, pool %d:\n%+v\n%+v", i, p, partial.Pools[p], whole.Pools[p])
			}
		}
	}
}

// Run with -race: nothing that was published is written to.
func TestViewsAreReadWhileTheStoreWrites(t *testing.T) {
	s := newStore(8)
	var readers, writers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v := s.View()
				sum, byRouter := int64(0), int64(0)
				for _, p := range v.Pools {
					for _, r := range p.Replicas {
						sum += r.Others.InFlight
						_ = r.Load()
						for i := range v.Routers {
							byRouter += v.Routers[i].InFlight(r.ID)
						}
					}
				}
				if sum != byRouter {
					t.Errorf("one view, two sums: %d and %d", sum, byRouter)
					return
				}
			}
		})
	}
	for w := range 3 {
		writers.Go(func() {
			for i := range 300 {
				s.ApplyRows(inFlight(w, 7, uint64(i+1), i%7 == 0, int64(i%3), int64(i%5), -1, 2))
				switch i % 50 {
				case 10:
					s.SetReplicas(state.SourceStatic, "chat", replicas(6+i%3))
				case 20:
					s.DropRouter(routerID(w))
				case 30:
					s.SetWeights(&state.Weights{})
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// An operator's policy wins over the file's until it is given back, in every View.
func TestPolicyOfTheFacts(t *testing.T) {
	now := time.Now()
	s := state.NewStore(state.Config{
		Self: "self", Clock: state.NewClock(1, now), Now: func() time.Time { return now },
		Pools: []state.PoolSpec{{Name: "chat", Policy: "ttft"}, {Name: "other", Policy: "session"}},
	})
	s.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "a"}})
	want := func(what, policy, file string) {
		t.Helper()
		if p := s.View().PoolNamed("chat"); p.Spec.Policy != policy || p.FilePolicy != file {
			t.Errorf("%s: policy %q, the file's %q; want %q, %q", what, p.Spec.Policy, p.FilePolicy, policy, file)
		}
		if p := s.View().PoolNamed("other"); p.Spec.Policy != "session" || p.FilePolicy != "session" {
			t.Errorf("%s: another pool has %q", what, p.Spec.Policy)
		}
	}
	want("at first", "ttft", "ttft")
	f := state.NewFacts()
	f.Index, f.Policies["chat"], f.Policies["gone"] = 1, "auto", "auto"
	s.SetFacts(f)
	want("set", "auto", "ttft")
	s.SetDrain("a", true, "x") // one replica changes
	want("after a change of a replica", "auto", "ttft")
	f = f.Clone()
	f.Index = 2
	delete(f.Policies, "chat")
	s.SetFacts(f)
	want("given back", "ttft", "ttft")
}
