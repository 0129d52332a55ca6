package mesh

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
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
				if st := a.status("r2"); !strings.Contains(st.Err, reason) {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
	f(ReasonSecret, func(c *Config) { c.Secret = [][]byte{bytes.Repeat([]byte("z"), 32)} })
	f(ReasonCluster, func(c *Config) { c.Cluster = "other" })
	f(ReasonClusterID, func(c *Config) { c.ID = func() string { return "id-2" } })
	f(ReasonScheme, func(c *Config) { c.Scheme = "2" })
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
