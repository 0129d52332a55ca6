package gossip

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

func (r *router) setSecrets(secrets ...[]byte) {
	r.t.Helper()
	for _, err := range []error{r.mesh.SetSecrets(secrets), r.gossip.SetSecrets(secrets)} {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// Keys are changed on four routers, one after another, under traffic: rows go on at
// their pace, no stream breaks, and who missed it is refused.
func TestKeysAreChangedWithoutAGap(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		fresh := bytes.Repeat([]byte("new key."), 4)
		r := group(t, n, 4, options{})
		time.Sleep(5 * time.Second)
		began := time.Now()
		var worst time.Duration
		// traffic changes one row at a time and sees when it is everywhere.
		traffic := func(steps int) {
			for k := range steps {
				from := r[k%4]
				ticket := from.begin(k%replicas, 10)
				worst = max(worst, within(t, 100*time.Millisecond, "row everywhere", func() bool {
					for _, x := range r {
						if x != from && x.sees(k%replicas) != 1 {
							return false
						}
					}
					return true
				}))
				ticket.End()
				within(t, 100*time.Millisecond, "end everywhere", func() bool {
					return !slices.ContainsFunc(r, func(x *router) bool { return x.sees(k%replicas) != 0 })
				})
			}
		}
		for _, keys := range [][][]byte{{secret, fresh}, {fresh, secret}, {fresh}} {
			for _, x := range r {
				traffic(20)
				x.setSecrets(keys...)
			}
			traffic(200)
		}
		traffic(1000)
		if worst > 10*time.Millisecond+4*time.Millisecond { // a batch, a link, two steps of looking
			t.Errorf("a row took %v", worst)
		}
		if !whole(r...)() {
			t.Error("the group suffered")
		}
		for _, x := range r {
			for _, p := range x.mesh.Status() {
				if !p.Up || p.Since.After(began) || p.Key != mesh.KeyID(secret) {
					t.Errorf("%s: stream to %s: %+v", x.id, p.ID, p)
				}
			}
			if got := testutil.ToFloat64(x.gossip.metrics.refused.WithLabelValues("secret")); got != 0 {
				t.Errorf("%s refused %v datagrams", x.id, got)
			}
		}
		// A stream that breaks comes back with the new key.
		n.Cut("r0", "r1")
		time.Sleep(5 * time.Second)
		n.HealAll()
		within(t, 5*time.Second, "healed", whole(r...))
		for _, p := range r[0].mesh.Status() {
			if want := mesh.KeyID(fresh); p.ID == "r1" && p.Key != want {
				t.Errorf("opened with key %s, want %s", p.Key, want)
			}
		}
		// Who still has the old key alone, and who is new with the new one.
		start(t, options{n: n, host: "late", join: []string{"r0", "r1"}})
		good := start(t, options{
			n: n, host: "good", join: []string{"r0"}, tweak: func(c *Config) { c.Secret = [][]byte{fresh} },
			mesh: func(c *mesh.Config) { c.Secret = [][]byte{fresh} },
		})
		within(t, 10*time.Second, "the new one is in", whole(append(slices.Clone(r), good)...))
		time.Sleep(5 * time.Second)
		if m := r[0].member("late"); m.State == Alive || m.Stream {
			t.Errorf("a router with the old key is a member: %+v", m)
		}
		if !strings.Contains(r[0].log.String()+r[1].log.String(), `"reason":"secret"`) {
			t.Error("no warning")
		}
		if got := testutil.ToFloat64(r[0].gossip.metrics.refused.WithLabelValues("secret")); got == 0 {
			t.Error("not counted")
		}
	})
}

func TestSecretsThatCannotBeSet(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := start(t, options{n: n, host: "r0"})
		many := make([][]byte, 9)
		for i := range many {
			many[i] = bytes.Repeat([]byte{byte(i)}, 32)
		}
		if r.gossip.SetSecrets(nil) == nil || r.mesh.SetSecrets(nil) == nil {
			t.Error("keys were abolished")
		}
		if r.gossip.SetSecrets(many) == nil || r.mesh.SetSecrets(many) == nil {
			t.Error("nine keys were taken")
		}
		if r.mesh.SetSecrets([][]byte{[]byte("short")}) == nil {
			t.Error("a short key was taken")
		}
		clear := func(c *Config) { c.Secret = nil }
		open := start(t, options{n: n, host: "r1", tweak: clear, mesh: func(c *mesh.Config) { c.Secret = nil }})
		if open.gossip.SetSecrets([][]byte{secret}) == nil || open.mesh.SetSecrets([][]byte{secret}) == nil {
			t.Error("keys were introduced")
		}
	})
}

// Whatever ring there was, afterwards it holds the keys wanted, the first in use,
// and nobody who reads the slice from before sees it change.
func TestMembershipRing(t *testing.T) {
	key := func(c rune) []byte { return bytes.Repeat([]byte{byte(c)}, 32) }
	ring := func(names string) [][]byte {
		var keys [][]byte
		for _, c := range names {
			keys = append(keys, key(c))
		}
		return keys
	}
	names := []string{"a", "ab", "ba", "b", "abc", "cb", "bn", "n", "nm", "can", "nc"}
	for _, from := range names {
		for _, to := range names {
			have := ring(from)
			x, err := memberlist.NewKeyring(have, have[0])
			if err != nil {
				t.Fatal(err)
			}
			seen := x.GetKeys()
			before := fmt.Sprintf("%s", seen)
			if err := install(x, ring(to)); err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			got := x.GetKeys()
			if !bytes.Equal(got[0], key(rune(to[0]))) || len(got) != len(to) {
				t.Errorf("%s to %s: %s", from, to, got)
			}
			for _, c := range to {
				if !slices.ContainsFunc(got, func(k []byte) bool { return bytes.Equal(k, key(c)) }) {
					t.Errorf("%s to %s: lacks %c", from, to, c)
				}
			}
			if after := fmt.Sprintf("%s", seen); after != before {
				t.Errorf("%s to %s: a reader saw %s become %s", from, to, before, after)
			}
		}
	}
}
