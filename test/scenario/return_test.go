package scenario

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// A voter is away for so long that the leader asks for it more and more seldom. Back, it has what was committed
// meanwhile, and what is committed then, as soon as the others have.
func TestVoterIsBackAfterLong(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		b.Within(15*time.Second, "three voters", voting(b, 3))
		l, _ := waitLeader(b, 5*time.Second)
		away := b.Router(slices.IndexFunc(b.Routers(), func(r *harness.Router) bool { return r != l }))
		var slowest time.Duration
		for i, d := range []time.Duration{3 * time.Second, 8 * time.Second, 15 * time.Second, 25 * time.Second} {
			away.Kill()
			time.Sleep(d)
			meanwhile, status := setTarget(t, l, 2+i%2)
			if status != http.StatusOK {
				t.Fatalf("target: status %d", status)
			}
			away.Restart()
			b.WaitReady()
			slowest = max(slowest, b.Within(2*time.Second, "the facts of meanwhile", sameFacts(b, meanwhile)))
			then, _ := setTarget(t, l, 4+i%2)
			slowest = max(slowest, b.Within(2*time.Second, "the facts of then", sameFacts(b, then)))
		}
		t.Logf("the facts on all %v later at most", slowest)
	})
}

// A voter is away for so long that another router gets its vote. Back, it says that it is no longer a voter, and serves and
// writes as a learner; the leader is not disturbed.
func TestVoterThatWasReplacedSaysSo(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		b.Within(15*time.Second, "three voters", voting(b, 3))
		l, _ := waitLeader(b, 5*time.Second)
		voters := l.Node().Info().Raft.Voters
		at := slices.IndexFunc(b.Routers(), func(r *harness.Router) bool { return r != l && slices.Contains(voters, string(r.ID())) })
		away := b.Router(at)
		id := string(away.ID())
		away.Kill()
		b.Within(time.Minute, "it is replaced", func() error {
			if v := l.Node().Info().Raft.Voters; len(v) != 3 || slices.Contains(v, id) {
				return fmt.Errorf("voters %v", v)
			}
			return nil
		})
		term := l.Node().Info().Raft.Term
		away.Restart()
		b.WaitReady()
		// The leader had begun to call it once more, with pauses of up to 10 s, when it removed it.
		took := b.Within(25*time.Second, "it knows", func() error {
			if r := away.Node().Info().Raft; r.Role != "learner" || !r.Removed || r.Leader != string(l.ID()) {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
		t.Logf("it knows %v after it is ready", took)
		for _, m := range away.Node().Members() {
			if m.Self && (m.Raft != "learner" || !strings.Contains(m.Trouble, "no longer a voter")) {
				t.Errorf("its own line: %+v", m)
			}
		}
		if n := strings.Count(away.Log(), "no longer a voter"); n != 1 {
			t.Errorf("it logs so %d times", n)
		}
		ok(t, b.Chat(at, streamed(chat("Be brief.", "Do you serve?", 3))))
		index, status := setTarget(t, away, 3)
		if status != http.StatusOK {
			t.Errorf("a write through it: status %d", status)
		}
		b.Within(time.Second, "the target on all", sameFacts(b, index))
		b.Settle(20 * time.Second)
		if now := l.Node().Info().Raft; now.Term != term || now.Role != "leader" {
			t.Errorf("the leader was disturbed: term %d, now %+v", term, now)
		}
	})
}
