package proxy

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// named is a simulated network seen by one of several routers.
type named struct {
	sim
	name string
}

func (w named) listen(host string) net.Listener {
	if host == "router" {
		host = w.name
	}
	return w.sim.listen(host)
}

func (w named) self() state.RouterID { return state.RouterID(w.name) }

// share tells each router every 10 ms what the others have, and returns how to stop.
func share(rigs []*rig) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for seq := uint64(1); ; seq++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			var list []state.Rows
			for i, g := range rigs {
				list = append(list, rowsOf(g, i, seq))
			}
			time.Sleep(2 * time.Millisecond)
			for _, g := range rigs {
				for _, m := range list {
					g.store.ApplyRows(m)
				}
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// rowsOf is what router i has, as the others are told.
func rowsOf(g *rig, i int, seq uint64) state.Rows {
	return state.Rows{
		Router: g.store.Self(), Boot: state.BootID(i + 10), Seq: seq, Full: true,
		Rows: g.store.OwnRows(nil), Backlogs: g.store.OwnBacklogs(nil), Traffic: g.store.OwnTraffic(nil),
	}
}

// K13: a tenant that sends far more than there is room for does not hold up another
// one's requests, though each router decides alone.
func TestK13TenantsOverRouters(t *testing.T) {
	const service = 800 * time.Millisecond
	long := strings.Repeat("many words and more ", 400) // some 2,000 tokens
	p99 := func(t *testing.T, w sim, noisy bool) time.Duration {
		var rigs []*rig
		for i := range 3 {
			var h []func(*engine, *incoming) bool
			if i == 0 {
				h = handlers(slow(service), slow(service))
			}
			rigs = append(rigs, newRig(t, named{w, fmt.Sprintf("router%d", i)}, h, capped(16, nil)))
		}
		var list []state.Replica
		for _, e := range rigs[0].engines {
			list = append(list, state.Replica{ID: state.ReplicaID(e.name), URL: e.url, Role: state.RoleBoth})
		}
		for _, g := range rigs[1:] {
			g.store.SetReplicas(state.SourceStatic, "chat", list)
		}
		stop := share(rigs)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var took []time.Duration
		var longest time.Duration // of a's
		send := func(i int, tenant string) {
			wg.Go(func() {
				body := strings.Replace(ask, "Hello there", fmt.Sprint(tenant, i, long), 1)
				began := time.Now()
				r := rigs[i%3].chat(body, bearer(tenant))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case tenant == "b" && r.StatusCode == 200:
					took = append(took, time.Since(began))
				case tenant == "b":
					t.Errorf("b: %d %q", r.StatusCode, r.body)
				case r.StatusCode == 200:
					longest = max(longest, time.Since(began))
				}
			})
		}
		// There is room for 40 a second. b sends 4, a 40.
		for i := range 30 * 4 {
			send(i, "b")
			for k := range 10 {
				if noisy {
					send(10*i+k, "a")
				}
				time.Sleep(25 * time.Millisecond)
			}
		}
		wg.Wait()
		stop()
		if noisy && longest < 3*service {
			t.Errorf("a waited for %v at most: it is no saturation", longest-service)
		}
		for i := len(rigs) - 1; i >= 0; i-- {
			rigs[i].idle()
			rigs[i].stop()
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	var alone, beside time.Duration
	inBubble(t, func(t *testing.T, w wire) { alone = p99(t, w.(sim), false) })
	inBubble(t, func(t *testing.T, w wire) { beside = p99(t, w.(sim), true) })
	t.Logf("b's p99 alone %v, beside a %v", alone, beside)
	if beside > alone*3/2 {
		t.Errorf("b's p99 is %v, alone %v", beside, alone)
	}
}
