package mesh

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Both dial at once: one stream stays, the one the lower id dialled, and no frame
// is handled twice.
func TestDuplicateStreamsAreResolved(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		n.SetDefault(simnet.Link{Delay: 20 * time.Millisecond})
		tweak := func(c *Config) { c.Grace = time.Nanosecond }
		a, b := pairOf(t, n, tweak)
		within(t, time.Second, "streams up", both(a, b))
		time.Sleep(5 * time.Second)
		if !a.status("r2").Dialled || b.status("r1").Dialled {
			t.Errorf("stream dialled by the higher id stayed: %+v", a.status("r2"))
		}
		since := a.status("r2").Since
		time.Sleep(time.Minute)
		if a.status("r2").Since != since {
			t.Error("the streams keep replacing each other")
		}
		a.Send("r2", wire.KindRows, []byte("once"))
		time.Sleep(time.Second)
		if got := b.received(); len(got) != 1 {
			t.Errorf("received %q", got)
		}
	})
}

func TestBackPressuredPeerHoldsUpNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a := start(t, options{n: n, host: "r1", tweak: func(c *Config) { c.QueueBytes = 64 << 10 }})
		b := start(t, options{n: n, host: "r2"})
		c := start(t, options{n: n, host: "r3"})
		a.peers("r2", "r3")
		within(t, time.Second, "streams up", func() bool { return a.Up("r2") && a.Up("r3") })
		b.mu.Lock()
		b.block = make(chan struct{})
		release := sync.OnceFunc(func() { close(b.block) })
		b.mu.Unlock()
		defer release()

		frame := make([]byte, 1000)
		dropped := 0
		for range 2000 {
			if !a.Send("r2", wire.KindRows, frame) {
				dropped++
			}
			if !a.Send("r3", wire.KindRows, frame) {
				t.Fatal("drop for the peer that reads")
			}
			time.Sleep(100 * time.Microsecond)
		}
		if dropped == 0 || a.status("r2").Drops != uint64(dropped) || a.status("r2").Queued > 64<<10 {
			t.Errorf("%d drops, status %+v", dropped, a.status("r2"))
		}
		if got := testutil.ToFloat64(a.metrics.dropped.WithLabelValues("queue")); got != float64(dropped) {
			t.Errorf("metric says %v drops of %d", got, dropped)
		}
		within(t, time.Second, "all frames at the other", func() bool { return len(c.received()) == 2000 })
		// A peer that reads nothing for good loses its stream.
		within(t, 10*time.Second, "stalled stream closed", func() bool { return strings.Contains(a.seen(), "down r2") })
		release()
		within(t, 10*time.Second, "stream back", func() bool { return a.Up("r2") })
	})
}

// Ten routers, every pair of them, over a network that delays and is cut at random.
func TestAllPairsComeBackAfterCuts(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		n.SetDefault(simnet.Link{Delay: 2 * time.Millisecond, Jitter: 3 * time.Millisecond})
		var nodes []*node
		var names []string
		for i := range 10 {
			names = append(names, fmt.Sprint("r", i))
			nodes = append(nodes, start(t, options{n: n, host: names[i], boot: state.BootID(i + 1)}))
		}
		for _, x := range nodes {
			x.peers(names...)
		}
		all := func() bool {
			for _, x := range nodes {
				for _, y := range nodes {
					if x != y && !x.Up(y.id) {
						return false
					}
				}
			}
			return true
		}
		within(t, 2*time.Second, "all pairs up", all)
		n.Partition(names[:5], names[5:])
		time.Sleep(time.Minute)
		n.HealAll()
		within(t, 5*time.Second, "all pairs up after healing", all)
	})
}
