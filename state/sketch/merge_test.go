package sketch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"pgregory.net/rapid"
)

// picture is everything an index knows that must become equal, as text. Held
// counts and links of marks without a use are left out when settled is false.
func picture(x *Index) string {
	var lines []string
	for _, r := range *x.bySlot.Load() {
		if r == nil {
			continue
		}
		r.mu.Lock()
		n := 0
		x.table.each(func(e *entry) {
			if e.slot != r.slot {
				return
			}
			n++
			var up uint64
			if p := r.up(e); p != nil {
				up = p.hash
			}
			s := e.state.Load()
			lines = append(lines, fmt.Sprintf("%s mark %016x under %016x used %d began %d est %d scale %d known %v answer %v held %d", r.id,
				e.hash, up, e.use.Load(), e.began, e.est, e.scale, e.known, e.answer(), pinsOf(s)+pendOf(s)))
		})
		if n > 0 || len(r.flights) > 0 {
			lines = append(lines, fmt.Sprintf("%s dead %d flights %d", r.id, r.dead, len(r.flights)))
		}
		if l := r.learn.now; l.count > 0 {
			lines = append(lines, fmt.Sprintf("%s learned %.6g %.6g %.6g %d", r.id, l.tokens, l.trust, l.rho, l.count))
		}
		r.mu.Unlock()
	}
	sort.Strings(lines)
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	return b.String()
}

// router is one of several indexes in a delivery test.
type router struct {
	x      *Index
	cursor uint64
	inbox  []Op // of the others, not yet delivered
	open   []*Placement
}

// cluster runs random requests at several routers and delivers their ops late,
// repeatedly and out of order.
type cluster struct {
	w  *world
	rs []*router
}

func newCluster(n int, b Bounds) *cluster {
	c := &cluster{w: newWorld()}
	for i := range n {
		c.rs = append(c.rs, &router{x: c.w.index(state.BootID(i+1), b)})
	}
	return c
}

// spread puts fresh ops of each journal into every other's inbox; with relay it
// spreads applied ones as well.
func (c *cluster) spread(relay bool) {
	for _, r := range c.rs {
		for _, op := range drain(r.x, &r.cursor) {
			if op.Boot != r.x.clock.Boot() && !relay {
				continue
			}
			for _, o := range c.rs {
				if o != r {
					o.inbox = append(o.inbox, op)
				}
			}
		}
	}
}

// deliver applies a random part of the inboxes in random order, keeping some ops
// to come again.
func (c *cluster) deliver(rng *rand.Rand, all bool) {
	for _, r := range c.rs {
		rng.Shuffle(len(r.inbox), func(i, j int) { r.inbox[i], r.inbox[j] = r.inbox[j], r.inbox[i] })
		n := len(r.inbox)
		if !all {
			n = rng.IntN(n + 1)
		}
		var again []Op
		for _, op := range r.inbox[:n] {
			r.x.Apply(op, c.w.now)
			if rng.IntN(4) == 0 {
				again = append(again, op)
			}
		}
		r.inbox = append(r.inbox[n:], again...)
	}
}

// settle delivers until nothing is news.
func (c *cluster) settle(rng *rand.Rand) {
	for range 8 {
		c.spread(true)
		c.deliver(rng, true)
	}
}

func (c *cluster) step(rng *rand.Rand, r *router) {
	ids := []state.ReplicaID{"a", "b"}
	switch k := rng.IntN(10); {
	case k < 4 || len(r.open) == 0:
		m, d := prompt(rng.IntN(3), 1+rng.IntN(4), rng.IntN(4), rng.IntN(5))
		r.open = append(r.open, r.x.Place(ids[rng.IntN(2)], m, d, c.w.now))
	default:
		i := rng.IntN(len(r.open))
		p := r.open[i]
		switch {
		case k < 6:
			p.First(c.w.now)
			return
		case k == 6:
			p.Withdraw(c.w.now)
		case k == 7:
			p.First(c.w.now)
			n := len(p.marks)
			p.Evidence(rng.IntN(n*64), n*64+rng.IntN(40)-20, rng.IntN(n*64))
		default:
			m, d := prompt(rng.IntN(3), 1+rng.IntN(4), rng.IntN(4), rng.IntN(5))
			p.Answer(m, d)
		}
		p.End(c.w.now)
		r.open = append(r.open[:i], r.open[i+1:]...)
	}
}

