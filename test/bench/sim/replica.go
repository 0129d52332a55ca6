package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
)

// frontDelay is what an engine's front end takes before a request reaches its
// scheduler, enginesim's default.
const frontDelay = time.Millisecond

// Replica is one engine: enginesim's scheduler and cache, driven by a timer. Safe
// for concurrent use.
type Replica struct {
	ID state.ReplicaID

	epoch  time.Time
	blocks int // tokens of one

	mu     sync.Mutex
	core   *enginesim.Core // guarded by mu
	timer  *time.Timer     // guarded by mu
	nextID uint64          // guarded by mu
	kv     int             // tokens
}

// Call is one request at a replica. First and Done are closed at its first token
// and at its end; the times are the scheduler's and may be read after.
type Call struct {
	First, Done       chan struct{}
	FirstAt, DoneAt   time.Time
	Cached, Preempted int

	seq *enginesim.Seq
}

// NewReplica returns an idle engine.
func NewReplica(id state.ReplicaID, timing enginesim.Timing, kvTokens, batchTokens int, speed float64) *Replica {
	d := enginesim.DefaultConfig()
	r := &Replica{ID: id, epoch: time.Now(), blocks: d.BlockTokens, kv: kvTokens}
	r.core = enginesim.NewCore(enginesim.CoreConfig{
		Blocks: kvTokens / d.BlockTokens, BlockTokens: d.BlockTokens, MaxBatchedTokens: batchTokens,
		MaxSeqs: d.MaxSeqs, Timing: timing, Speed: speed,
	})
	r.timer = time.AfterFunc(time.Hour, r.tick)
	r.timer.Stop()
	return r
}

// Submit hands a request to the scheduler.
func (r *Replica) Submit(it *Item) (*Call, error) {
	c := &Call{First: make(chan struct{}), Done: make(chan struct{})}
	c.seq = &enginesim.Seq{
		Prompt: it.Prompt.Tokens, Hashes: slices.Clip(it.Prompt.Hashes), MaxOutput: it.Answer.Tokens(),
		Output: it.Answer.Token, Owner: c,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.advance()
	r.nextID++
	c.seq.ID = r.nextID
	if err := r.core.Add(now+frontDelay, c.seq); err != nil {
		return nil, err
	}
	r.arm(now)
	return c, nil
}

func (r *Replica) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arm(r.advance())
}

// advance brings the scheduler up to the present and hands out its events. Locked.
func (r *Replica) advance() time.Duration {
	at := time.Since(r.epoch)
	for _, ev := range r.core.Step(at) {
		if ev.Tokens != 1 && !ev.Finished {
			continue
		}
		c := ev.Seq.Owner.(*Call)
		if c.FirstAt.IsZero() {
			c.FirstAt, c.Cached = r.epoch.Add(ev.At), ev.Seq.CachedTokens()
			close(c.First)
		}
		if ev.Finished {
			c.DoneAt, c.Preempted = r.epoch.Add(ev.At), ev.Seq.Preemptions()
			close(c.Done)
		}
	}
	return at
}

// arm sets the timer to the scheduler's next event. Locked.
func (r *Replica) arm(now time.Duration) {
	if at, ok := r.core.Next(); ok {
		r.timer.Reset(max(0, at-now))
		return
	}
	r.timer.Stop()
}

// Stop ends the timer.
func (r *Replica) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer.Stop()
}

// Truth is what a replica really has for a prompt at this moment.
type Truth struct {
	Cached int // leading tokens of the prompt in its cache
	Queue  int // uncached prompt tokens before a new one
	Decode int // sequences past their prefill, roughly
}

// Load is what the scheduler is busy with.
func (r *Replica) Load() enginesim.Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance()
	return r.core.Load()
}

// Truth looks a prompt up.
func (r *Replica) Truth(p *enginesim.Prompt) Truth {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance()
	l := r.core.Load()
	return Truth{
		Cached: r.core.CachedPrefix(p.Hashes, len(p.Tokens)), Queue: queued(l),
		Decode: l.Running,
	}
}

// Totals are the scheduler's counters.
func (r *Replica) Totals() enginesim.Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance()
	return r.core.Totals()
}

// SetFactor multiplies the time of every step that begins from now on.
func (r *Replica) SetFactor(f float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance()
	r.core.SetFactor(f)
}

// ClearCache forgets what is cached.
func (r *Replica) ClearCache() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance()
	r.core.ClearCache()
}

// reading is what the engine's metrics would say, as proxy/engine reads vLLM's.
func (r *Replica) reading() state.Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance()
	l, t := r.core.Load(), r.core.Totals()
	out := state.UnknownReading(r.ID)
	out.OK, out.Kind, out.Started = true, state.EngineVLLM, float64(r.epoch.UnixNano())/1e9
	out.Running, out.Waiting = float64(l.Running), float64(l.Waiting)
	out.KVUsage = float64(l.UsedBlocks) / float64(l.Blocks)
	out.Capacity = float64(r.kv)
	out.Queries, out.Hits = float64(t.QueriedTokens), float64(t.HitTokens)
	return out
}

// engines reads replicas for a router's observe loop.
type engines struct {
	byID map[state.ReplicaID]*Replica
	cfg  *Config
}

// Read implements observe.Reader.
func (e engines) Read(_ context.Context, ranks []state.Replica) []state.Reading {
	out := make([]state.Reading, len(ranks))
	for i := range ranks {
		out[i] = e.read(&ranks[i])
	}
	return out
}

func (e engines) read(r *state.Replica) state.Reading {
	x := e.byID[r.ID]
	if x == nil {
		out := state.UnknownReading(r.ID)
		out.Err = "no such engine"
		return out
	}
	out := x.reading()
	if f := e.cfg.CapacityFactor; f > 0 {
		out.Capacity *= f
	}
	if e.cfg.NoForeign {
		out.Running, out.Waiting = -1, -1
	}
	return out
}
