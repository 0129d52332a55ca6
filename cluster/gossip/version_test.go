package gossip

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// A router of the release before, between two of this one, and as the only way
// between them.
func TestTheReleaseBeforeWorksWithThisOne(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		of := map[state.RouterID]*school{}
		old := func(c *Config) {
			schools(of)(c)
			if c.Self == "r1" {
				c.Version = wire.Version - 1
			}
		}
		r := group(t, n, 3, options{tweak: old, mesh: func(c *mesh.Config) {
			if c.Self == "r1" {
				c.Version = wire.Version - 1
			}
		}})
		time.Sleep(5 * time.Second)
		if v := r[0].member("r1").Version; v != wire.Version-1 {
			t.Errorf("wire version %d is shown", v)
		}
		check := func(d time.Duration) {
			t.Helper()
			for i, x := range r {
				ticket := x.begin(i, 100)
				marks := x.learn(i, 6)
				within(t, d, "known everywhere", func() bool {
					for _, y := range r {
						if y != x && (y.sees(i) != 1 || y.knows(i, marks) != 6) {
							return false
						}
					}
					return true
				})
				ticket.End()
				within(t, d, "ended everywhere", func() bool { return r[0].sees(i)+r[1].sees(i)+r[2].sees(i) == 0 })
			}
		}
		check(100 * time.Millisecond)
		n.Cut("r0", "r2")
		time.Sleep(10 * time.Second)
		check(200 * time.Millisecond)
		// What it does not know it drops and counts, and nothing else suffers.
		of["r0"].say("lesson")
		time.Sleep(time.Second)
		if of["r1"].heard("lesson") != 0 {
			t.Error("the release before learned a lesson")
		}
		if got := gathered(t, r[1], "hearsay_mesh_dropped_total", "kind"); got == 0 {
			t.Error("the unknown kind was not counted")
		}
		for _, x := range r {
			for _, reason := range []string{"malformed", "out_of_step"} {
				if got := testutil.ToFloat64(x.gossip.metrics.dropped.WithLabelValues(reason)); got != 0 {
					t.Errorf("%s: %v messages were %s", x.id, got, reason)
				}
			}
		}
	})
}

// A router two releases old, and one of another cluster with the same label.
func TestRoutersThatCannotWorkTogetherAreRefusedAloud(t *testing.T) {
	f := func(reason string, tweak func(*mesh.Config)) {
		t.Helper()
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *simnet.Net) {
				r := group(t, n, 2, options{mesh: func(c *mesh.Config) { c.ID = func() string { return "one" } }})
				start(t, options{n: n, host: "x", join: []string{"r0"}, mesh: tweak})
				time.Sleep(10 * time.Second)
				if r[0].member("x").Stream {
					t.Error("a stream exists")
				}
				if !strings.Contains(r[0].log.String(), `"reason":"`+reason+`"`) {
					t.Error("no warning")
				}
				if got := gathered(t, r[0], "hearsay_mesh_refused_total", reason); got == 0 {
					t.Error("not counted")
				}
			})
		})
	}
	f("cluster_id", func(c *mesh.Config) { c.ID = func() string { return "another" } })
	f("scheme", func(c *mesh.Config) { c.Scheme = "other" })
}

// gathered is a counter's value for one label's value.
func gathered(t *testing.T, r *router, name, label string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("no %s of %s", name, label)
	return 0
}
