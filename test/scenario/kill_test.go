package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// taught is what a router was taught: prefixes and where it put them.
type taught struct {
	systems []string
	at      []state.ReplicaID
}

// teach sends ten distinct long prefixes three times each, all through one router.
func teach(t testing.TB, b *harness.Bubble, router int) (k taught) {
	t.Helper()
	for i := range 10 {
		system := words(fmt.Sprint("lesson", i), 3000)
		var at state.ReplicaID
		for j := range 3 {
			at = ok(t, b.Chat(router, streamed(chat(system, fmt.Sprint("Question ", j), 8)))).Replica
		}
		k.systems, k.at = append(k.systems, system), append(k.at, at)
	}
	return k
}

// inherited counts the prefixes that a router would send where the first put them.
func (k taught) inherited(r *harness.Router) (n int) {
	for i, s := range k.systems {
		x := r.Explain(chat(s, "What now?", 8).Body())
		if x.Replica == k.at[i] && x.MatchedTokens > 2*x.PromptTokens/3 {
			n++
		}
	}
	return n
}

// One router learns where ten prefixes are and is killed: the others send them
// there, and so does a router that starts afterwards with an empty disk.
func TestKilledRoutersKnowledgeStays(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Engines: 4, Delay: time.Millisecond, Loss: 0.01}, func(t *testing.T, b *harness.Bubble) {
		k := teach(t, b, 0)
		spread := map[state.ReplicaID]bool{}
		for _, id := range k.at {
			spread[id] = true
		}
		if len(spread) < 2 {
			t.Errorf("all prefixes went to %v: the scenario shows nothing", k.at)
		}
		time.Sleep(100 * time.Millisecond)
		b.Router(0).Kill()
		for _, i := range []int{1, 2} {
			same := 0
			for j, s := range k.systems {
				if ok(t, b.Chat(i, streamed(chat(s, "And after the crash?", 8)))).Replica == k.at[j] {
					same++
				}
			}
			if same < 9 {
				t.Errorf("r%d sent %d of 10 prefixes where r0 had put them", i, same)
			}
		}

		late := b.AddRouter()
		took := b.Within(5*time.Second, "a new router ready", func() error {
			if ready, why := late.Node().Ready(); !ready {
				return fmt.Errorf("%v", why)
			}
			return nil
		})
		if n := k.inherited(late); n < 9 {
			t.Errorf("the new router was ready after %v and knows %d of 10", took, n)
		}
		b.WaitReady()
	})
}

// A router that reaches no other is ready after five seconds, not before.
func TestRouterAloneIsReadyAfterFiveSeconds(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2}, func(t *testing.T, b *harness.Bubble) {
		b.Net.Host("r3")
		b.Partition([]int{3}, []int{0, 1, 2})
		late := b.AddRouter()
		took := b.Within(6*time.Second, "ready", func() error {
			if ready, why := late.Node().Ready(); !ready {
				return fmt.Errorf("%v", why)
			}
			return nil
		})
		if took < 4900*time.Millisecond {
			t.Errorf("ready after %v with nothing known", took)
		}
		ok(t, b.Chat(3, chat("Be brief.", "Anyone there?", 8)))
	})
}

// A router that is killed and comes back at once, on the disk it left, knows what
// it knew.
func TestRestartedRouterIsWarm(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 4, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		k := teach(t, b, 0)
		time.Sleep(100 * time.Millisecond)
		id := b.Router(0).ID()
		b.Router(0).Kill()
		b.Router(0).Restart()
		if b.Router(0).ID() != id {
			t.Error("it is another router now")
		}
		b.WaitReady()
		if n := k.inherited(b.Router(0)); n < 9 {
			t.Errorf("it knows %d of 10", n)
		}
	})
}

// A cluster of one is stopped in order and started again: the prefixes it knew are
// on its disk.
func TestOnlyRouterRemembersOverARestart(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Engines: 4}, func(t *testing.T, b *harness.Bubble) {
		k := teach(t, b, 0)
		if err := b.Router(0).Stop(); err != nil {
			t.Fatal(err)
		}
		b.Router(0).Restart()
		b.WaitReady()
		if n := k.inherited(b.Router(0)); n < 9 {
			t.Errorf("it knows %d of 10", n)
		}
	})
}

// inFlight objects unless a router counts so many requests at a replica.
func inFlight(b *harness.Bubble, id state.ReplicaID, want int64) func() error {
	return func() error {
		return each(b, func(r *harness.Router) error {
			if n := r.Replica(id).Load().InFlight; n != want {
				return fmt.Errorf("%d in flight, want %d", n, want)
			}
			return nil
		})
	}
}

// A router dies with requests under way: what it said of them is gone within 2.5 s,
// what the others have there still counts, and nobody else's request fails.
func TestKilledRoutersRowsVanish(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 1, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		e := b.Engine(0)
		long := streamed(chat(words("rows", 300), "Go on and on.", 400)).Body()
		var lost []*harness.Stream
		for range 3 {
			lost = append(lost, b.Open(0, long))
		}
		kept := []*harness.Stream{b.Open(1, long), b.Open(2, long)}
		for _, s := range append(lost, kept...) {
			s.Next()
		}
		b.Within(200*time.Millisecond, "five in flight", inFlight(b, e.ID, 5))
		b.Router(0).Kill()
		b.Within(2500*time.Millisecond, "two in flight", inFlight(b, e.ID, 2))
		for _, s := range kept {
			for s.Next() {
			}
			ok(t, s.Reply)
		}
		for _, s := range lost {
			for s.Next() {
			}
			if s.OK() {
				t.Error("a request through the dead router went well")
			}
		}
		b.Idle(time.Second)
	})
}

// A router's machine loses its network while its requests run at an engine: its
// rows go, and what the engine still runs counts as foreign.
func TestCutOffRoutersRequestsCountAsForeign(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 1, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		e := b.Engine(0)
		long := streamed(chat(words("foreign", 300), "Go on and on.", 1000)).Body()
		var open []*harness.Stream
		for i := range 5 {
			open = append(open, b.Open(i/3, long)) // three through r0, two through r1
		}
		for _, s := range open {
			s.Next()
		}
		b.Within(200*time.Millisecond, "five in flight", inFlight(b, e.ID, 5))
		b.Net.Isolate("r0")
		others := func(want, foreign int64) func() error {
			return func() error {
				for _, r := range b.Routers()[1:] {
					v := r.Replica(e.ID)
					if n := v.Load().InFlight; n != want {
						return fmt.Errorf("%s: %d in flight, want %d", r.Name, n, want)
					}
					if n, known := v.Foreign(time.Now()); n != foreign {
						return fmt.Errorf("%s: %d foreign (known: %v), want %d", r.Name, n, known, foreign)
					}
				}
				return nil
			}
		}
		// 2 s of silence, then the next reading of the engine.
		b.Within(3500*time.Millisecond, "three foreign", others(2, 3))
		b.Net.HealAll()
		b.Within(5*time.Second, "none foreign again", others(5, 0))
		for _, s := range open {
			for s.Next() {
			}
			ok(t, s.Reply)
		}
		b.Idle(time.Second)
	})
}
