package proxy

import (
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// arrive counts the request as asked of its pool, once, whatever becomes of it: a pool
// that turns requests away is asked for more than it answers.
func (j *Job) arrive(err error) {
	if j.arrived || j.claim.light {
		return
	}
	j.arrived = true
	uncached := int64(j.choice.UncachedTokens)
	switch {
	case err != nil:
		uncached = j.uncached()
	case j.Hops():
		uncached = int64(j.legs.choice.UncachedTokens)
	}
	j.pool.Counter.Came(uncached)
}

// toldFirst counts the time from the request to its first token against the pool's
// objective.
func (j *Job) toldFirst(took time.Duration) {
	if slo := j.pool.Spec.SLOTTFT; slo > 0 && !j.claim.light {
		j.pool.Counter.First(took <= slo)
	}
}

// missed counts a request that was refused for want of capacity: no objective is met.
func (j *Job) missed() {
	if j != nil && j.pool.Spec.SLOTTFT > 0 && !j.claim.light {
		j.pool.Counter.First(false)
	}
}

// streamed counts a stream's mean time between tokens against the pool's objective.
func (j *Job) streamed(itl time.Duration) {
	if slo := j.pool.Spec.SLOITL; slo > 0 {
		j.pool.Counter.Streamed(itl <= slo)
	}
}

// answeredWell counts an answer that ended well.
func (j *Job) answeredWell(r *Result) {
	if r.Outcome == OutcomeServed && r.Usage.Source != api.None && !j.claim.light {
		j.pool.Counter.Answered(int64(r.Usage.Output))
	}
}
