package whatif

import (
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
)

// frontDelay is what an engine's front end takes before a request reaches its
// scheduler, enginesim's default.
const frontDelay = time.Millisecond

// replica is one engine: enginesim's scheduler and cache.
type replica struct {
	id     state.ReplicaID
	core   *enginesim.Core
	nextID uint64
	due    time.Duration // when the event that steps it is; 0: none
}

func newReplica(id state.ReplicaID, timing enginesim.Timing, c *Config) *replica {
	return &replica{id: id, core: enginesim.NewCore(enginesim.CoreConfig{
		Blocks: c.KVTokens / blockTokens, BlockTokens: blockTokens, MaxBatchedTokens: c.BatchTokens,
		MaxSeqs: enginesim.DefaultConfig().MaxSeqs, Timing: timing, Speed: c.Speed,
	})}
}

// submit hands a request to the scheduler.
func (r *replica) submit(now time.Duration, f *flight) error {
	r.nextID++
	it := f.item
	return r.core.Add(now+frontDelay, &enginesim.Seq{
		ID: r.nextID, Prompt: it.Prompt.Tokens, Hashes: slices.Clip(it.Prompt.Hashes), MaxOutput: it.Answer.Tokens(),
		Output: it.Answer.Token, Owner: f,
	})
}

// reading is what the engine's metrics say, as proxy/engine reads vLLM's.
func (r *replica) reading(at state.Stamp, started time.Time, kvTokens int) state.Reading {
	l, t := r.core.Load(), r.core.Totals()
	out := state.UnknownReading(r.id)
	out.At, out.OK, out.Kind, out.Started = at, true, state.EngineVLLM, float64(started.UnixNano())/1e9
	out.Running, out.Waiting = float64(l.Running), float64(l.Waiting)
	out.KVUsage = float64(l.UsedBlocks) / float64(l.Blocks)
	out.Capacity = float64(kvTokens)
	out.Queries, out.Hits = float64(t.QueriedTokens), float64(t.HitTokens)
	return out
}
