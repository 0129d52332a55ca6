package gossip

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Between two routers nothing passes; the third passes on.
func TestHoleInTheMeshIsRelayedAround(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		time.Sleep(5 * time.Second)
		n.Cut("r0", "r2")
		time.Sleep(10 * time.Second)
		marks := r[0].learn(0, 7)
		r[0].begin(2, 50)
		took := within(t, 300*time.Millisecond, "news by way of the third", func() bool {
			return r[2].sees(2) == 1 && r[2].knows(0, marks) == 7
		})
		t.Logf("relayed in %v", took)
		time.Sleep(10 * time.Second)
		if r[2].sees(2) != 1 {
			t.Error("the row did not last")
		}
	})
}

// What is learned before a hole is noticed is not lost on those behind it.
func TestWhatIsLearnedBeforeAHoleIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 4, options{})
		time.Sleep(5 * time.Second)
		n.Cut("r0", "r2")
		var marks [][]prefix.Mark
		for i := range 40 {
			marks = append(marks, r[0].learn(i%replicas, 3))
			time.Sleep(50 * time.Millisecond)
		}
		took := within(t, 2*time.Second, "known by way of the others", func() bool { return sameKnown(r, marks, 3) })
		t.Logf("known %v after the last", took)
	})
}

func TestRestartedRouter(t *testing.T) {
	f := func(name string, restart func(r *router)) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *simnet.Net) {
				r := group(t, n, 3, options{})
				marks := r[2].learn(0, 5)
				r[2].begin(0, 10)
				within(t, time.Second, "known", func() bool { return r[0].sees(0) == 1 && r[0].knows(0, marks) == 5 })
				restart(r[2])
				again := start(t, options{n: n, host: "r2", join: []string{"r0", "r1"}, boots: 1})
				within(t, 5*time.Second, "ready", again.isReady)
				within(t, 10*time.Second, "one group", whole(r[0], r[1], again))
				if got := again.knows(0, marks); got != 5 {
					t.Errorf("knows %d of its 5 marks when ready", got)
				}
				within(t, 3*time.Second, "old rows gone", func() bool { return r[0].sees(0) == 0 && r[1].sees(0) == 0 })
				again.begin(0, 10)
				within(t, 200*time.Millisecond, "new rows", func() bool { return r[0].sees(0) == 1 && r[1].sees(0) == 1 })
			})
		})
	}
	f("in order", func(r *router) { r.stop() })
	f("killed", func(r *router) { r.kill(); r.host.Restart() })
	f("killed, back at another address", func(r *router) { r.kill(); r.host.Readdress(); r.host.Restart() })
}

func TestLeaveIsNotDeath(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		r[1].begin(0, 10)
		within(t, time.Second, "known", func() bool { return r[0].sees(0) == 1 })
		r[1].stop()
		within(t, time.Second, "left", func() bool { return r[0].member("r1").State == Left && r[2].member("r1").State == Left })
		within(t, 300*time.Millisecond, "rows gone at once", func() bool { return r[0].sees(0) == 0 && r[2].sees(0) == 0 })
		if got := r[0].member("r1").Degraded; got != "" {
			t.Errorf("degraded: %s", got)
		}
	})
}

func TestNamesThatResolveLater(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		var list []*router
		names := []string{"r0", "r1", "r2"}
		for _, name := range names {
			n.Host(name).SetResolvable(false)
		}
		for _, name := range names {
			list = append(list, start(t, options{n: n, host: name, join: names}))
		}
		time.Sleep(20 * time.Second)
		for _, name := range names {
			n.Host(name).SetResolvable(true)
		}
		within(t, 5*time.Second, "one group", whole(list...))
		if !strings.Contains(list[0].log.String(), "does not resolve") {
			t.Error("no warning of the name")
		}
	})
}

func TestBlockedUDPIsCalledDegraded(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		time.Sleep(30 * time.Second)
		if d := r[0].member("r1").Degraded; d != "" {
			t.Fatalf("degraded without a fault: %s", d)
		}
		n.SetLink("r0", "r1", simnet.Link{Loss: 1}) // one direction; streams pass
		within(t, time.Minute, "both sides say so, of this pair alone", func() bool {
			return r[0].member("r1").Degraded == UDPBlocked && r[1].member("r0").Degraded == UDPBlocked &&
				r[0].member("r2").Degraded == "" && r[2].member("r0").Degraded == "" && r[2].member("r1").Degraded == ""
		})
		time.Sleep(time.Second)
		if got := testutil.ToFloat64(r[1].gossip.metrics.degraded.WithLabelValues(UDPBlocked)); got != 1 {
			t.Errorf("metric says %v", got)
		}
		if !strings.Contains(r[1].log.String(), "peers degraded") {
			t.Error("no warning")
		}
		marks := r[0].learn(0, 3)
		within(t, 100*time.Millisecond, "news by streams", func() bool { return r[1].knows(0, marks) == 3 })
	})
}

