package routing_test

import (
	"sync"
	"testing"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// Run with -race: one picker, many goroutines, a store that changes meanwhile.
func TestPicksAreConcurrent(t *testing.T) {
	w := newWorld(t, 6, "")
	pick := routing.NewPicker(routing.Config{}, w, w.cal)
	w.hold(2, 512)
	now := w.now
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var c routing.Choice
			req := w.prompt(1000)
			for i := range 300 {
				v := w.store.View()
				req.Pool = v.Pools[i%2] // the other pool is empty
				req.Session = string(rune('a' + g))
				if err := pick.Pick(&c, req, v, now); err != nil {
					if i%2 == 0 {
						t.Error(err)
					}
					continue
				}
				ticket := w.store.Begin(c.Replica, c.UncachedTokens)
				s := c.Sample()
				s.TTFT = 1e6
				w.cal.Observe(s)
				ticket.FirstToken()
				ticket.End()
			}
		})
	}
	for i := range 200 {
		w.load(i%6, state.Load{InFlight: int64(i % 3)})
		policy := routing.Policies()[i%len(routing.Policies())]
		w.store.SetPools([]state.PoolSpec{{Name: "chat", Policy: policy}, {Name: "empty"}})
		w.weigh(map[int]state.Weight{i % 6: {Slow: 0.5}}, i%2 == 0)
	}
	wg.Wait()
	for i := range 6 {
		if l := w.replica(i).Cell.Load(); l != (state.Load{}) {
			t.Errorf("r%d has %+v left", i, l)
		}
	}
}
