package balance

import (
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// limitGain is how fast a replica's concurrency follows what is read.
	limitGain = 0.2
	// waitsFor is how long requests must have waited at every reading: what has just come
	// waits for the engine's next step, too.
	waitsFor = time.Second
	// prefillAhead is the prompt tokens waiting for prefill from which on requests may
	// wait for that alone: a quarter of what vLLM takes into one step
	// (max_num_batched_tokens 8192, its default for servers).
	prefillAhead = 2048
)

// concurrency is how many requests an engine runs when others wait for one to end.
type concurrency struct {
	n     float64   // 0 unknown
	seen  float64   // the most that ran while nothing waited
	at    time.Time // of the reading seen last
	since time.Time // since when requests wait for others to end; zero: they do not
}

// note takes the replica's reading, once.
func (c *concurrency) note(r *state.ReplicaView) {
	rd := &r.Reading
	if !rd.OK || !r.ReadingAt.After(c.at) {
		return
	}
	c.at = r.ReadingAt
	switch {
	case rd.Slots > 0:
		c.n = rd.Slots
	case rd.Waiting <= 0:
		c.since, c.seen = time.Time{}, max(c.seen, rd.Running)
		if c.n > 0 {
			c.n = max(c.n, rd.Running)
		}
	case !forASlot(r):
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = c.at
	case c.at.Sub(c.since) < waitsFor:
	case c.n == 0:
		c.n = rd.Running
	default:
		c.n += limitGain * (rd.Running - c.n)
	}
}

// forASlot reports whether what waits at r waits for others to end: there is KV space,
// little to prefill before it, and it needs no adapter. What routers know nothing of may
// wait for anything.
func forASlot(r *state.ReplicaView) bool {
	rd, known := &r.Reading, &r.KnownAtReading
	tokens := float64(known.UncachedTokens)
	if rd.WaitingUncached >= 0 {
		tokens = rd.WaitingUncached
	} else if rd.Waiting > float64(known.Prefill) {
		return false
	}
	return rd.Running > 0 && len(rd.AdaptersWaiting) == 0 && tokens < prefillAhead && rd.KVUsage < 0.9
}

// planConcurrency tells what the members of one leg run at a time. One that has not
// shown it is taken to be like the one of them that runs most.
func planConcurrency(members []*member) {
	most := 0.0
	for _, m := range members {
		most = max(most, m.limit.n)
	}
	for _, m := range members {
		if m.atATime = m.limit.n; m.atATime == 0 && most > 0 {
			m.atATime = max(most, m.limit.seen)
		}
	}
}