// Streams are refused between two routers: rows come by datagrams, and the pair is
// called degraded.
func TestRowsFallBackToDatagrams(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		wrong := func(c *mesh.Config) {
			if c.Self == "r1" {
				c.Secret = [][]byte{bytes.Repeat([]byte("x"), 32)} // of the mesh alone
			}
		}
		a := start(t, options{n: n, host: "r0"})
		b := start(t, options{n: n, host: "r1", join: []string{"r0"}, mesh: wrong})
		within(t, 5*time.Second, "members", func() bool { return a.member("r1").State == Alive && b.member("r0").State == Alive })
		tickets := []*state.Ticket{a.begin(0, 100), a.begin(1, 100)}
		within(t, 100*time.Millisecond, "rows by datagrams", func() bool { return b.sees(0) == 1 && b.sees(1) == 1 })
		time.Sleep(10 * time.Second)
		if b.sees(0) != 1 || b.member("r0").Degraded != NoStream || a.member("r1").Degraded != NoStream {
			t.Errorf("sees %d, degraded %q", b.sees(0), b.member("r0").Degraded)
		}
		tickets[0].End()
		within(t, 100*time.Millisecond, "end by datagram", func() bool { return b.sees(0) == 0 && b.sees(1) == 1 })
	})
}

func TestStrangersAreRefused(t *testing.T) {
	f := func(reason string, tweak func(*Config), tweakMesh func(*mesh.Config)) {
		t.Helper()
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *simnet.Net) {
				r := group(t, n, 2, options{})
				x := start(t, options{n: n, host: "x", join: []string{"r0", "r1"}, tweak: tweak, mesh: tweakMesh})
				marks := x.learn(0, 3)
				x.begin(0, 10)
				time.Sleep(time.Minute)
				for _, y := range r {
					if y.sees(0) != 0 || y.knows(0, marks) != 0 || y.member("x").Stream {
						t.Errorf("%s took news of a stranger", y.id)
					}
				}
				if m := r[0].member("x"); m.State == Alive {
					t.Errorf("member: %+v", m)
				}
				if !strings.Contains(r[0].log.String(), `"reason":"`+reason+`"`) {
					t.Errorf("no warning of %s:\n%.2000s", reason, r[0].log)
				}
				if got := testutil.ToFloat64(r[0].gossip.metrics.refused.WithLabelValues(reason)); got == 0 {
					t.Error("not counted")
				}
				if !whole(r...)() {
					t.Error("the group suffered")
				}
				if strings.Contains(x.log.String(), `"joined"`) {
					t.Error("it says that it joined")
				}
				if reason == "scheme" { // what both tell of it, as long as it lasts
					for _, y := range r {
						if l := y.gossip.Refused(); len(l) != 1 || l[0].ID != "x" || l[0].Name != "x" || l[0].Reason != RefusedScheme || l[0].Scheme != "2" {
							t.Errorf("%s refuses %+v", y.id, l)
						}
					}
					if l := x.gossip.Refused(); len(l) != 2 || l[0].ID != "r0" || l[0].Scheme != "1" {
						t.Errorf("it refuses %+v", l)
					}
					x.kill()
					time.Sleep(15 * time.Second)
					if l := r[0].gossip.Refused(); len(l) != 0 {
						t.Errorf("r0 still refuses %+v", l)
					}
				} else if l := x.gossip.JoinFaults(); len(l) != 2 {
					t.Errorf("it says that it can't join %+v", l)
				}
			})
		})
	}
	other := [][]byte{bytes.Repeat([]byte("y"), 32)}
	f("secret", func(c *Config) { c.Secret = other }, func(c *mesh.Config) { c.Secret = other })
	f("secret", func(c *Config) { c.Secret = nil }, func(c *mesh.Config) { c.Secret = nil })
	f("cluster", func(c *Config) { c.Cluster = "other" }, func(c *mesh.Config) { c.Cluster = "other" })
	f("scheme", func(c *Config) { c.Scheme = "2" }, func(c *mesh.Config) { c.Scheme = "2" })
}

