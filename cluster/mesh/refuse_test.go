package mesh

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/hearsay-llm/hearsay/test/simnet"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRefusals(t *testing.T) {
	f := func(reason string, tweak func(*Config)) {
		t.Helper()
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *simnet.Net) {
				id := func() string { return "id-1" }
				a := start(t, options{n: n, host: "r1", tweak: func(c *Config) { c.ID = id }})
				b := start(t, options{n: n, host: "r2", tweak: func(c *Config) { c.ID = id; tweak(c) }})
				a.peers("r2")
				b.peers("r1")
				time.Sleep(90 * time.Second)
				if a.Up("r2") || b.Up("r1") || a.seen()+b.seen() != "" {
					t.Fatalf("stream up: %s, %s", a.seen(), b.seen())
				}
				warned := func(x *node) int { return strings.Count(x.log.String(), `"reason":"`+reason+`"`) }
				counted := func(x *node) bool {
					return testutil.ToFloat64(x.metrics.refused.WithLabelValues(reason)) > 0
				}
				refusal := func(x *node) bool {
					for _, r := range x.Refusals() {
						if r.Reason == reason && r.Count > 1 && r.Remote != "" {
							return true
						}
					}
					return false
				}
				for _, x := range []*node{a, b} {
					if w := warned(x); w < 1 || w > 8 || !counted(x) || !refusal(x) {
						t.Errorf("%s: %d warnings, counted %v, refusals %+v\n%s", x.id, w, counted(x), x.Refusals(), x.log)
					}
				}
				for x, peer := range map[*node]string{a: "r2", b: "r1"} { // whoever dialled last
					if st := x.status(peer); !strings.Contains(st.Err, reason) || st.Refused != reason || x.Refused(state.RouterID(peer)) != reason {
						t.Errorf("%s: status %+v", x.id, st)
					}
					if !strings.Contains(x.log.String(), `"peer":"`+peer+`","name":"`+peer+`"`) {
						t.Errorf("%s does not say whom:\n%s", x.id, x.log)
					}
				}
			})
		})
	}
	f(ReasonSecret, func(c *Config) { c.Secret = [][]byte{bytes.Repeat([]byte("z"), 32)} })
	f(ReasonCluster, func(c *Config) { c.Cluster = "other" })
	f(ReasonClusterID, func(c *Config) { c.ID = func() string { return "id-2" } })
	f(ReasonScheme, func(c *Config) { c.Scheme = "2" })
}

// A stream that came up before both had a cluster ends when they turn out to have
// two, and stays refused; where it is the same one, it stays up.
func TestClustersFoundedWhileAStreamIsUp(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		var first, second atomic.Pointer[string]
		id := func(p *atomic.Pointer[string]) func() string {
			return func() string {
				if s := p.Load(); s != nil {
					return *s
				}
				return ""
			}
		}
		a := start(t, options{n: n, host: "r1", tweak: func(c *Config) { c.ID = id(&first) }})
		b := start(t, options{n: n, host: "r2", tweak: func(c *Config) { c.ID = id(&second) }})
		c := start(t, options{n: n, host: "r3", tweak: func(c *Config) { c.ID = id(&first) }})
		a.peers("r2", "r3")
		b.peers("r1")
		c.peers("r1")
		within(t, 5*time.Second, "streams", func() bool { return a.Up("r2") && a.Up("r3") })
		if l := a.Unnamed(); len(l) != 2 {
			t.Errorf("unnamed %v", l)
		}
		one, two := "id-1", "id-2"
		first.Store(&one)
		second.Store(&two)
		a.Named("r2", two)
		a.Named("r3", one)
		a.Named("nobody", two)
		time.Sleep(10 * time.Second)
		if a.Up("r2") || a.Refused("r2") != ReasonClusterID || b.Refused("r1") != ReasonClusterID {
			t.Errorf("%+v, %+v", a.status("r2"), b.status("r1"))
		}
		if !a.Up("r3") || a.ClusterID("r3") != one || strings.Contains(c.seen(), "down") {
			t.Errorf("%+v", a.status("r3"))
		}
		if l := a.Unnamed(); len(l) != 0 {
			t.Errorf("unnamed %v", l)
		}
		if !strings.Contains(a.log.String(), `"reason":"cluster_id"`) {
			t.Errorf("not warned of:\n%s", a.log)
		}
	})
}

// Another router at a peer's address is told as such, and what was refused is
// forgotten once there is a stream.
func TestAnotherRouterAtAPeersAddress(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a := start(t, options{n: n, host: "r1"})
		b := start(t, options{n: n, host: "r2"})
		a.SetPeers(map[state.RouterID]string{"r3": "r2:7947"})
		time.Sleep(5 * time.Second)
		if st := a.status("r3"); st.Refused != ReasonOther || st.Up {
			t.Errorf("status %+v", st)
		}
		if log := a.log.String(); strings.Count(log, `"reason":"other_router"`) != 1 || !strings.Contains(log, `"peer":"r2","name":"r2"`) {
			t.Errorf("log:\n%s", log)
		}
		b.stop()
		n.Host("r2").Restart()
		start(t, options{n: n, host: "r2", id: "r3"})
		within(t, 5*time.Second, "a stream", func() bool { return a.Up("r3") })
		if st := a.status("r3"); st.Refused != "" || a.Refused("r3") != "" || st.Name != "r2" {
			t.Errorf("status %+v", st)
		}
	})
}

