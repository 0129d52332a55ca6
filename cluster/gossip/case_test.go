package gossip

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// drops is what a router gave up of its own messages.
func (r *router) drops() float64 {
	sum := testutil.ToFloat64(r.gossip.metrics.dropped.WithLabelValues("queue"))
	for _, p := range r.mesh.Status() {
		sum += float64(p.Drops)
	}
	return sum
}

// settled says that nothing waits to be told.
func (r *router) settled() bool {
	for _, p := range r.mesh.Status() {
		if p.Queued > 0 {
			return false
		}
	}
	for _, m := range r.gossip.Members() {
		if m.Behind > 0 {
			return false
		}
	}
	return true
}

// once says that a router lists exactly so many routers, each once and alive.
func once(t *testing.T, count int, list ...*router) {
	t.Helper()
	for _, x := range list {
		seen := map[state.RouterID]int{}
		for _, m := range x.gossip.Members() {
			seen[m.ID]++
			if m.State != Alive || m.Degraded != "" || seen[m.ID] > 1 {
				t.Errorf("%s lists %+v", x.id, m)
			}
		}
		if len(seen) != count {
			t.Errorf("%s lists %v", x.id, seen)
		}
	}
}

// What all replicas hold together is far larger than any datagram; one prefix more
// is known everywhere at once, and the queues empty.
func TestOneMorePrefixWhereMuchIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		const routers, replicas, each = 5, 40, 100
		r := group(t, n, routers, options{replicas: replicas})
		for i := range replicas * each {
			r[i%routers].learn(i%replicas, 1)
			if i%100 == 99 {
				time.Sleep(20 * time.Millisecond)
			}
		}
		within(t, 3*time.Second, "queues empty", func() bool {
			for _, x := range r {
				if !x.settled() {
					return false
				}
			}
			return true
		})
		before := make([]int64, routers)
		for i, x := range r {
			before[i] = x.host.Traffic().StreamOut + x.host.Traffic().PacketOut
		}
		const span = 10 * time.Second
		more := r[0].learn(7, 1)
		took := within(t, 100*time.Millisecond, "known to all", func() bool {
			for _, x := range r[1:] {
				if x.knows(7, more) != 1 {
					return false
				}
			}
			return true
		})
		t.Logf("known to all after %v", took)
		time.Sleep(span)
		for i, x := range r {
			sent := x.host.Traffic().StreamOut + x.host.Traffic().PacketOut - before[i]
			if rate, limit := float64(sent)/span.Seconds(), bound(Size{Routers: routers, Rate: 0.1, Links: 1}); rate > limit {
				t.Errorf("%s sends %.0f bytes a second, the bound is %.0f", x.id, rate, limit)
			}
			if !x.settled() || x.drops() != 0 {
				t.Errorf("%s: something waits, or %v was dropped", x.id, x.drops())
			}
		}
	})
}

// cut is longer than every time of suspicion, death, reclaim and forgetting, where
// routers are forgetful.
const cut = 6 * time.Minute

func forgetful(c *Config) { c.Remember = 4 * time.Minute }

// Two halves go on by themselves for longer than anything of the others is
// remembered, and are one again without a hand on it.
func TestLongPartitionWithTraffic(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 4, options{tweak: forgetful})
		time.Sleep(5 * time.Second)
		n.Partition([]string{"r0", "r1"}, []string{"r2", "r3"})
		stop := traffic(r, 5*time.Second)
		var marks [][]prefix.Mark
		for i := range 40 {
			marks = append(marks, r[i%4].learn(i%replicas, 4))
			time.Sleep(cut / 40)
		}
		if m := r[0].gossip.Members(); len(m) != 2 {
			t.Fatalf("after the cut: %+v", m)
		} else if host, _, _ := net.SplitHostPort(m[1].Addr); m[1].Admin != net.JoinHostPort(host, "8081") {
			t.Errorf("admin address: %+v", m[1])
		}
		n.HealAll()
		took := within(t, 5*time.Second, "one group that knows the same", func() bool {
			return whole(r...)() && sameKnown(r, marks, 4)
		})
		t.Logf("one group after %v", took)
		stop()
		within(t, 2*time.Second, "loads agree", sameLoads(r, 0))
		time.Sleep(3 * time.Second)
		once(t, 4, r...)
	})
}

// One alone goes on trying for ever.
func TestOneIsolatedForLong(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 4, options{tweak: forgetful})
		time.Sleep(5 * time.Second)
		n.Isolate("r3")
		stop := traffic(r, 5*time.Second)
		marks := [][]prefix.Mark{r[0].learn(0, 4), r[3].learn(1, 4)}
		time.Sleep(cut)
		if m := r[3].gossip.Members(); len(m) != 1 {
			t.Fatalf("after the cut: %+v", m)
		}
		n.HealAll()
		took := within(t, 5*time.Second, "one group that knows the same", func() bool {
			return whole(r...)() && sameKnown(r, marks, 4)
		})
		t.Logf("one group after %v", took)
		stop()
		within(t, 2*time.Second, "loads agree", sameLoads(r, 0))
		time.Sleep(3 * time.Second)
		once(t, 4, r...)
	})
}

