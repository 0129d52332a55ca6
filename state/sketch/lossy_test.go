package sketch

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Of two routers' news one router gets all, and another what a wire leaves of it
// that loses, repeats and reorders. A snapshot of the former and what comes after it
// make both equal. What a snapshot can't tell is that a placement ended: one whose
// end was lost goes when it is too old to be in flight.
func TestASnapshotRepairsWhatAWireLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 31))
		loss := rapid.IntRange(1, 99).Draw(t, "loss")
		c := newCluster(4, Bounds{})
		all, some := c.rs[2], c.rs[3]
		run := func(steps int, lossy bool) {
			for range steps {
				c.w.at(c.w.now.Sub(epoch) + 100*time.Millisecond)
				c.step(rng, c.rs[rng.IntN(2)])
				for _, r := range c.rs[:2] {
					for _, op := range drain(r.x, &r.cursor) {
						all.x.Apply(op, c.w.now)
						if !lossy || rng.IntN(100) >= loss {
							some.inbox = append(some.inbox, op)
						}
					}
				}
				c.deliver(rng, !lossy)
			}
		}
		run(rapid.IntRange(1, 80).Draw(t, "before"), true)
		c.deliver(rng, true)
		all.x.Snapshot(func(op Op) bool {
			some.x.Apply(op, c.w.now)
			return true
		})
		check(t, some.x)
		// Whatever is resident at the one is at the other, at once.
		now := c.w.now
		all.x.table.each(func(e *entry) {
			id := (*all.x.bySlot.Load())[e.slot].id
			r, o := some.x.find(id), all.x.find(id)
			if r == nil {
				t.Fatalf("%s is not known", id)
			}
			if got := r.x.table.get(e.hash, e.slot); o.live(e) && (got == nil || !r.live(got)) {
				t.Fatalf("%s: mark %x is not live", id, e.hash)
			}
		})
		// What comes then comes in full, and all ends.
		run(rapid.IntRange(0, 40).Draw(t, "after"), false)
		for _, r := range c.rs[:2] {
			for _, p := range r.open {
				p.End(c.w.now)
			}
			for _, op := range drain(r.x, &r.cursor) {
				all.x.Apply(op, c.w.now)
				some.x.Apply(op, c.w.now)
			}
		}
		c.deliver(rng, true)
		// Taken for lost after an hour, and for gone an hour later.
		for hours := range 2 {
			c.w.at(now.Sub(epoch) + 2*time.Duration(hours+1)*time.Hour)
			all.x.Sweep(c.w.now)
			some.x.Sweep(c.w.now)
		}
		check(t, some.x)
		c.equal(t, []*router{all, some})
	})
}