// A router that was started without its disk has another id at the old address. Those
// that still look for the one before it there do not disturb their streams to the new one.
func TestStreamsStayWhileTheOneBeforeIsLookedFor(t *testing.T) {
	for _, key := range []bool{false, true} {
		bubble(t, func(t *testing.T, n *simnet.Net) {
			tweak := func(c *Config) {
				if key {
					c.Secret = [][]byte{secret}
				}
			}
			lower := start(t, options{n: n, host: "r1", tweak: tweak})
			higher := start(t, options{n: n, host: "r9", tweak: tweak})
			b := start(t, options{n: n, host: "r2", id: "r5", tweak: tweak})
			want := map[state.RouterID]string{"r2": "r2:7947", "r5": "r2:7947"}
			lower.SetPeers(want)
			higher.SetPeers(want)
			b.peers("r1", "r9")
			within(t, 5*time.Second, "streams", func() bool { return both(lower, b)() && both(higher, b)() })
			time.Sleep(time.Second)
			before := lower.seen() + higher.seen() + b.seen()
			time.Sleep(30 * time.Second)
			if after := lower.seen() + higher.seen() + b.seen(); after != before {
				t.Errorf("key %v: at first %s, then %s", key, before, after)
			}
			for _, x := range []*node{lower, higher} {
				if st := x.status("r2"); st.Up || st.Refused != ReasonOther {
					t.Errorf("key %v: %s: status %+v", key, x.id, st)
				}
			}
		})
	}
}

// Two routers with one id take each other's place at a third one, which tells both
// so. One that was restarted is told nothing: see the test of that.
func TestTwoRoutersWithOneID(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a, b := pairOf(t, n, nil)
		within(t, time.Second, "streams up", both(a, b))
		time.Sleep(time.Second)
		copied := start(t, options{n: n, host: "copy", id: "r2"})
		copied.peers("r1")
		told := func(x *node) func() bool {
			return func() bool {
				for _, r := range x.Refusals() {
					if r.Reason == ReasonTwice && r.ByPeer && x.Refused("r1") == ReasonTwice {
						return true
					}
				}
				return false
			}
		}
		within(t, 5*time.Second, "the one that was there is told", told(b))
		within(t, 10*time.Second, "and comes back", func() bool { return b.Up("r1") })
		within(t, 5*time.Second, "the other one is told", told(copied))
		copied.stop()
		within(t, 5*time.Second, "one is left", both(a, b))
		time.Sleep(time.Minute)
		if st := b.status("r1"); !st.Up || time.Since(st.Since) < time.Minute-time.Second || st.Refused != "" {
			t.Errorf("not at rest: %+v", st)
		}
		if l := a.Refusals(); len(l) != 0 {
			t.Errorf("the third one was told: %+v", l)
		}
	})
}

func TestSecretOnOneSideOnlyIsRefused(t *testing.T) {
	for _, who := range []state.RouterID{"r1", "r2"} {
		bubble(t, func(t *testing.T, n *simnet.Net) {
			a, b := pairOf(t, n, func(c *Config) {
				if c.Self == who {
					c.Secret = nil
				}
			})
			time.Sleep(10 * time.Second)
			if a.Up("r2") || b.Up("r1") {
				t.Error("stream up")
			}
			if got := a.Refusals(); len(got) == 0 || got[0].Reason != ReasonSecret {
				t.Errorf("refusals %+v", got)
			}
		})
	}
}

func TestSecretsAndPayloadsDoNotTravelInTheClear(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		var mu sync.Mutex
		var tapped bytes.Buffer
		tweak := func(c *Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, a string) (net.Conn, error) {
				conn, err := dial(ctx, a)
				if err != nil {
					return nil, err
				}
				return &tap{Conn: conn, mu: &mu, w: &tapped}, nil
			}
		}
		a, b := pairOf(t, n, tweak)
		within(t, time.Second, "streams up", both(a, b))
		a.Send("r2", wire.KindRows, []byte("attack at dawn"))
		b.Send("r1", wire.KindRows, []byte("retreat at noon"))
		within(t, time.Second, "frames", func() bool { return len(a.received())+len(b.received()) == 2 })
		mu.Lock()
		defer mu.Unlock()
		for _, s := range []string{"attack", "retreat", string(secret), string(secret[:16])} {
			if bytes.Contains(tapped.Bytes(), []byte(s)) {
				t.Errorf("%q travels in the clear", s)
			}
		}
	})
}

type tap struct {
	net.Conn
	mu *sync.Mutex
	w  io.Writer
}

func (c *tap) Write(b []byte) (int, error) {
	c.mu.Lock()
	_, _ = c.w.Write(b)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	_, _ = c.w.Write(b[:n])
	c.mu.Unlock()
	return n, err
}