// traffic keeps requests coming at every router until it is told to stop; all have
// ended then.
func traffic(r []*router, every time.Duration) (stop func()) {
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for k := 0; !over.Load(); k++ {
			for i, x := range r {
				ticket := x.begin((k+i)%replicas, 50)
				time.AfterFunc(every/10, func() { ticket.FirstToken() })
				time.AfterFunc(every/2, func() { ticket.End() })
			}
			time.Sleep(every)
		}
	}()
	return func() {
		over.Store(true)
		<-done
	}
}

func sameKnown(r []*router, marks [][]prefix.Mark, each int) bool {
	for _, x := range r {
		for i, m := range marks {
			if x.knows(i%replicas, m) != each {
				return false
			}
		}
	}
	return true
}

func sameLoads(r []*router, want int64) func() bool {
	return func() bool {
		for _, x := range r {
			for i := range replicas {
				if x.sees(i) != want {
					return false
				}
			}
		}
		return true
	}
}

// Names that lead to addresses of long ago at first.
func TestStaleAddressesAtFirst(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		names := []string{"r0", "r1", "r2"}
		began := time.Now()
		var list []*router
		for _, name := range names {
			n.Host(name)
		}
		for _, name := range names {
			h := n.Host(name)
			list = append(list, start(t, options{n: n, host: name, join: names, tweak: func(c *Config) {
				c.Resolve = func(ctx context.Context, host string) ([]string, error) {
					if time.Since(began) < 20*time.Second {
						return []string{"10.9.9.9", "10.9.9.10"}, nil // nobody there: dials hang
					}
					return h.LookupHost(ctx, host)
				}
			}}))
		}
		time.Sleep(20 * time.Second)
		within(t, 5*time.Second, "one group", whole(list...))
		once(t, 3, list...)
	})
}

// All stop, and start at new addresses with their old ids.
func TestAllAddressesChange(t *testing.T) {
	names := []string{"r0", "r1", "r2"}
	again := func(t *testing.T, n *simnet.Net, name string) *router {
		return start(t, options{n: n, host: name, join: names, boots: 1})
	}
	t.Run("at once", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *simnet.Net) {
			r := group(t, n, 3, options{})
			time.Sleep(5 * time.Second)
			for _, x := range r {
				x.stop()
			}
			for i, x := range r {
				x.host.Readdress()
				x.host.Restart()
				r[i] = again(t, n, names[i])
			}
			within(t, 5*time.Second, "one group", whole(r...))
			r[0].begin(0, 1)
			within(t, time.Second, "rows", func() bool { return r[1].sees(0) == 1 && r[2].sees(0) == 1 })
			once(t, 3, r...)
		})
	})
	t.Run("one after another", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *simnet.Net) {
			r := group(t, n, 3, options{})
			marks := r[0].learn(1, 6)
			time.Sleep(5 * time.Second)
			for i, x := range r {
				x.begin(0, 1) // what it had running ends with it
				x.kill()
				x.host.Readdress()
				x.host.Restart()
				r[i] = again(t, n, names[i])
				time.Sleep(10 * time.Second)
			}
			within(t, 5*time.Second, "one group", whole(r...))
			within(t, 3*time.Second, "no rows of before", sameLoads(r, 0))
			for _, x := range r {
				if got := x.knows(1, marks); got != 6 {
					t.Errorf("%s knows %d of 6 marks", x.id, got)
				}
			}
			once(t, 3, r...)
		})
	})
}

// What was learned through one router alone outlives it, at the others and at one
// that starts with nothing.
func TestWhatOneRouterLearnedOutlivesIt(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		var marks [][]prefix.Mark
		for i := range 10 {
			marks = append(marks, r[0].learn(i%replicas, 30))
		}
		for range 2 { // and come back to them
			for i, m := range marks {
				r[0].use(i%replicas, m)
			}
		}
		time.Sleep(100 * time.Millisecond)
		r[0].kill()
		if !sameKnown(r[1:], marks, 30) {
			t.Error("the others do not know it")
		}
		time.Sleep(10 * time.Second)
		late := start(t, options{n: n, host: "r9", join: []string{"r1", "r2"}})
		within(t, 5*time.Second, "ready", late.isReady)
		if !sameKnown([]*router{r[1], r[2], late}, marks, 30) {
			t.Error("somebody does not know it")
		}
		for i, m := range marks { // nor does anybody believe it elsewhere
			if got := late.knows((i+1)%replicas, m); got != 0 {
				t.Errorf("%d marks of %d at another replica", got, i)
			}
		}
	})
}

// Datagrams are blocked between two in both directions; streams pass.
func TestBlockedUDPBothWays(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		n.SetLinks("r0", "r1", simnet.Link{Loss: 1})
		within(t, time.Minute, "said of this pair alone", func() bool {
			for _, p := range []struct {
				at   *router
				of   state.RouterID
				want string
			}{{r[0], "r1", UDPBlocked}, {r[1], "r0", UDPBlocked}, {r[0], "r2", ""}, {r[2], "r0", ""}, {r[1], "r2", ""}, {r[2], "r1", ""}} {
				if p.at.member(p.of).Degraded != p.want {
					return false
				}
			}
			return true
		})
		time.Sleep(5 * time.Minute) // and they stay members of each other
		for _, p := range [][2]int{{0, 1}, {1, 0}} {
			if m := r[p[0]].member(state.RouterID(fmt.Sprint("r", p[1]))); m.State != Alive || !m.Stream || m.Degraded != UDPBlocked {
				t.Errorf("%+v", m)
			}
		}
	})
}
