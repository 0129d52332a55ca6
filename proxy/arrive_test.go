package proxy

import (
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// traffic is what the rig's router has counted of its pool.
func (g *rig) traffic() state.Traffic { return g.store.View().Pool("llama").OwnTraffic() }

// The autoscaler goes by what comes, answered or not, and by how it is answered.
func TestTrafficIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		answer := after(200*time.Millisecond, streams(role, word, finish, usage, done))
		g := newRig(t, w, handlers(answer), capped(1, func(s *poolSpec) {
			s.SLOTTFT, s.SLOITL, s.QueueWait = 300*time.Millisecond, 100*time.Millisecond, 450*time.Millisecond
		}))
		if r := g.chat(askStream); r.StatusCode != 200 {
			t.Fatalf("%d %q", r.StatusCode, r.body)
		}
		one := g.traffic()
		if one.Requests != 1 || one.Uncached < 2 || one.Answers != 1 || one.Output != 3 || one.Firsts != 1 || one.FirstsMet != 1 {
			t.Errorf("after one: %+v", one)
		}
		// Of four at once one waits 200 ms and misses the objective, the next one 400 ms,
		// and the last is refused: each came, once.
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { g.chat(askStream) })
		}
		wg.Wait()
		d := g.traffic().Since(one)
		if d.Requests != 4 || d.Uncached < 8 || d.Answers != 3 || d.Output != 9 || d.Firsts != 4 || d.FirstsMet != 1 {
			t.Errorf("of four: %+v", d)
		}
		// What is turned away because there is no replica came, too.
		g.store.SetReplicas(state.SourceStatic, "chat", nil)
		was := g.traffic()
		if r := g.chat(askStream); r.StatusCode != 503 {
			t.Errorf("%d", r.StatusCode)
		}
		if d := g.traffic().Since(was); d.Requests != 1 || d.Uncached < 2 || d.Answers != 0 {
			t.Errorf("without replicas: %+v", d)
		}
		// A model that nobody has is asked of no pool.
		was = g.traffic()
		g.chat(`{"model":"m9","messages":[{"role":"user","content":"Hello there"}]}`)
		if d := g.traffic().Since(was); d != (state.Traffic{Pool: "chat"}) {
			t.Errorf("of an unknown model: %+v", d)
		}
		g.idle()
	})
}
