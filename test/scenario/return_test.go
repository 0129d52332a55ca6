package scenario

import (
	"net/http"
	"slices"
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
