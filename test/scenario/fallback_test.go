package scenario

import (
	"net/http"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// The replica of a pool dies: the pool that it falls back to answers, through any router, until it is back. When
// both are dead clients are told to come again.
func TestPoolFallsBack(t *testing.T) {
	t.Parallel()
	cfg := harness.BubbleConfig{Routers: 2, Engines: 2, Delay: time.Millisecond, RouterFile: func(_ int, c *node.Config) {
		other := c.Pools[0]
		other.Name, other.Model, other.UpstreamModel = "spare", "sim-spare", harness.Model
		other.Replicas = other.Replicas[1:]
		c.Pools[0].Replicas, c.Pools[0].Fallback = c.Pools[0].Replicas[:1], []string{"spare"}
		c.Pools = append(c.Pools, other)
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		first, spare := b.Engine(0), b.Engine(1)
		body := streamed(chat("Be brief.", "Who answers?", 5)).Body()
		by := func(e *harness.Engine) {
			t.Helper()
			for i := range 4 {
				if r := ok(t, b.Do(i%2, body)); r.Replica != e.ID {
					t.Errorf("through r%d: %v, want it of %s", i%2, r, e.ID)
				}
			}
		}
		by(first)
		first.Kill()
		by(spare)
		spare.Kill()
		for i := range 4 {
			if r := b.Do(i%2, body); r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
				t.Errorf("nobody is left: %v", r)
			}
		}
		spare.Start()
		first.Start()
		b.WaitReady()
		b.Within(time.Minute, "its own replica answers", func() error {
			r := b.Do(0, body)
			if !r.OK() || r.Replica != first.ID {
				return errNothing
			}
			return nil
		})
	})
}
