package proxy

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// A saturated pool's request goes to a pool that has room, and waits in its own if
// there is none.
func TestSaturatedPoolAsksItsFallback(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(slow(time.Second), slow(time.Second), slow(time.Second)), capped(1, nil))
		spec := g.store.View().Pools[0].Spec
		other, third := spec, spec
		spec.Fallback = []string{"other", "third"}
		other.Name, other.Model, other.Aliases = "other", "m2", nil
		third.Name, third.Model, third.Aliases = "third", "m3", nil
		g.store.SetPools([]state.PoolSpec{spec, other, third})
		for i, p := range []string{"chat", "other", "third"} {
			e := g.engines[i]
			g.store.SetReplicas(state.SourceStatic, p, []state.Replica{{ID: state.ReplicaID(e.name), URL: e.url, Role: state.RoleBoth}})
		}
		var wg sync.WaitGroup
		var where []string
		var mu sync.Mutex
		send := func(model string) {
			wg.Go(func() {
				r := g.chat(strings.Replace(ask, "llama", model, 1), "x-hearsay-debug: 1")
				mu.Lock()
				defer mu.Unlock()
				where = append(where, model+" at "+r.Header.Get("x-hearsay-replica"))
			})
			time.Sleep(10 * time.Millisecond)
		}
		send("m2")
		for range 4 {
			send("llama") // its own, the third, and two wait
		}
		if n := g.store.View().Pool("llama").OwnBacklog().Requests; n != 2 {
			t.Errorf("%d wait in the pool's own queue", n)
		}
		wg.Wait()
		slices.Sort(where)
		if want := []string{"llama at e1", "llama at e1", "llama at e1", "llama at e3", "m2 at e2"}; !slices.Equal(where, want) {
			t.Errorf("%v, want %v", where, want)
		}
		g.idle()
	})
}

// K10: a pool without replicas holds requests for a while.
func TestHold(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(slow(time.Second)), capped(0, func(s *poolSpec) { s.QueueHold = 30 * time.Second }))
		list := []state.Replica{g.store.View().Pools[0].Replicas[0].Replica}
		g.store.SetReplicas(state.SourceStatic, "chat", nil)
		x, err := g.srv.Core().Explain(t.Context(), "/v1/chat/completions", []byte(ask))
		if want := "No replica is up: it would wait for a first one, 30s at most."; err != nil || x.Refused != want {
			t.Errorf("explained as %q, %v", x.Refused, err)
		}
		began := time.Now()
		r := g.chat(ask)
		if took := time.Since(began); r.StatusCode != 503 || took < 30*time.Second || took > 31*time.Second || r.Header.Get("Retry-After") == "" || !strings.Contains(r.body, `"no_replica"`) {
			t.Errorf("%d after %v: %q", r.StatusCode, took, r.body)
		}
		if n := g.metric("hearsay_shed_total", "reason", "hold_timeout"); n != 1 {
			t.Errorf("%v shed", n)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if r := g.chat(ask); r.StatusCode != 200 {
					t.Errorf("held: %d %q", r.StatusCode, r.body)
				}
			})
		}
		time.Sleep(20 * time.Second)
		g.waiting(3)
		began = time.Now()
		g.store.SetReplicas(state.SourceStatic, "chat", list)
		wg.Wait()
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("served %v after the replica came", took)
		}

		// The router's end is no time to wait for a first replica.
		g.store.SetReplicas(state.SourceStatic, "chat", nil)
		wg.Go(func() {
			began := time.Now()
			if r := g.chat(ask); r.StatusCode != 503 || !strings.Contains(r.body, "shutting_down") || time.Since(began) > 2*time.Second {
				t.Errorf("at the end: %d %q after %v", r.StatusCode, r.body, time.Since(began))
			}
		})
		g.waiting(1)
		time.Sleep(time.Second)
		g.cancel()
		wg.Wait()
		g.idle()
	})
}
