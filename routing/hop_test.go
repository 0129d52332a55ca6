package routing_test

import (
	"fmt"
	"testing"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// decodes makes a world of replicas with these roles and figures of their own.
func decodes(t testing.TB, roles ...state.Role) *world {
	w := newWorld(t, 0, "")
	var list []state.Replica
	for i, r := range roles {
		list = append(list, state.Replica{ID: id(i), URL: fmt.Sprintf("http://10.0.0.1:%d", 8000+i), Role: r})
	}
	w.store.SetReplicas(state.SourceStatic, "chat", list)
	return w
}

func pick(t *testing.T, w *world, req *routing.Request) *routing.Choice {
	t.Helper()
	c := &routing.Choice{}
	if err := w.pick.Pick(c, req, w.store.View(), w.now); err != nil {
		t.Fatal(err)
	}
	return c
}

// A prompt is prefilled elsewhere where that is over sooner than here, streams here
// counted in.
func TestHopWhereItIsWorthIt(t *testing.T) {
	f := func(name string, tokens, held, streams int, hop routing.Hop, want bool) {
		t.Helper()
		w := decodes(t, state.RoleDecode)
		w.hold(0, held)
		if streams > 0 {
			w.load(0, state.Load{InFlight: int64(streams)})
		}
		req := w.prompt(tokens)
		req.Role, req.Hop = state.RoleDecode, hop
		c := pick(t, w, req)
		terms := &c.Candidates[c.Chosen].Terms
		if c.Hops != want || (c.UncachedTokens == 0) != want || (terms.Hop > 0) != want || (terms.Prefill == 0) != want {
			t.Errorf("%s: hops %v, %d uncached, %+v", name, c.Hops, c.UncachedTokens, *terms)
		}
	}
	// Idle, 8,000 tokens take 889 ms here and as long there behind 25 ms.
	offer := func(ms float64) routing.Hop { return routing.Hop{Offered: true, Time: ms} }
	f("nobody offers", 8000, 0, 0, routing.Hop{}, false)
	f("an idle prefill replica", 8000, 0, 0, offer(914), true)
	f("one with a long queue", 8000, 0, 0, offer(9000), false)
	f("most of it is here", 8000, 7936, 0, offer(914), false)
	f("most of it is here, much of it there", 8000, 7424, 0, offer(30), true)
	f("a short prompt", 100, 0, 0, offer(36), false)
	f("a short prompt, streams here", 200, 0, 60, offer(47), true)
	f("next to nothing, streams here", 60, 0, 200, offer(1), false)
	f("next to nothing, no other way", 60, 0, 0, routing.Hop{Offered: true, Must: true, Time: 9000}, true)
}

// Among replicas that decode load decides, and what they hold; one that does both is
// taken when it is the better one, and then without a hop.
func TestDecodeByLoadAndPrefix(t *testing.T) {
	hop := routing.Hop{Offered: true, Time: 914}
	w := decodes(t, state.RoleDecode, state.RoleDecode, state.RoleBoth, state.RolePrefill)
	w.load(2, state.Load{InFlight: 5, Prefill: 5, UncachedTokens: 40000})
	ask := func() *routing.Choice {
		req := w.prompt(8000)
		req.Role, req.Hop = state.RoleDecode, hop
		return pick(t, w, req)
	}
	w.load(0, state.Load{InFlight: 50})
	w.load(2, state.Load{InFlight: 5, Prefill: 5, UncachedTokens: 40000})
	w.hold(1, 2048)
	if c := ask(); c.Replica.ID != id(1) || !c.Hops || c.Candidates[3].Excluded != routing.ExcludedRole {
		t.Errorf("went to %s, hops %v, %+v", c.Replica.ID, c.Hops, c.Candidates[3])
	}
	w.load(2, state.Load{})
	w.hold(2, 7936)
	if c := ask(); c.Replica.ID != id(2) || c.Hops || c.UncachedTokens == 0 {
		t.Errorf("with one that does both and holds it: %s, hops %v", c.Replica.ID, c.Hops)
	}
	req := w.prompt(8000)
	req.Role = state.RolePrefill
	if c := pick(t, w, req); c.Replica.ID != id(3) || c.Candidates[2].Excluded != routing.ExcludedRole {
		t.Errorf("prefill went to %s", c.Replica.ID)
	}
}

// What is prefilled elsewhere counts where it will be decoded: a burst spreads before
// its first token has come.
func TestBurstSpreadsOverDecoders(t *testing.T) {
	w := decodes(t, state.RoleDecode, state.RoleDecode, state.RoleDecode)
	n := map[state.ReplicaID]int{}
	for range 60 {
		req := w.prompt(8000)
		req.Role, req.Hop = state.RoleDecode, routing.Hop{Offered: true, Time: 914}
		c := pick(t, w, req)
		n[c.Replica.ID]++
		w.store.Begin(c.Replica, c.UncachedTokens)
	}
	for id, k := range n {
		if k < 18 || k > 22 {
			t.Errorf("%s got %d of 60", id, k)
		}
	}
}
