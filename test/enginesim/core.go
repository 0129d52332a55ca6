package enginesim

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrTooLarge means that a sequence can never fit the KV cache.
var ErrTooLarge = errors.New("sequence does not fit the kv cache")

// CoreConfig sizes a Core. All fields are required where no 0 is explained.
type CoreConfig struct {
	Blocks           int           // KV blocks
	BlockTokens      int           // tokens per block
	MaxBatchedTokens int           // token budget of a step
	MaxSeqs          int           // running sequences
	MaxAdapters      int           // distinct adapters running at once, and loaded; 0 = no bound
	AdapterLoad      time.Duration // of one adapter; 0 allowed
	Timing           Timing
	Speed            float64 // divides every step time
}

// Seq is one sequence: a prompt and the output it will generate. The caller
// fills the exported fields before Core.Add and leaves them alone afterwards.
type Seq struct {
	ID      uint64
	Tie     uint64   // orders sequences of equal arrival, then ID
	Adapter string   // "" = base model
	Prompt  []uint32 // token ids, at least one
	Seed    uint64   // chainSeed of adapter and salt
	Hashes  []uint64 // HashChain of Prompt; nil = computed by Add
	// MaxOutput is how many tokens it generates; 0 = none, it ends with its
	// prefill (embeddings).
	MaxOutput int
	Output    func(i int) uint32 // id of output token i; pure
	// Remote says that the prompt's KV comes from elsewhere: all but the last
	// token counts as computed once blocks are allocated.
	Remote bool
	Owner  any // for the caller

	arrival     time.Duration
	state       seqState
	blocks      []int32
	computed    int // tokens whose KV is in the cache (prompt, then output)
	out         int // output tokens generated
	step        int // tokens computed by the step in flight
	published   int // leading blocks that are in the cache index
	cached      int // tokens found in the cache at first admission; -1 before
	remote      int // tokens taken from elsewhere at first admission
	preemptions int
	admitted    time.Duration
}

type seqState uint8

const (
	seqNew seqState = iota
	seqWaiting
	seqRunning
	seqDone
)

// CachedTokens is what the first admission found in the cache, 0 before it.
func (s *Seq) CachedTokens() int { return max(0, s.cached) }

// OutputTokens is how many tokens it has generated so far.
func (s *Seq) OutputTokens() int { return s.out }

// Preemptions counts how often it lost its blocks and started over.
func (s *Seq) Preemptions() int { return s.preemptions }

func (s *Seq) tokens() int { return len(s.Prompt) + s.out }

func (s *Seq) token(i int) uint32 {
	if i < len(s.Prompt) {
		return s.Prompt[i]
	}
	return s.Output(i - len(s.Prompt))
}

// Event reports that a step gave a sequence its next output token, or ended it.
type Event struct {
	Seq      *Seq
	At       time.Duration // end of the step
	Tokens   int           // output tokens so far
	Finished bool
}

// Totals are counters since the core was made.
type Totals struct {
	Steps           int64
	QueriedTokens   int64 // prompt tokens looked up in the cache at first admission
	HitTokens       int64
	PromptTokens    int64 // prompt tokens of sequences whose prefill completed
	PrefilledTokens int64 // tokens computed by prefill, recomputation included
	GeneratedTokens int64
	Preemptions     int64
	EvictedBlocks   int64
	Finished        int64
	Aborted         int64
	BusyTime        time.Duration
	MaxRunning      int
	AdapterLoads    int64   // adapters loaded; with those that had been and were evicted
	LastHitRate     float64 // hit share of the prompts admitted by the last step that admitted any
}

// Core is the scheduler and KV cache of one engine, without goroutines or a
// clock: time is a Duration since an epoch of the caller's choice and never goes
// backwards. Step ends the steps that are due and begins the next ones; Next
// says when Step has something to do. Not safe for concurrent use.
//
// A step that ends at t is followed by the next one at t exactly, also when Step
// is called late, so a late caller does not slow the engine. Sequences that
// arrived after t are not in that step.
type Core struct {
	cfg     CoreConfig
	pool    *blockPool
	running []*Seq
	waiting []*Seq // preempted ones first, then by arrival
	batch   []*Seq // computed by the step in flight
	clock   time.Duration
	stepEnd time.Duration
	busy    bool
	paused  bool
	factor  float64
	loaded  []string // adapters, the one used last first
	totals  Totals
	events  []Event
}

// NewCore returns an idle core with an empty cache.
func NewCore(cfg CoreConfig) *Core {
	return &Core{cfg: cfg, pool: newBlockPool(cfg.Blocks), factor: 1}
}

