package proxy

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// prefilled is how many prompt tokens a replica has computed by its latest reading: those
// that its engine looked up, less those found in its cache.
type prefilled struct {
	at     time.Time // zero: the engine does not say
	tokens float64
}

func prefilledBy(v *state.View, id state.ReplicaID) prefilled {
	r := v.Replica(id)
	if r == nil || r.Reading.Queries < 0 || r.Reading.Hits < 0 {
		return prefilled{}
	}
	return prefilled{r.ReadingAt, r.Reading.Queries - r.Reading.Hits}
}

// mostBeside is the share of an answer's time up to which what prefills beside it took is
// told from what its tokens took. Past it little would be left but that estimate's error.
const mostBeside = 0.5

// alone is an answer's time between tokens without the prefills beside it: an engine's step
// that prefills holds up all streams for as long as that takes, whatever their number.
// Taken for the streams' own doing, they would make replicas with many streams look slow
// that only had much to prefill. It is 0 where that can't be told, and itl where the
// engine does not count or was not read in between.
func (a *attempt) alone(itl, took time.Duration, now prefilled) time.Duration {
	between := now.at.Sub(a.prefilled.at)
	if a.prefilled.at.IsZero() || now.at.IsZero() || between < took/2 || between <= 0 || a.rate <= 0 {
		return itl
	}
	tokens := now.tokens - a.prefilled.tokens
	if a.prefilled.at.Before(a.began) {
		tokens -= float64(a.sample.UncachedTokens) // its own prompt
	}
	switch share := tokens / between.Seconds() / a.rate; {
	case share <= 0: // nothing, or the engine began to count anew
		return itl
	case share <= mostBeside:
		return time.Duration(float64(itl) * (1 - share))
	}
	return 0
}
