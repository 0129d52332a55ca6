package gateway

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

func key(name, secret string, parallel int) Key {
	return Key{Name: name, Digest: DigestOf([]byte(secret)), Tenant: "t-" + name, MaxParallel: parallel}
}

func TestKeysAreFoundByWhatClientsSend(t *testing.T) {
	g := New(Config{})
	if !g.Open() || g.HasKeys() || g.Requires() || g.Find([]byte("a")) != nil {
		t.Error("a gate without keys looks at them")
	}
	g.Set(Config{RequireKey: true, Keys: []Key{key("b", "secret b", 0), key("a", "secret a", 0)}})
	if g.Open() || !g.HasKeys() || !g.Requires() {
		t.Error("a gate with keys is open")
	}
	for secret, want := range map[string]string{
		"secret a": "a", "secret b": "b", "secret c": "", "": "", "secret a ": "", "SECRET A": "",
		g.Clients()[0].Digest.String(): "",
	} {
		got := ""
		if c := g.Find([]byte(secret)); c != nil {
			got = c.Name
		}
		if got != want {
			t.Errorf("%q finds %q, want %q", secret, got, want)
		}
	}
	if l := g.Clients(); len(l) != 2 || l[0].Name != "a" || !g.HasTenant("t-b") || g.HasTenant("b") {
		t.Errorf("clients %v", l)
	}
	secret := []byte("secret a")
	if n := testing.AllocsPerRun(100, func() {
		c := g.Find(secret)
		p, _ := c.Enter()
		p.Leave()
	}); n != 0 {
		t.Errorf("a look-up takes %v allocations", n)
	}
}

// The count of a key under load never passes its limit and comes back to nothing, also
// while tables are replaced; a place given back twice counts once.
func TestPlacesAreGivenBackOnce(t *testing.T) {
	const limit = 4
	cfg := Config{Keys: []Key{key("a", "s", limit)}}
	g := New(cfg)
	var in, most, entered, refused atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				p, ok := g.Find([]byte("s")).Enter()
				if !ok {
					refused.Add(1)
					p.Leave()
					continue
				}
				n := in.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				entered.Add(1)
				in.Add(-1)
				p.Leave()
				p.Leave()
			}
		})
	}
	wg.Go(func() {
		for range 200 {
			g.Set(cfg)
		}
	})
	wg.Wait()
	if most.Load() > limit || entered.Load() == 0 || g.Clients()[0].Running() != 0 {
		t.Errorf("%d at a time, %d in, %d refused, %d left", most.Load(), entered.Load(), refused.Load(), g.Clients()[0].Running())
	}
}

func TestLimitsOfANewTable(t *testing.T) {
	g := New(Config{Keys: []Key{key("a", "s", 1)}})
	old := g.Find([]byte("s"))
	one, _ := old.Enter()
	if _, ok := old.Enter(); ok {
		t.Error("two of one")
	}
	g.Set(Config{Keys: []Key{key("a", "other", 2), key("b", "s", 0)}})
	now := g.Find([]byte("other"))
	two, ok := now.Enter()
	if !ok || now.Running() != 2 {
		t.Errorf("%v, %d running", ok, now.Running())
	}
	if _, ok := now.Enter(); ok {
		t.Error("what ran before is not counted")
	}
	one.Leave()
	two.Leave()
	if n := now.Running(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestWhatNobodyMayClaim(t *testing.T) {
	var nobody *Client
	high, low := &Client{Key: Key{Cap: state.BandHigh, Tenant: "t", Weight: 3}}, &Client{Key: Key{Cap: state.BandLow}}
	f := func(c *Client, claim, want state.Band) {
		t.Helper()
		if got := c.Capped(claim); got != want {
			t.Errorf("%v claims %v and gets %v, want %v", c, claim, got, want)
		}
	}
	f(nobody, state.BandHigh, state.BandNormal)
	f(nobody, state.BandNormal, state.BandNormal)
	f(nobody, state.BandLow, state.BandLow)
	f(high, state.BandHigh, state.BandHigh)
	f(high, state.BandNormal, state.BandNormal)
	f(high, state.BandLow, state.BandLow)
	f(low, state.BandHigh, state.BandLow)
	f(low, state.BandNormal, state.BandLow)
	for c, want := range map[*Client]string{nobody: " 1", high: "t 3", low: " 1"} {
		tenant, weight := c.Share()
		if got := fmt.Sprint(tenant, " ", weight); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	p, ok := nobody.Enter()
	p.Leave()
	if !ok {
		t.Error("nobody needs a place")
	}
}

func TestDigestsAsText(t *testing.T) {
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	d, err := ParseDigest("sha256:" + abc)
	if err != nil || d != DigestOf([]byte("abc")) || d.String() != "sha256:ba7816bf..." {
		t.Errorf("%v %v", d, err)
	}
	for _, bad := range []string{"", abc, "sha256:", "sha256:" + abc[1:], "sha256:" + abc + "00", "sha256:" + abc[:62] + "zz", "md5:" + abc, "SHA256:" + abc, "sk-very-secret"} {
		d, err := ParseDigest(bad)
		if err == nil || d != (Digest{}) {
			t.Errorf("%q is a digest: %v", bad, d)
		} else if strings.Contains(err.Error(), "very-secret") || strings.Contains(err.Error(), abc[:16]) {
			t.Errorf("the error repeats what was found: %v", err)
		}
	}
}
