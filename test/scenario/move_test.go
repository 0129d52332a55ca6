package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// named makes routers find each other by name.
func named(n int) func(i int, c *node.Config) {
	return func(_ int, c *node.Config) {
		c.Cluster.Join = nil
		for i := range n {
			c.Cluster.Join = append(c.Cluster.Join, fmt.Sprintf("r%d:7946", i))
		}
	}
}

// oneGroup objects unless every router has every other as a living member with a
// stream, all have the same facts, and one leads.
func oneGroup(b *harness.Bubble, index uint64) func() error {
	return func() error {
		if leader(b) == nil {
			return errors.New("no leader that all know")
		}
		if err := sameFacts(b, index)(); err != nil {
			return err
		}
		return each(b, func(r *harness.Router) error {
			seen := map[string]bool{}
			for _, m := range r.Node().Members() {
				if m.State != "alive" || !m.Self && m.Mesh != "up" {
					return fmt.Errorf("member %s is %s, its stream %s", m.Name, m.State, m.Mesh)
				}
				if seen[m.Name] {
					return fmt.Errorf("%s is listed twice", m.Name)
				}
				seen[m.Name] = true
			}
			if len(seen) != len(b.Alive()) {
				return fmt.Errorf("sees %d routers of %d", len(seen), len(b.Alive()))
			}
			return nil
		})
	}
}

// calm objects when Raft's term moves on within a minute: nobody stands again and
// again.
func calm(t *testing.T, b *harness.Bubble) {
	t.Helper()
	before := b.Router(0).Node().Info().Raft.Term
	time.Sleep(time.Minute)
	if after := b.Router(0).Node().Info().Raft.Term; after != before {
		t.Errorf("term %d became %d within a quiet minute", before, after)
	}
}

// All routers stop and come back at other addresses with their old disks: they
// serve before they agree, find each other by name, and have what they had.
func TestAllRoutersMoveAtOnce(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond, RouterFile: named(3)}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		time.Sleep(10 * time.Second) // all three vote
		index, status := setTarget(t, b.Router(0), 5)
		if status != http.StatusOK {
			t.Fatalf("target: status %d", status)
		}
		b.Within(2*time.Second, "the target on all", sameFacts(b, index))
		known := ok(t, b.Chat(0, streamed(chat(words("moved", 3000), "Learned before.", 5)))).Replica
		for _, r := range b.Routers() {
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range b.Routers() {
			b.Net.Host(r.Name).Readdress()
			r.Restart()
		}
		b.Within(time.Second, "served before anything is agreed", func() error {
			for i := range b.Routers() {
				if r := b.Chat(i, streamed(chat("Be brief.", "Where are we?", 3))); !r.OK() {
					return errors.New(r.String())
				}
			}
			return nil
		})
		took := b.Within(15*time.Second, "one group", oneGroup(b, index))
		t.Logf("one group %v after the start", took)
		if n := b.Router(1).Node().View().Facts.Targets[state.TargetKey{Pool: harness.Pool, Role: state.RoleBoth}]; n != 5 {
			t.Errorf("target %d, want 5", n)
		}
		for _, r := range b.Routers() {
			if x := r.Explain(chat(words("moved", 3000), "Who knows?", 5).Body()); x.Replica != known || x.MatchedTokens == 0 {
				t.Errorf("%s: a prefix from before is taken to %s with %d tokens matched, not to %s", r.Name, x.Replica, x.MatchedTokens, known)
			}
		}
		if _, status := setTarget(t, b.Router(2), 4); status != http.StatusOK {
			t.Errorf("a write after the move: status %d", status)
		}
		calm(t, b)
	})
}

// One router after the other moves to another address, ten seconds apart.
func TestRoutersMoveOneAfterTheOther(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond, RouterFile: named(3)}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		time.Sleep(10 * time.Second)
		index, status := setTarget(t, b.Router(0), 5)
		if status != http.StatusOK {
			t.Fatalf("target: status %d", status)
		}
		for i, r := range b.Routers() {
			r.Kill()
			b.Net.Host(r.Name).Readdress()
			r.Restart()
			for range 10 {
				ok(t, b.Chat((i+1)%3, streamed(chat("Be brief.", "Still there?", 3))))
				time.Sleep(time.Second)
			}
		}
		took := b.Within(10*time.Second, "one group", oneGroup(b, index))
		t.Logf("one group %v after the last move's 10 s", took)
		if _, status := setTarget(t, b.Router(1), 4); status != http.StatusOK {
			t.Errorf("a write after the moves: status %d", status)
		}
		calm(t, b)
	})
}

// Routers start while their names do not resolve, and one replica is down: each
// serves alone, says what it waits for, and is one of a group once names resolve.
func TestNamesResolveTwentySecondsLate(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 3, Delay: time.Millisecond, RouterFile: named(3)}, func(t *testing.T, b *harness.Bubble) {
		for _, r := range b.Routers() {
			r.Kill()
			r.Wipe()
			b.Net.Host(r.Name).SetResolvable(false)
		}
		b.Engine(2).Kill()
		for _, r := range b.Routers() {
			r.Restart()
			if ready, why := r.Node().Ready(); ready || len(why) == 0 {
				t.Errorf("%s is ready before it has tried to find the others (%v)", r.Name, why)
			}
		}
		served := 0
		for i := range 20 {
			if r := b.Chat(i%3, streamed(chat("Be brief.", fmt.Sprint("Anyone? ", i), 3))); r.OK() {
				served++
			}
			time.Sleep(time.Second)
		}
		if served < 20 {
			t.Errorf("%d of 20 requests served before names resolve", served)
		}
		if l := leader(b); l != nil {
			t.Errorf("%s leads an island", l.Name)
		}
		for _, r := range b.Routers() {
			b.Net.Host(r.Name).SetResolvable(true)
		}
		took := b.Within(20*time.Second, "one group", oneGroup(b, 1))
		t.Logf("one group %v after names resolve", took)
	})
}
