package scenario

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// What clients ask of all routers reaches the leader's plan: prompts that all have to be
// prefilled come through every router, faster than one engine can, and the decision says
// how many tokens came, what a replica was seen to carry, and how the objectives are met.
func TestArrivalsReachThePlan(t *testing.T) {
	t.Parallel()
	cfg := harness.BubbleConfig{Routers: 3, Engines: 1, Delay: time.Millisecond, PoolFile: func(p *node.PoolConfig) {
		p.Scale = node.ScaleConfig{Min: 1, Max: 8, Actuator: "dry_run", Cooldown: 10 * time.Minute}
		p.Queue.MaxWait = time.Minute
	}}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		const perSecond, length, seconds = 4, 3000, 90
		var wg sync.WaitGroup
		for i := range perSecond * seconds {
			wg.Go(func() {
				b.Do(i%3, streamed(chat(fmt.Sprint("Number ", i), words(fmt.Sprint("arrival", i), length), 8)).Body())
			})
			time.Sleep(time.Second / perSecond)
		}
		wg.Wait()
		f := b.Router(0).Node().View().Facts
		d := f.LastDecision(state.TargetKey{Pool: b.Router(0).Node().View().Pools[0].Spec.Name, Role: state.RoleBoth})
		if d == nil {
			t.Fatal("nothing was decided")
		}
		t.Logf("%s %d->%d: %s %v", d.ID, d.From, d.To, d.Reason, d.Evidence)
		if came := d.Evidence["demand_prefill"]; d.To <= d.From || came < perSecond*length/2 || came > perSecond*length*3 {
			t.Errorf("%d->%d with %.0f tokens/s coming: %s", d.From, d.To, came, d.Reason)
		}
		if c := d.Evidence["capacity_prefill"]; c < 1000 || c > 20000 {
			t.Errorf("a replica is taken to prefill %.0f tokens/s", c)
		}
		if _, ok := d.Evidence["slo_attained"]; !ok {
			t.Error("nobody judged the objectives")
		}
	})
}