// More routers than a full mesh is for: few streams each, and all hear all.
func TestSparseMesh(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		const count = 16
		var list []*router
		n.Host("r00")
		for i := range count {
			list = append(list, start(t, options{
				n: n, host: fmt.Sprintf("r%02d", i), join: []string{"r00"}, tweak: func(c *Config) { c.AllPairs = 5 },
			}))
		}
		time.Sleep(15 * time.Second)
		for _, x := range list {
			streams := 0
			for _, m := range x.gossip.Members() {
				if m.State != Alive || m.Degraded != "" {
					t.Errorf("%s: %+v", x.id, m)
				}
				if m.Stream {
					streams++
				}
			}
			if streams < 2 || streams > 6 {
				t.Errorf("%s has %d streams", x.id, streams)
			}
		}
		marks := list[3].learn(1, 8)
		list[3].begin(1, 10)
		took := within(t, 500*time.Millisecond, "news everywhere", func() bool {
			for _, x := range list {
				if x != list[3] && (x.sees(1) != 1 || x.knows(1, marks) != 8) {
					return false
				}
			}
			return true
		})
		t.Logf("everywhere after %v", took)
	})
}

func TestNeighbours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "routers")
		all := make([]state.RouterID, n)
		for i := range all {
			all[i] = state.RouterID(fmt.Sprintf("%03d", i))
		}
		of := map[state.RouterID][]state.RouterID{}
		for _, self := range all {
			others := slices.DeleteFunc(slices.Clone(all), func(o state.RouterID) bool { return o == self })
			of[self] = neighbours(self, others, 32)
		}
		most := n - 1
		if n > 32 {
			most = int(math.Ceil(math.Log2(float64(n)))) + 3
		}
		for a, list := range of {
			if len(list) > most {
				t.Fatalf("%d of %d are neighbours", len(list), n)
			}
			for _, b := range list {
				if a == b || !slices.Contains(of[b], a) {
					t.Fatalf("%s picks %s, but not the other way", a, b)
				}
			}
		}
		// Everybody is a few hops from everybody.
		hops := map[state.RouterID]int{all[0]: 0}
		queue := []state.RouterID{all[0]}
		for len(queue) > 0 {
			at := queue[0]
			queue = queue[1:]
			for _, b := range of[at] {
				if _, ok := hops[b]; !ok {
					hops[b] = hops[at] + 1
					queue = append(queue, b)
				}
			}
		}
		for _, a := range all {
			if h, ok := hops[a]; !ok || h > 8 {
				t.Fatalf("%s is %d hops away (%v) of %d routers", a, h, ok, n)
			}
		}
	})
}

// A peer that applies nothing must not keep others from their news.
func TestStuckPeerHoldsUpNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{mesh: func(c *mesh.Config) { c.QueueBytes = 64 << 10 }})
		time.Sleep(3 * time.Second)
		hold := make(chan struct{})
		r[2].hold.Store(&hold)
		release := sync.OnceFunc(func() { r[2].hold.Store(nil); close(hold) })
		defer release()
		var marks []prefix.Mark
		for i := range 200 {
			r[0].begin(i%replicas, 10)
			marks = r[0].learn(0, 50)
			time.Sleep(10 * time.Millisecond)
		}
		within(t, 150*time.Millisecond, "the other is up to date", func() bool {
			return r[1].sees(0) == 50 && r[1].knows(0, marks) == 50
		})
		release()
		within(t, 10*time.Second, "the held one catches up", func() bool {
			return r[2].sees(0) == 50 && r[2].knows(0, marks) == 50
		})
	})
}

func TestMetricsAreThere(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 2, options{})
		time.Sleep(3 * time.Second) // else it comes with the first snapshot
		r[0].learn(0, 3)
		time.Sleep(5 * time.Second)
		if err := testutil.GatherAndCompare(r[0].reg, strings.NewReader(`
# HELP hearsay_members Routers known to membership, this one included, by state.
# TYPE hearsay_members gauge
hearsay_members{state="alive"} 2
hearsay_members{state="dead"} 0
hearsay_members{state="left"} 0
`), "hearsay_members"); err != nil {
			t.Error(err)
		}
		for _, k := range []string{"stream_rows", "stream_ops", "beacon", "beacon_reply", "resume"} {
			if testutil.ToFloat64(r[0].gossip.metrics.bytes.WithLabelValues("out", k)) == 0 {
				t.Errorf("no %s bytes counted", k)
			}
		}
		if testutil.CollectAndCount(r[0].gossip.metrics.delay) != 1 {
			t.Error("no delay measured")
		}
	})
}

// Datagrams and frames of any bytes change nothing and break nothing.
func TestForeignBytes(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 2, options{})
		for k := range 256 {
			r[0].gossip.packet([]byte{byte(k), 0xff, 0xff})
		}
		r[0].gossip.packet(nil)
		time.Sleep(time.Second)
		if got := testutil.ToFloat64(r[0].gossip.metrics.dropped.WithLabelValues("malformed")); got != 2 {
			t.Errorf("%v messages were malformed", got)
		}
		if !whole(r...)() {
			t.Error("the group suffered")
		}
	})
}