// Add queues a sequence that arrives at the given time, which may lie ahead.
func (c *Core) Add(arrival time.Duration, s *Seq) error {
	if len(s.Prompt) == 0 {
		return errors.New("empty prompt")
	}
	if need := ceilDiv(len(s.Prompt)+max(0, s.MaxOutput-1), c.cfg.BlockTokens); need > c.cfg.Blocks {
		return fmt.Errorf("%w: needs %d blocks of %d", ErrTooLarge, need, c.cfg.Blocks)
	}
	if s.Hashes == nil {
		s.Hashes = HashChain(nil, s.Prompt, c.cfg.BlockTokens, s.Seed)
	}
	s.arrival, s.state, s.cached = arrival, seqWaiting, -1
	i := len(c.waiting)
	for ; i > 0; i-- {
		w := c.waiting[i-1]
		if w.preemptions > 0 || w.arrival < arrival {
			break
		}
		if w.arrival == arrival && (w.Tie < s.Tie || w.Tie == s.Tie && w.ID < s.ID) {
			break
		}
	}
	c.waiting = slices.Insert(c.waiting, i, s)
	return nil
}

// Abort ends a sequence now: it leaves the queue or the batch, and its blocks
// are free at once (the step in flight takes no less time for it). Unknown and
// ended sequences are left alone. It reports whether the sequence was alive.
func (c *Core) Abort(s *Seq) bool {
	switch s.state {
	case seqWaiting:
		c.waiting = slices.DeleteFunc(c.waiting, func(w *Seq) bool { return w == s })
	case seqRunning:
		c.running = slices.DeleteFunc(c.running, func(r *Seq) bool { return r == s })
		c.freeBlocks(s)
	default:
		return false
	}
	s.state = seqDone
	c.totals.Aborted++
	return true
}

// Next returns when the next Step is due; ok is false while the core is idle.
func (c *Core) Next() (at time.Duration, ok bool) {
	switch {
	case c.busy:
		return c.stepEnd, true
	case c.paused:
		return 0, false
	case len(c.running) > 0:
		return c.clock, true
	case len(c.waiting) > 0:
		return max(c.clock, c.waiting[0].arrival), true
	}
	return 0, false
}

// Step ends every step due at now and begins those that follow. The events are
// valid until the next call.
func (c *Core) Step(now time.Duration) []Event {
	c.events = c.events[:0]
	for {
		if c.busy {
			if c.stepEnd > now {
				break
			}
			c.finish()
		}
		start, ok := c.Next()
		if !ok || start > now || !c.begin(start) {
			break
		}
	}
	return c.events
}

// SetFactor multiplies the duration of the steps that begin from now on.
func (c *Core) SetFactor(f float64) { c.factor = f }

// SetPaused stops or resumes the start of steps; the one in flight ends. The
// next step begins at now at the earliest: a pause is not made up for.
func (c *Core) SetPaused(now time.Duration, paused bool) {
	if c.paused && !paused && !c.busy {
		c.clock = max(c.clock, now)
	}
	c.paused = paused
}

// ClearCache forgets all cached prefixes. Running sequences go on with their
// blocks, which are no longer shared; those they complete later are.
func (c *Core) ClearCache() { c.pool.clear() }

// Totals returns the counters.
func (c *Core) Totals() Totals {
	t := c.totals
	t.EvictedBlocks = c.pool.evicted
	return t
}

// Adapters returns the adapters of running and of waiting sequences, each once,
// sorted.
func (c *Core) Adapters() (running, waiting []string) {
	distinct := func(seqs []*Seq) (out []string) {
		for _, s := range seqs {
			if s.Adapter != "" {
				out = append(out, s.Adapter)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return distinct(c.running), distinct(c.waiting)
}

// Load is what a core is busy with.
type Load struct {
	Running, Waiting   int
	UsedBlocks, Blocks int
	CachedBlocks       int // blocks that hold a findable prefix, in use or not
	// WaitingUncachedTokens are the prompt tokens of waiting sequences that are not
	// in the cache now; RunningPrefillTokens those of running sequences that are
	// still to be computed, the step in flight included.
	WaitingUncachedTokens, RunningPrefillTokens int
}

// Load returns the present load. A sequence whose arrival lies ahead is waiting.
// It takes time in proportion to the waiting prompts.
func (c *Core) Load() Load {
	l := Load{
		Running: len(c.running), Waiting: len(c.waiting), UsedBlocks: c.pool.used(), Blocks: len(c.pool.blocks),
		CachedBlocks: c.pool.known,
	}
	for _, s := range c.waiting {
		l.WaitingUncachedTokens += s.tokens() - c.hits(s)*c.cfg.BlockTokens
	}
	for _, s := range c.running {
		if left := s.tokens() - s.computed; left > 1 || s.out == 0 {
			l.RunningPrefillTokens += left
		}
	}
	return l
}

// WaitingSeqs counts the sequences that wait, those yet to arrive included.
func (c *Core) WaitingSeqs() int { return len(c.waiting) }

// CachedPrefix returns how many leading tokens of a prompt a sequence arriving
// now would find in the cache. hashes is the prompt's HashChain and tokens its
// length. It changes nothing.
func (c *Core) CachedPrefix(hashes []uint64, tokens int) int {
	if tokens == 0 {
		return 0
	}
	return c.cachedBlocks(hashes, tokens) * c.cfg.BlockTokens
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
