package autoscale

import (
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// startsKept is how many of the last starts count.
	startsKept = 16
	leastStart = time.Second
)

// startUp is how long a target's replicas take from the decision until they serve: three
// quarters of the last starts took no longer, by the committed decisions, which every
// leader has. usual where none is known; most bounds it.
func startUp(f *state.Facts, k state.TargetKey, usual, most time.Duration) time.Duration {
	var took []time.Duration
	for i := len(f.Decisions) - 1; i >= 0 && len(took) < startsKept; i-- {
		d := &f.Decisions[i]
		if d.Pool != k.Pool || d.Role != k.Role || d.To <= d.From || d.Outcome != state.OutcomeDone {
			continue
		}
		// Both are wall clocks, of one leader or two: odd ones are left out.
		if t := d.DoneAt.Sub(d.At); !d.At.IsZero() && !d.DoneAt.IsZero() && t >= leastStart && t <= 2*most {
			took = append(took, t)
		}
	}
	if len(took) == 0 {
		return min(usual, most)
	}
	slices.Sort(took)
	return min(took[(3*len(took)+3)/4-1], most)
}
