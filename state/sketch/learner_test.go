package sketch

import (
	"testing"

	"pgregory.net/rapid"
)

// A sample that comes in order is applied to what was learned, a late one has all
// folded anew: both end where folding all would.
func TestLearningInOrderIsAsFoldingAnew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l learner
		l.init(1 << 16)
		for n := range rapid.IntRange(1, 3*keptSamples).Draw(t, "samples") {
			at := int64(10 * n)
			if rapid.IntRange(0, 4).Draw(t, "late") == 0 {
				at -= int64(rapid.IntRange(0, 500).Draw(t, "by"))
			}
			l.learn(stamped{at: at, boot: 1, id: uint64(n), Sample: Sample{
				Verdict:  rapid.SampledFrom([]Verdict{Missing, Alive, Kept, Lost}).Draw(t, "verdict"),
				Distance: float32(rapid.IntRange(0, 1<<17).Draw(t, "distance")),
				Trust:    rapid.Float32Range(-1, 1).Draw(t, "trust"), Ratio: rapid.Float32Range(-1, 1).Draw(t, "ratio"),
			}})
			got, trusted := l.now, l.trust()
			l.fold()
			if got != l.now || trusted != l.trust() {
				t.Fatalf("after %d: %+v, folded anew %+v", n+1, got, l.now)
			}
		}
	})
}
