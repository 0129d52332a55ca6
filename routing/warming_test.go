package routing_test

import (
	"errors"
	"testing"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// A replica that is being warmed is passed over while another can take the request,
// and is better than none.
func TestWarmingReplicaIsPassedOver(t *testing.T) {
	w := newWorld(t, 2, routing.TTFT)
	w.load(0, state.Load{InFlight: 20, Prefill: 20, UncachedTokens: 200_000})
	warming := state.Weight{Slow: 1, Warming: true, WarmFrom: w.now}
	w.weigh(map[int]state.Weight{1: warming}, false)
	if got := w.picks(50, w.prompt(2000)); got[id(1)] != 0 {
		t.Errorf("picked %v: the second is being warmed", got)
	}
	req := w.prompt(2000)
	req.Exclude = []state.ReplicaID{id(0)}
	if c := w.one(req); c.Replica.ID != id(1) || c.Candidates[1].Despite != routing.ExcludedWarming {
		t.Errorf("with nobody else left: %s, despite %q", c.Replica.ID, c.Candidates[1].Despite)
	}
	w.now = w.now.Add(state.MaxWarming)
	w.load(0, state.Load{InFlight: 20, Prefill: 20, UncachedTokens: 200_000})
	if got := w.picks(50, w.prompt(2000)); got[id(1)] == 0 {
		t.Errorf("picked %v: a loop that stopped must not keep it out", got)
	}
}

// Nobody waits for a replica with room while one that is being warmed has some.
func TestWarmingReplicaIsBetterThanWaiting(t *testing.T) {
	w := newWorld(t, 2, routing.TTFT)
	w.bounded(func(s *state.PoolSpec) { s.MaxInFlight = 1 })
	w.weigh(map[int]state.Weight{1: {Slow: 1, Warming: true, WarmFrom: w.now}}, false)
	w.store.Begin(w.replica(0), 0)
	c, err := w.tried(false)
	if err != nil || c.Replica.ID != id(1) || c.Candidates[1].Despite != routing.ExcludedWarming || c.Limit != 1 {
		t.Fatalf("picked %+v, %v", c, err)
	}
	w.store.Begin(w.replica(1), 0)
	if _, err := w.tried(false); !errors.Is(err, routing.ErrSaturated) {
		t.Errorf("with both full: %v", err)
	}
	if c, err := w.tried(true); err != nil || c.Limit != 0 {
		t.Errorf("it can't go anyway: %v", err)
	}
}
