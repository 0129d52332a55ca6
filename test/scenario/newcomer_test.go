package scenario

import (
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// grouped sends n requests with fresh questions behind one of the system prompts,
// ten a second, each to a router that to draws.
func grouped(t testing.TB, b *harness.Bubble, seed int64, systems []string, n int, to func(rng *rand.Rand) int) *tally {
	t.Helper()
	var y tally
	var wg sync.WaitGroup
	rng := rand.New(rand.NewSource(seed))
	for i := range n {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(100*time.Millisecond)))
		router, system := to(rng), systems[rng.Intn(len(systems))]
		wg.Go(func() {
			r := b.Chat(router, streamed(chat(system, words(fmt.Sprint("ask", seed, "/", i), 128), 16)))
			if !r.OK() || r.Usage() == nil {
				t.Errorf("request %d: %v", i, r)
				return
			}
			y.add(r)
		})
	}
	wg.Wait()
	return &y
}

// A new router with an empty disk joins a warm cluster and gets all the traffic at
// once: its first hundred requests hit as those over the others do.
func TestNewcomerTakesAllTraffic(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 4, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		var systems []string
		for i := range 30 {
			systems = append(systems, words(fmt.Sprint("group", i), 640))
		}
		any := func(rng *rand.Rand) int { return rng.Intn(3) }
		grouped(t, b, 1, systems, 200, any)
		warm := grouped(t, b, 2, systems, 100, any)

		late := b.AddRouter()
		if ready, _ := late.Node().Ready(); ready {
			t.Error("it is ready before it can have heard anything")
		}
		took := b.Within(5*time.Second, "the newcomer ready", func() error {
			if ready, why := late.Node().Ready(); !ready {
				return fmt.Errorf("%v", why)
			}
			return nil
		})
		first := grouped(t, b, 3, systems, 100, func(*rand.Rand) int { return 3 })
		t.Logf("ready after %v; hit rate %.3f over the others, %.3f over the newcomer", took, warm.hitRate(), first.hitRate())
		if first.hitRate() < warm.hitRate()-0.03 {
			t.Errorf("hit rate %.3f over the newcomer, %.3f over the others", first.hitRate(), warm.hitRate())
		}
		if warm.hitRate() < 0.5 {
			t.Errorf("hit rate %.3f over warm routers: the scenario shows nothing", warm.hitRate())
		}
		b.Idle(time.Second)
		b.WaitReady()
	})
}