// equal fails unless all routers know the same.
func (c *cluster) equal(t rapid.TB, rs []*router) {
	t.Helper()
	lines := func(x *Index) map[string]bool {
		m := map[string]bool{}
		for l := range strings.Lines(picture(x)) {
			m[l] = true
		}
		return m
	}
	want := lines(rs[0].x)
	for i, r := range rs[1:] {
		got := lines(r.x)
		var diff strings.Builder
		for l := range want {
			if !got[l] {
				fmt.Fprintf(&diff, "router 1 only: %s", l)
			}
			delete(got, l)
		}
		for l := range got {
			fmt.Fprintf(&diff, "router %d only: %s", i+2, l)
		}
		if diff.Len() > 0 {
			t.Fatalf("routers differ:\n%s", diff.String())
		}
		want = lines(rs[0].x)
	}
}

func TestDeliveryInAnyOrderConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		relay := rapid.Bool().Draw(t, "relay")
		c := newCluster(3, Bounds{UnknownCapacity: 1 << 20})
		for n := range rapid.IntRange(1, 120).Draw(t, "steps") {
			c.w.at(time.Duration(n+1) * 100 * time.Millisecond)
			c.step(rng, c.rs[rng.IntN(3)])
			c.spread(relay)
			if rng.IntN(3) == 0 {
				c.deliver(rng, false)
			}
		}
		c.settle(rng)
		c.equal(t, c.rs)
		// A router dies; the others learn it at one moment.
		c.w.at(time.Minute)
		for _, r := range c.rs[:2] {
			r.x.DropBoot(3, c.w.now)
		}
		c.equal(t, c.rs[:2])
		for _, r := range c.rs[:2] {
			for _, p := range r.open {
				p.End(c.w.now)
			}
		}
		c.settle(rng)
		c.equal(t, c.rs[:2])
		for i, r := range c.rs[:2] {
			check(t, r.x)
			for _, id := range []state.ReplicaID{"a", "b"} {
				if n := r.x.Stats(id).Placements; n != 0 {
					t.Fatalf("router %d keeps %d placements", i+1, n)
				}
			}
		}
	})
}

func TestNewcomerLearnsAllFromASnapshot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		c := newCluster(2, Bounds{})
		for n := range rapid.IntRange(1, 80).Draw(t, "steps") {
			c.w.at(time.Duration(n+1) * 100 * time.Millisecond)
			c.step(rng, c.rs[rng.IntN(2)])
			c.spread(false)
			c.deliver(rng, false)
		}
		c.settle(rng)
		c.w.at(time.Hour)
		// The newcomer has heard from the sender only.
		clock := state.NewClock(77, epoch.Add(time.Minute))
		clock.Observe(1, 0, epoch)
		late := New(Config{Clock: clock, Slots: c.w.slot, Now: func() time.Time { return c.w.now }})
		for range 2 {
			c.rs[0].x.Snapshot(func(op Op) bool {
				late.Apply(op, c.w.now)
				return true
			})
		}
		check(t, late)
		// Uses lie a minute earlier on the newcomer's clock.
		for _, r := range *late.bySlot.Load() {
			if r == nil {
				continue
			}
			o := c.rs[0].x.find(r.id)
			if o.entries != r.entries {
				t.Fatalf("%s: %d marks, the sender has %d\n%s\n%s", r.id, r.entries, o.entries, picture(late), picture(c.rs[0].x))
			}
			late.table.each(func(got *entry) {
				if got.slot != r.slot {
					return
				}
				e := c.rs[0].x.table.get(got.hash, r.slot)
				if e == nil {
					t.Fatalf("mark %x was never sent", got.hash)
				}
				want := e.use.Load()
				if want != never {
					want -= int64(time.Minute)
				}
				s, ws := held(got.state.Load()), held(e.state.Load())
				alive, wasAlive := r.live(got), o.live(e)
				if got.use.Load() != want || s != ws || alive != wasAlive || got.answer() != e.answer() || got.tokens() != e.tokens() || got.known != e.known {
					t.Fatalf("mark %x: live %v want %v, answer %v want %v, known %v want %v, use %d want %d, held %v want %v, tokens %d want %d", got.hash, alive, wasAlive, got.answer(), e.answer(), got.known, e.known, got.use.Load(), want, s, ws, got.tokens(), e.tokens())
				}
			})
		}
	})
}

