package sketch

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

// Everything that three routers tell, evidence included, and the death of one of
// them: grouped, ordered and repeated at will it comes to the same.
func TestMergingIsAssociativeCommutativeAndIdempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 11))
		c := newCluster(3, Bounds{})
		for n := range rapid.IntRange(3, 40).Draw(t, "steps") {
			c.w.at(time.Duration(n+1) * 100 * time.Millisecond)
			c.step(rng, c.rs[rng.IntN(3)])
		}
		var told [3][]Op
		for i, r := range c.rs {
			told[i] = drain(r.x, &r.cursor)
		}
		death := at(time.Duration(rng.IntN(4000)) * time.Millisecond)
		c.w.at(time.Minute)
		merge := func(boot state.BootID, repeat bool, groups ...int) *router {
			y := c.w.index(boot, Bounds{})
			for _, g := range groups {
				ops := told[g]
				if repeat {
					ops = append(append([]Op(nil), ops...), ops...)
					rng.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
				}
				for _, op := range ops {
					if repeat && rng.IntN(2) == 0 { // relayed by one whose clock we know
						op, _ = y.Restamp(op, c.w.now)
					}
					y.Apply(op, c.w.now)
				}
				if g == 2 {
					y.DropBoot(3, death)
				}
			}
			check(t, y)
			return &router{x: y}
		}
		c.equal(t, []*router{
			merge(4, false, 0, 1, 2), merge(5, false, 2, 1, 0), merge(6, true, 1, 2, 0), merge(7, true, 2, 0, 1), merge(8, true, 0, 2, 1, 2, 0),
		})
	})
}
