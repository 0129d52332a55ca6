package gossip

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hearsay-llm/hearsay/state/wire"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Why a join failed says nothing any more once the peer is a member, on whose ever
// doing: neither while it is one, nor when it is gone again.
func TestFailedJoinIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		n.Host("b")
		once := func(c *Config) { c.RejoinEvery = time.Hour }
		a := start(t, options{n: n, host: "a", join: []string{"b"}, tweak: once})
		within(t, 5*time.Second, "b can't be joined", func() bool { return len(a.gossip.JoinFaults()) == 1 })
		b := start(t, options{n: n, host: "b", join: []string{"a"}})
		within(t, 5*time.Second, "one group", whole(a, b))
		if l := a.gossip.JoinFaults(); len(l) != 0 {
			t.Errorf("still can't join %+v", l)
		}
		if log := a.log.String(); !strings.Contains(log, `"peer":"b","name":"b"`) {
			t.Errorf("the log names no peer:\n%s", log)
		}
		b.kill()
		within(t, 20*time.Second, "b is gone", func() bool { return a.member("b").State != Alive })
		if m := a.member("b"); m.JoinErr != "" || m.Answers {
			t.Errorf("an old cause is told: %+v", m)
		}
	})
}

// A name with an address where nobody is, as localhost has one of each family: it
// was joined at the other one, so nothing is wrong. Where nobody was reached, or
// somebody answers who can't be joined, all is told.
func TestNameWithTwoAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		here, gone := n.Host("b").IP().String(), n.Host("nobody").IP().String()
		stranger := n.Host("s").IP().String()
		both := func(c *Config) {
			c.Join = []string{"both:7946"}
			c.Resolve = func(context.Context, string) ([]string, error) { return []string{gone, here, stranger}, nil }
		}
		a := start(t, options{n: n, host: "a", tweak: both})
		within(t, 5*time.Second, "nobody is there", func() bool { return len(a.gossip.JoinFaults()) == 3 })
		b := start(t, options{n: n, host: "b"})
		within(t, 5*time.Second, "one group", whole(a, b))
		if l := a.gossip.JoinFaults(); len(l) != 0 {
			t.Errorf("can't join %+v", l)
		}
		start(t, options{n: n, host: "s", tweak: func(c *Config) { c.Secret = [][]byte{[]byte("another secret of some length...")} }})
		within(t, 5*time.Second, "the stranger is told of", func() bool {
			l := a.gossip.JoinFaults()
			return len(l) == 1 && l[0] == JoinFault{stranger + ":7946", SecretsDiffer}
		})
	})
}

// An address that is no member's own, a balancer's, is joined again and again, and
// told of once.
func TestJoinThroughABalancer(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		vip := n.Host("vip").IP().String()
		b := start(t, options{n: n, host: "b"})
		a := start(t, options{n: n, host: "a", join: []string{"vip"}, tweak: func(c *Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				return dial(ctx, strings.Replace(addr, vip, "b", 1))
			}
		}})
		within(t, 5*time.Second, "one group", whole(a, b))
		time.Sleep(time.Minute)
		if c := strings.Count(a.log.String(), `"joined"`); c != 1 {
			t.Errorf("it says %d times that it joined", c)
		}
	})
}

// Where something else listens that takes connections and waits, as an HTTP server does,
// it is said that this is no router's cluster address.
func TestJoinAtAnotherKindOfServer(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		ln, err := n.Host("web").Listen("tcp", ":7946")
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				serving.Go(func() {
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				})
			}
		})
		t.Cleanup(func() { _ = ln.Close(); serving.Wait() })
		a := start(t, options{n: n, host: "a", join: []string{"web"}})
		within(t, 10*time.Second, "web is told of", func() bool {
			l := a.gossip.JoinFaults()
			return len(l) == 1 && strings.Contains(l[0].Why, "no router's cluster address (usually port 7946)")
		})
	})
}

// On all interfaces, what is advertised is an address that others can reach, and
// without one the key that names it.
func TestAdvertisedAddress(t *testing.T) {
	f := func(want string, list ...string) {
		t.Helper()
		var addrs []net.Addr
		for _, s := range list {
			ip, n, err := net.ParseCIDR(s)
			if err != nil {
				t.Fatal(err)
			}
			addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		got, err := ownAddress(addrs)
		if err == nil && got.String() != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("of %v: %v, %v, want %s", list, got, err, want)
		}
	}
	f("set listen.advertise (HEARSAY_LISTEN_ADVERTISE)", "127.0.0.1/8", "::1/128", "fe80::1/64")
	f("203.0.113.7", "127.0.0.1/8", "203.0.113.7/24", "2001:db8::7/64")
	f("10.0.0.7", "127.0.0.1/8", "203.0.113.7/24", "10.0.0.7/8", "192.168.0.7/24")
}

// What is not let in is told with what it said of itself, by the reason; of many,
// a bounded number.
func TestRefusedRouters(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		a := start(t, options{n: n, host: "a"})
		d := delegate{a.gossip.roster}
		node := func(id string, meta []byte) *memberlist.Node {
			return &memberlist.Node{Name: id, Addr: net.IPv4(10, 0, 0, 9), Port: 7946, Meta: meta}
		}
		f := func(id, reason string, meta []byte, version uint64) {
			t.Helper()
			if err := d.NotifyAlive(node(id, meta)); (err == nil) != (reason == "") {
				t.Errorf("%s: %v", id, err)
			}
			got := Refused{}
			for _, r := range a.gossip.Refused() {
				if string(r.ID) == id {
					got = r
				}
			}
			if got.Reason != reason || got.Version != version {
				t.Errorf("%s: %+v, want %s", id, got, reason)
			}
		}
		meta := func(m wire.Meta) []byte { return wire.AppendMeta(nil, &m) }
		f("of the same release", "", meta(wire.Meta{Boot: 1, MinVersion: wire.MinVersion, Version: wire.Version, Scheme: "1"}), 0)
		f("of a later release", RefusedVersion, meta(wire.Meta{Boot: 1, MinVersion: wire.Version + 1, Version: wire.Version + 2, Scheme: "1"}), wire.Version+2)
		f("noise", RefusedMalformed, []byte{0xff}, 0)
		for range 11 { // a router that has moved is at two addresses for a few seconds only
			if l := a.gossip.Refused(); len(l) > 2 {
				t.Errorf("refused at once: %+v", l)
			}
			d.NotifyConflict(node("copied", nil), node("copied", nil))
			f("of a later release", RefusedVersion, meta(wire.Meta{Boot: 1, MinVersion: wire.Version + 1, Version: wire.Version + 2, Scheme: "1"}), wire.Version+2)
			f("noise", RefusedMalformed, []byte{0xff}, 0)
			time.Sleep(time.Second)
		}
		if l := a.gossip.Refused(); len(l) != 3 || l[0].ID != "copied" || l[0].Reason != RefusedTwice {
			t.Errorf("refused %+v", l)
		}
		for i := range 2 * maxRefused {
			_ = d.NotifyAlive(node(strings.Repeat("x", i+1), []byte{0xff}))
		}
		if l := a.gossip.Refused(); len(l) != maxRefused {
			t.Errorf("%d are remembered", len(l))
		}
		time.Sleep(keepRefused + 2*time.Second)
		if l := a.gossip.Refused(); len(l) != 0 || len(a.gossip.roster.refused) != 0 {
			t.Errorf("still refused: %+v", l)
		}
	})
}
