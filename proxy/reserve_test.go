package proxy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// M11: whatever the low band asks for, the high one's requests nearly always
// find a replica with room, at any router. The low band gets the rest.
func TestLowBandsOverloadLeavesTheHighOneAlone(t *testing.T) {
	const service, lowest = 800 * time.Millisecond, "x-priority: low"
	inBubble(t, func(t *testing.T, w wire) {
		var rigs []*rig
		for i := range 3 {
			var h []func(*engine, *incoming) bool
			if i == 0 {
				h = handlers(slow(service), slow(service))
			}
			rigs = append(rigs, newRig(t, named{w.(sim), fmt.Sprintf("router%d", i)}, h, capped(5, nil)))
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
		var high []time.Duration
		low := 0
		send := func(i int, fields ...string) {
			began := time.Now()
			r := rigs[i%3].chat(strings.Replace(ask, "Hello there", fmt.Sprint(i, fields), 1), fields...)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case fields[1] == lowest && r.StatusCode == 200:
				low++
			case fields[1] == lowest:
			case r.StatusCode == 200:
				high = append(high, time.Since(began))
			default:
				t.Errorf("high: %d %q", r.StatusCode, r.body)
			}
		}
		// There is room for 12 a second. The high band sends 2, at routers in turn, from the
		// beginning; the low one 25, after half a minute.
		const before, last = 60, 180
		for i := range last {
			wg.Go(func() { send(i, urgent, "x-priority: high") })
			for k := range 12 {
				if i >= before {
					wg.Go(func() { send(7*i+k, urgent, lowest) })
				}
				time.Sleep(500 * time.Millisecond / 12)
			}
		}
		wg.Wait()
		stop()
		for i := len(rigs) - 1; i >= 0; i-- {
			if h := rigs[i].store.View().Pool("llama").Counter.Holds(time.Now()); h.Running != [state.Upper]int64{} {
				t.Errorf("router %d has %+v left", i, h)
			}
			rigs[i].idle()
			rigs[i].stop()
		}
		waited := 0
		for _, took := range high {
			if took > service+50*time.Millisecond {
				waited++
			}
		}
		t.Logf("high: %d of %d waited, %v at most; low: %d served", waited, len(high), slices.Max(high)-service, low)
		if waited > last/20 {
			t.Errorf("%d of the high band's %d requests waited", waited, len(high))
		}
		if most := int((last - before) / 2 * 12); low < most/2 || low > most {
			t.Errorf("%d of the low band were served, want more than half of %d", low, most)
		}
	})
}

// Who waits though there are places is told for whom they are.
func TestExplainPlacesLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(slow(10*time.Second)), capped(3, nil))
		explain := func() Explanation {
			x, err := g.srv.Core().Explain(t.Context(), "/v1/chat/completions", []byte(ask))
			must(t, err)
			return x
		}
		var wg sync.WaitGroup
		two := func(fields ...string) {
			for range 2 {
				wg.Go(func() { g.chat(ask, fields...) })
			}
			until(t, "they run", func() bool { return g.inFlight() == 2 })
		}
		two()
		if x := explain(); x.Refused != "" {
			t.Errorf("the last place, with one priority in use: %q", x.Refused)
		}
		wg.Wait()
		two(urgent, "x-priority: high")
		wg.Wait()
		two()
		if x := explain(); !strings.Contains(x.Refused, "higher priority") || x.Candidates[0].Excluded != "reserved" {
			t.Errorf("the last place, behind high ones: %q, %+v", x.Refused, x.Candidates)
		}
		wg.Wait()
		g.idle()
	})
}
