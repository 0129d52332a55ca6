package gossip

import (
	"maps"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// A router of a copied data directory runs for a while and goes: what the router
// whose id it had says counts again within seconds, at all that took the copy for
// its next boot, whichever way the copy went and whomever it had joined.
func TestCopyOfARouterComesAndGoes(t *testing.T) {
	f := func(what string, join []string, end func(*router)) {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *simnet.Net) {
				r := group(t, n, 3, options{})
				for range 5 {
					r[1].begin(1, 100)
				}
				counted := func() bool { return r[0].sees(1) == 5 && r[2].sees(1) == 5 }
				within(t, 5*time.Second, "rows at the others", counted)
				copied := start(t, options{n: n, host: "f", id: "r1", join: join})
				taken := map[string]bool{}
				within(t, 20*time.Second, "both take the copy for it", func() bool {
					for _, x := range []*router{r[0], r[2]} {
						x.gossip.mu.Lock()
						taken[string(x.id)] = taken[string(x.id)] || x.gossip.heard["r1"].boot == copied.boot
						x.gossip.mu.Unlock()
					}
					return taken["r0"] && taken["r2"]
				})
				within(t, 20*time.Second, "both tell of it", func() bool {
					for _, x := range []*router{r[0], r[2]} {
						l := x.gossip.Refused()
						if len(l) != 1 || l[0].ID != "r1" || l[0].Reason != RefusedTwice || l[0].Addr != copied.gossip.roster.self() {
							return false
						}
					}
					return true
				})
				end(copied)
				took := within(t, 10*time.Second, "its rows count again", counted)
				t.Logf("after %v", took)
				time.Sleep(10 * time.Second)
				if !counted() || !whole(r...)() {
					t.Error("not for long")
				}
				r[1].begin(1, 100)
				within(t, 100*time.Millisecond, "and the next one", func() bool { return r[0].sees(1) == 6 && r[2].sees(1) == 6 })
			})
		})
	}
	f("it joins all and leaves", []string{"r0", "r1", "r2"}, (*router).stop)
	f("it joins all and dies", []string{"r0", "r1", "r2"}, (*router).kill)
	f("it joins another and leaves", []string{"r0"}, (*router).stop)
	f("it joins another and dies", []string{"r0"}, (*router).kill)
}

// A router that was started without its disk is another one at the same address: the one
// before it is not looked for there.
func TestAnotherRouterInTheDeadOnesPlace(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 4, options{})
		r[1].kill()
		r[2].kill()
		r[1].host.Restart()
		r[1] = start(t, options{n: n, host: "r1", id: "fresh", join: []string{"r0"}})
		within(t, 10*time.Second, "all know each other", whole(r[0], r[1], r[3]))
		within(t, 20*time.Second, "the two are dead", func() bool {
			states := map[state.RouterID]MemberState{}
			for _, m := range r[0].gossip.Members() {
				states[m.ID] = m.State
			}
			return states["r1"] == Dead && states["r2"] == Dead
		})
		time.Sleep(time.Second)
		r[0].gossip.mu.Lock()
		set := maps.Clone(r[0].gossip.out.set)
		r[0].gossip.mu.Unlock()
		if set["r1"] != "" || set["fresh"] == "" || set["r2"] == "" || set["r3"] == "" {
			t.Errorf("looks for %v", set)
		}
	})
}

// What a router said before it was restarted, over its own stream or passed on by
// another router, does not bring its old boot back.
func TestRestartedRoutersOldBootStaysOver(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		old := r[1].boot
		r[1].begin(1, 100)
		within(t, time.Second, "a row at the others", func() bool { return r[0].sees(1) == 1 && r[2].sees(1) == 1 })
		r[1].kill()
		r[1].host.Restart()
		r[1] = start(t, options{n: n, host: "r1", join: []string{"r0"}, boots: 1})
		within(t, 10*time.Second, "back", whole(r...))
		r[1].begin(1, 100)
		r[1].begin(1, 100)
		within(t, time.Second, "its rows at the others", func() bool { return r[0].sees(1) == 2 && r[2].sees(1) == 2 })
		late := wire.AppendRows(nil, &wire.Rows{Sent: time.Minute, Rows: state.Rows{
			Router: "r1", Boot: old, Seq: 1 << 40, Full: true,
			Rows: []state.Row{{Replica: replica(1), Load: state.Load{InFlight: 9}}},
		}})
		for _, from := range []struct {
			id   state.RouterID
			boot state.BootID
		}{{"r1", old}, {"r2", r[2].boot}, {"", 0}} {
			r[0].gossip.frame(wire.KindRows, from.id, from.boot, late)
			for range 100 {
				time.Sleep(time.Millisecond)
				if got := r[0].sees(1); got != 2 {
					t.Fatalf("from %q of boot %s: counts %d", from.id, from.boot, got)
				}
			}
		}
	})
}