func TestClearReachesAllAndLateOpsOfBeforeStayDead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		c := newCluster(3, Bounds{})
		run := func(from time.Duration, steps int) {
			for n := range steps {
				c.w.at(from + time.Duration(n)*100*time.Millisecond)
				m, d := prompt(rng.IntN(3), 1+rng.IntN(4), rng.IntN(4), rng.IntN(5))
				serve(c.rs[rng.IntN(3)].x, "a", m, d, c.w.now)
				c.spread(false)
				c.deliver(rng, false)
			}
		}
		run(time.Second, 30)
		stamp := c.rs[1].x.clock.Stamp(c.w.at(10 * time.Second))
		c.rs[1].x.Clear("a", stamp)
		if n := c.rs[1].x.Stats("a").Entries; n != 0 {
			t.Fatalf("%d marks outlive the clearing", n)
		}
		// The clearing itself is told at once, all else stays late.
		for _, r := range []int{0, 2} {
			c.rs[r].x.Clear("a", stamp)
		}
		run(20*time.Second, rapid.IntRange(0, 20).Draw(t, "after"))
		c.settle(rng)
		c.equal(t, c.rs)
		for _, r := range c.rs {
			check(t, r.x)
			r.x.table.each(func(e *entry) {
				if e.use.Load() <= int64(10*time.Second) {
					t.Fatalf("mark %x of before is back", e.hash)
				}
			})
		}
	})
}

func TestRepeatedAndOlderOpsAreNotNews(t *testing.T) {
	w := newWorld()
	x, y := w.index(1, Bounds{}), w.index(2, Bounds{})
	m, d := prompt(1, 3, 1, 3)
	serve(x, "a", m, d, w.at(time.Second))
	var cursor uint64
	ops := drain(x, &cursor)
	for _, op := range ops {
		if !y.Apply(op, w.now) {
			t.Errorf("%v is news", op.Kind)
		}
		if y.Apply(op, w.now) {
			t.Errorf("%v again is no news", op.Kind)
		}
		if x.Apply(op, w.now) {
			t.Errorf("own %v is no news", op.Kind)
		}
	}
	touch := Op{Kind: OpTouch, Replica: "a", Boot: 3, Stamp: state.Stamp{Boot: 3, At: 500 * time.Millisecond}, Mark: m[5].Hash}
	if y.Apply(touch, w.now) {
		t.Error("an older use is no news")
	}
	touch.Stamp.At = 1500 * time.Millisecond
	if y.Apply(touch, w.at(2*time.Second)); w.look(y, "a", m).Live != 6 {
		t.Error("a touch keeps what was there")
	}
	if tot := y.Totals(); tot.OpsRepeated != uint64(len(ops)) || tot.OpsNews != uint64(len(ops)) {
		t.Errorf("totals %+v", tot)
	}
}

func TestAnOpOfAnUnheardOriginGrowsNoYoungerByRepeating(t *testing.T) {
	w := newWorld()
	y := w.index(2, Bounds{})
	m, _ := prompt(1, 1, 1, 0)
	op := Op{Kind: OpTouch, Replica: "a", Boot: 99, Seq: 5, Stamp: state.Stamp{Boot: 99, At: time.Hour}, Mark: m[0].Hash}
	if !y.Apply(op, w.at(time.Second)) {
		t.Fatal("the first time it counts as of now")
	}
	if y.Apply(op, w.at(time.Minute)) {
		t.Fatal("the second time it is known")
	}
	op.Seq = 0
	if y.Apply(op, w.at(time.Minute)) || y.Totals().OpsUnplaced != 1 {
		t.Fatal("without a sequence it can't be placed")
	}
	if use := y.table.get(m[0].Hash, 0).use.Load(); use != int64(time.Second) {
		t.Fatalf("used at %v", time.Duration(use))
	}
}
