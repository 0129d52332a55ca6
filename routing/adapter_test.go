package routing_test

import (
	"errors"
	"testing"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// What an adapter costs at a replica that has it in a slot, has room, has none, or has
// none that will be free soon.
func TestCostOfAnAdapter(t *testing.T) {
	w := newWorld(t, 6, "")
	slots := func(n int, running ...string) func(*state.Reading) {
		return func(r *state.Reading) {
			adapters(r, "a1", "a2", "a3")
			r.AdapterSlots, r.AdaptersRunning = n, running
		}
	}
	w.read(0, slots(2, "a1"))
	w.read(1, slots(2, "a2"))
	w.read(2, slots(2, "a2", "a3"))
	w.read(3, func(r *state.Reading) { adapters(r, "a1") }) // nothing is known of slots
	w.read(4, slots(2, "a2", "a3"))
	w.now = w.now.Add(1)
	w.read(4, slots(2)) // both have ended, and are still there
	req := w.prompt(2000)
	req.Adapter, req.MaxTokens = "a1", 100
	c := w.one(req)
	cost := func(i int) float64 { return c.Candidates[i].Terms.Adapter }
	if cost(0) != 0 || cost(3) != 0 {
		t.Errorf("loaded %v, unknown %v", cost(0), cost(3))
	}
	if !(cost(1) > 0 && cost(4) > cost(1) && cost(2) > cost(4)) {
		t.Errorf("free slot %v, slots to evict from %v, slots in use %v", cost(1), cost(4), cost(2))
	}
	if c.Candidates[5].Excluded != routing.ExcludedAdapter {
		t.Errorf("a replica that lists none: %q", c.Candidates[5].Excluded)
	}
	if got := w.picks(50, req); got["r0"]+got["r3"] != 50 {
		t.Errorf("picks %v", got)
	}
	if s := c.Sample(); s.Loads {
		t.Error("a sample of a replica that has it loaded is left out")
	}
	req.Exclude = []state.ReplicaID{id(0), id(3)}
	if c := w.one(req); c.Replica.ID != id(1) || !c.Sample().Loads || w.cal.Observe(c.Sample()) {
		t.Errorf("picked %s, %+v", c.Replica.ID, c.Sample())
	}
	req.Adapter, req.Exclude = "", nil
	for i, k := range w.one(req).Candidates {
		if k.Terms.Adapter != 0 || k.Excluded != "" {
			t.Errorf("no adapter: replica %d %+v", i, k)
		}
	}
}

// Both legs go to replicas that list the adapter.
func TestAdapterInBothLegs(t *testing.T) {
	w := newWorld(t, 4, "")
	var list []state.Replica
	for i, role := range []state.Role{state.RolePrefill, state.RolePrefill, state.RoleDecode, state.RoleDecode} {
		list = append(list, state.Replica{ID: id(i), URL: "http://" + string(id(i)), Role: role})
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
	for _, i := range []int{1, 2} {
		w.read(i, func(r *state.Reading) { adapters(r, "a1") })
	}
	for role, want := range map[state.Role]state.ReplicaID{state.RolePrefill: "r1", state.RoleDecode: "r2"} {
		req := w.prompt(2000)
		req.Adapter, req.Role = "a1", role
		if got := w.picks(20, req); got[want] != 20 {
			t.Errorf("%s: %v", role, got)
		}
	}
	req := w.prompt(2000)
	req.Adapter, req.Role, req.Exclude = "a1", state.RolePrefill, []state.ReplicaID{"r1"}
	v := w.store.View()
	req.Pool = v.Pools[0]
	var e *routing.PickError
	if err := w.pick.Pick(&routing.Choice{}, req, v, w.now); !errors.As(err, &e) || e.Count(routing.ExcludedAdapter) != 1 {
		t.Errorf("nobody else lists it: %v", err)
	}
}
