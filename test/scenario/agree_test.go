package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// Two routers: 100 ms after either learned something, the other picks as it does.
func TestWhatOneRouterLearnsTheOtherKnows(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 2, Engines: 4, Delay: 2 * time.Millisecond, Jitter: 3 * time.Millisecond, Loss: 0.01},
		func(t *testing.T, b *harness.Bubble) {
			for i := range 12 {
				learns, hears := i%2, 1-i%2
				system := words(fmt.Sprint("agree", i), 2000+300*i)
				r := ok(t, b.Chat(learns, streamed(chat(system, "First question.", 20))))
				time.Sleep(100 * time.Millisecond)
				next := chat(system, "Another question.", 20).Body()
				own, other := b.Router(learns).Explain(next), b.Router(hears).Explain(next)
				if own.Replica != r.Replica || other.Replica != r.Replica {
					t.Errorf("prefix %d: learned at %s, its router picks %s, the other %s", i, r.Replica, own.Replica, other.Replica)
				}
				if other.MatchedTokens < 1500 || !near(own, other) {
					t.Errorf("prefix %d: %d of %d tokens matched, on the other %d of %d",
						i, own.MatchedTokens, own.PromptTokens, other.MatchedTokens, other.PromptTokens)
				}
				got := ok(t, b.Do(hears, next))
				if got.Replica != r.Replica || got.Usage().PromptTokensDetails.CachedTokens < 1500 {
					t.Errorf("prefix %d: went to %s with %+v", i, got.Replica, got.Usage())
				}
			}
		})
}

// near compares the matched shares, since each router learns by itself how many
// bytes a token has. It allows for one mark: a sixteenth of the length.
func near(a, b proxy.Explanation) bool {
	x, y := float64(a.MatchedTokens)/float64(a.PromptTokens), float64(b.MatchedTokens)/float64(b.PromptTokens)
	return max(x, y)-min(x, y) <= 1.0/16
}

// Load that one router sends is seen by the others while it lasts, and not after.
func TestLoadIsSeenByAllWhileItLasts(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 1, Delay: 2 * time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		body := streamed(chat(words("load", 500), "Go on.", 4000)).Body()
		var open []*harness.Stream
		for i := range 5 {
			open = append(open, b.Open(i%2, body))
		}
		counts := func(want int64) func() error {
			return func() error {
				return each(b, func(r *harness.Router) error {
					if n := r.Replica(b.Engine(0).ID).Load().InFlight; n != want {
						return fmt.Errorf("%d in flight, want %d", n, want)
					}
					return nil
				})
			}
		}
		b.Within(200*time.Millisecond, "all see five", counts(5))
		b.Settle(3 * time.Second)
		if err := counts(5)(); err != nil {
			t.Error(err)
		}
		if n, ok := b.Router(2).Replica(b.Engine(0).ID).Foreign(time.Now()); !ok || n != 0 {
			t.Errorf("%d of them are taken for foreign (known: %v)", n, ok)
		}
		for _, s := range open {
			s.Close()
		}
		b.Within(200*time.Millisecond, "all see none", counts(0))
		b.Idle(time.Second)
	})
}
