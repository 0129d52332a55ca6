package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Three voters that are 300 ms away from each other, one way. With a heartbeat time-out of 2 s one leader lasts for a
// minute and takes writes through any of them. With the default, less than a round trip, none lasts. Requests are
// served in either case.
func TestLeaderOverSlowLinks(t *testing.T) {
	t.Parallel()
	const oneWay = 300 * time.Millisecond
	f := func(name string, timeout time.Duration, writes int, lasts bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			cfg := harness.BubbleConfig{Routers: 3, Delay: time.Millisecond, RouterFile: func(_ int, c *node.Config) {
				if timeout > 0 {
					c.Cluster.Raft.HeartbeatTimeout = timeout
				}
			}}
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				b.Within(30*time.Second, "three voters", voting(b, 3))
				farApart(b, oneWay)
				b.Settle(5 * time.Second)
				terms, written := writesEvery5s(t, b, writes)
				t.Logf("%d terms, %d of %d writes", terms, written, writes)
				if lasts && (terms != 1 || written != writes) {
					t.Errorf("%d terms, %d of %d writes were done", terms, written, writes)
				}
				if !lasts && terms < 3 {
					t.Errorf("%d terms: the time-out need not be longer", terms)
				}
			})
		})
	}
	f("2s", 2*time.Second, 12, true)
	f("default", 0, 4, false)
}

// farApart puts so much between each two routers, one way.
func farApart(b *harness.Bubble, oneWay time.Duration) {
	for i, r := range b.Routers() {
		for _, other := range b.Routers()[:i] {
			b.Net.SetLinks(r.Name, other.Name, simnet.Link{Delay: oneWay})
		}
	}
}

// writesEvery5s sets a target n times, through one router after the other, and asks for an answer, which has to come.
// It counts the terms that any router saw, and the writes that were done.
func writesEvery5s(t *testing.T, b *harness.Bubble, n int) (terms, written int) {
	seen := map[uint64]bool{}
	for i := range n {
		next := time.Now().Add(5 * time.Second)
		ok(t, b.Chat(i%3, streamed(chat("Be brief.", fmt.Sprint("slow ", i), 3))))
		if _, status := setTarget(t, b.Router(i%3), 2+i%4); status == http.StatusOK {
			written++
		}
		for {
			for _, r := range b.Routers() {
				seen[r.Node().Info().Raft.Term] = true
			}
			if !time.Now().Before(next) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return len(seen), written
}

// A cluster is founded over such links, too, and has another leader after one is killed.
func TestClusterIsFoundedOverSlowLinks(t *testing.T) {
	t.Parallel()
	cfg := harness.BubbleConfig{
		Routers: 3, Delay: time.Millisecond,
		RouterFile: func(_ int, c *node.Config) { c.Cluster.Raft.HeartbeatTimeout = 2 * time.Second },
	}
	synctest.Test(t, func(t *testing.T) {
		b := harness.NewBubble(t, cfg)
		farApart(b, 300*time.Millisecond)
		b.WaitReady()
		b.Within(time.Minute, "three voters", voting(b, 3))
		old, _ := waitLeader(b, 10*time.Second)
		epoch := old.Node().View().Facts.Epoch
		old.Kill()
		took := b.Within(20*time.Second, "another leader", func() error {
			if l := leader(b); l == nil || l.Node().View().Facts.Epoch <= epoch {
				return errors.New("none")
			}
			return nil
		})
		t.Logf("another leader after %v", took)
		if _, status := setTarget(t, b.Alive()[0], 3); status != http.StatusOK {
			t.Errorf("a write: status %d", status)
		}
	})
}
