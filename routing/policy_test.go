package routing_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

func TestEveryPolicyPicksAndGivesAKnownReason(t *testing.T) {
	for _, name := range routing.Policies() {
		w := newWorld(t, 4, name)
		w.store.SetDrain(id(2), true, "")
		req := w.prompt(3000)
		req.Session = "s"
		for range 50 {
			c := w.one(req)
			if c.Policy != routing.Effective(name, state.PoolBalance{}) || !slices.Contains(routing.Reasons(), c.Reason) {
				t.Fatalf("%s: picked by %s for %q", name, c.Policy, c.Reason)
			}
			if c.Replica.ID == id(2) {
				t.Fatalf("%s picked a draining replica", name)
			}
			if c.TTFT <= 0 || c.Candidates[c.Chosen].Replica != c.Replica {
				t.Fatalf("%s: choice %+v", name, c)
			}
		}
	}
	w := newWorld(t, 2, "no such policy")
	if c := w.one(w.prompt(10)); c.Policy != routing.TTFT {
		t.Errorf("an unknown policy picks by %s", c.Policy)
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	w := newWorld(t, 4, routing.RoundRobin)
	for i := range 4 { // load plays no part
		w.load(i, state.Load{InFlight: int64(100 * i), Prefill: int64(i)})
	}
	if got := w.picks(40, w.prompt(100)); len(got) != 4 || got[id(0)] != 10 || got[id(3)] != 10 {
		t.Errorf("picks %v", got)
	}
	req := w.prompt(100)
	req.DryRun = true
	first := w.one(req).Replica.ID
	if got := w.picks(5, req); got[first] != 5 {
		t.Errorf("explaining took turns: %v", got)
	}
	w.weigh(map[int]state.Weight{1: {Slow: 0.2}, 2: {Slow: 1, BusyUntil: w.now.Add(time.Second)}}, false)
	got := w.picks(400, w.prompt(100))
	if got[id(1)] > got[id(0)]/2 || got[id(1)] == 0 || got[id(2)] > 4 {
		t.Errorf("picks %v, want few for the new r1 and none for the busy r2", got)
	}
}

func TestAllBusyIsStillPicked(t *testing.T) {
	for _, name := range routing.Policies() {
		w := newWorld(t, 2, name)
		until := w.now.Add(time.Minute)
		w.weigh(map[int]state.Weight{0: {Slow: 1, BusyUntil: until}, 1: {Slow: 1, BusyUntil: until}}, false)
		if got := w.picks(10, w.prompt(500)); got[id(0)]+got[id(1)] != 10 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRandomIsEven(t *testing.T) {
	w := newWorld(t, 4, routing.Random)
	got := w.picks(400, w.prompt(100))
	for i := range 4 {
		if got[id(i)] < 70 || got[id(i)] > 130 {
			t.Errorf("picks %v", got)
		}
	}
}

func TestLeastOutstanding(t *testing.T) {
	w := newWorld(t, 4, routing.LeastOutstanding)
	w.load(0, state.Load{InFlight: 3})
	w.store.Begin(w.replica(1), 9)
	w.read(2, func(r *state.Reading) { r.Running, r.Waiting = 4, 0 })
	if got := w.picks(20, w.prompt(100)); got[id(3)] != 20 {
		t.Errorf("picks %v, want all at the idle one", got)
	}
	w.load(3, state.Load{InFlight: 1})
	if got := w.picks(200, w.prompt(100)); got[id(1)] < 60 || got[id(3)] < 60 {
		t.Errorf("picks %v, want r1 and r3 alike", got)
	}
}

func TestPowerOfTwoLeavesOutTheWorst(t *testing.T) {
	w := newWorld(t, 4, routing.PowerOfTwo)
	for i := range 4 {
		w.load(i, state.Load{InFlight: int64(i)})
	}
	got := w.picks(600, w.prompt(100))
	if got[id(3)] != 0 || got[id(0)] < 250 || got[id(2)] < 50 {
		t.Errorf("picks %v, want about 300, 200, 100, 0", got)
	}
}

// request with marks every 256 tokens whose hashes follow from what the prompt is:
// shared for the first tokens, then its own.
func chat(w *world, shared, tokens int, own uint64) *routing.Request {
	r := w.prompt(tokens)
	for i := range r.Marks {
		if int(r.Tokens[i]) > shared {
			r.Marks[i] = prefix.Mark{Hash: r.Marks[i].Hash ^ own*0xbf58476d1ce4e5b9}
		}
	}
	return r
}

func TestPrefixHash(t *testing.T) {
	w := newWorld(t, 8, routing.PrefixHash)
	home := w.one(chat(w, 0, 3000, 1)).Replica.ID
	for turn := 1000; turn < 30000; turn += 3000 {
		if c := w.one(chat(w, 0, turn, 1)); c.Replica.ID != home || c.Reason != routing.ReasonHash {
			t.Errorf("a turn of %d tokens went to %s for %s, the first to %s", turn, c.Replica.ID, c.Reason, home)
		}
	}
	// All requests of a product share the first blocks: they must spread all the same.
	got := map[state.ReplicaID]int{}
	for own := range uint64(400) {
		c := w.one(chat(w, 1024, 9000, own))
		got[c.Replica.ID]++
		w.store.Begin(c.Replica, c.UncachedTokens)
	}
	for i := range 8 {
		if n := got[id(i)]; n < 25 || n > 65 {
			t.Errorf("%s got %d of 400: %v", id(i), n, got)
		}
	}
	w = newWorld(t, 8, routing.PrefixHash)
	// One that leaves takes only its own with it.
	before := map[uint64]state.ReplicaID{}
	for own := range uint64(200) {
		before[own] = w.one(chat(w, 0, 3000, own)).Replica.ID
	}
	w.store.SetDrain(id(5), true, "")
	for own, was := range before {
		if now := w.one(chat(w, 0, 3000, own)).Replica.ID; now != was && was != id(5) {
			t.Fatalf("%d moved from %s to %s when r5 left", own, was, now)
		}
	}
}

func TestPrefixHashBoundsItsLoad(t *testing.T) {
	w := newWorld(t, 4, routing.PrefixHash)
	got := map[state.ReplicaID]int{}
	overflow := 0
	for range 100 {
		c := w.one(chat(w, 0, 3000, 1))
		got[c.Replica.ID]++
		w.store.Begin(c.Replica, c.UncachedTokens)
		if c.Reason == routing.ReasonOverflow {
			overflow++
		}
	}
	for i := range 4 {
		if got[id(i)] > 33 {
			t.Errorf("%s got %d of 100 of one prefix, the bound is 1.25 of the mean: %v", id(i), got[id(i)], got)
		}
	}
	if overflow == 0 {
		t.Error("nothing is called overflow")
	}
	w = newWorld(t, 4, routing.PrefixHash)
	w.load(2, state.Load{InFlight: 3})
	req := w.prompt(100)
	req.Marks, req.Tokens = nil, nil
	if c := w.one(req); c.Reason != routing.ReasonLoad || c.Replica.ID == id(2) {
		t.Errorf("a prompt without marks went to %s for %s", c.Replica.ID, c.Reason)
	}
}

func TestTTFTWithoutASketchHashes(t *testing.T) {
	w := newWorld(t, 4, "")
	blind := routing.NewPicker(routing.Config{}, nil, nil)
	v := w.store.View()
	var c routing.Choice
	var home state.ReplicaID
	for range 20 {
		if err := blind.Pick(&c, chat(w, 0, 3000, 3), v, w.now); err != nil {
			t.Fatal(err)
		}
		if home == "" {
			home = c.Replica.ID
		}
		if c.Replica.ID != home || c.Reason != routing.ReasonHash {
			t.Fatalf("picked %s for %s", c.Replica.ID, c.Reason)
		}
	}
}

func TestSession(t *testing.T) {
	w := newWorld(t, 8, routing.Session)
	other := newWorld(t, 8, routing.Session) // another router
	got := map[state.ReplicaID]int{}
	for _, s := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		req := w.prompt(500)
		req.Session = s
		home := w.one(req).Replica.ID
		got[home]++
		w.store.Begin(w.store.View().Replica(home), 9000)
		again := w.one(req)
		if there := other.one(req).Replica.ID; again.Replica.ID != home || there != home || again.Reason != routing.ReasonSession {
			t.Errorf("session %s went to %s, %s and on another router %s", s, home, again.Replica.ID, there)
		}
	}
	if len(got) < 4 {
		t.Errorf("sessions are not spread: %v", got)
	}
	w = newWorld(t, 8, routing.Session)
	w.hold(6, 256)
	if c := w.one(w.prompt(500)); c.Reason != routing.ReasonWarm || c.Replica.ID != id(6) {
		t.Errorf("a request without a session went to %s for %s, want ttft's choice", c.Replica.ID, c.Reason)
	}
}

func TestConfigValidate(t *testing.T) {
	if err := (&routing.Config{}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	bad := routing.Config{CopyWeight: 0.5, StreamWeight: -1, PendingCredit: 2, NearShare: 1, BlockTokens: -1, HashTokens: -1, HashBound: 0.5}
	err := bad.Validate()
	if err == nil {
		t.Fatal("want an error")
	}
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 7 {
		t.Errorf("want all seven faults: %v", err)
	}
}
