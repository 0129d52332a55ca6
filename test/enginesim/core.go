package enginesim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// ErrTooLarge means that a sequence can never fit the KV cache.
var ErrTooLarge = errors.New("sequence does not fit the kv cache")

// CoreConfig sizes a Core. All fields are required.
type CoreConfig struct {
	Blocks           int // KV blocks
	BlockTokens      int // tokens per block
	MaxBatchedTokens int // token budget of a step
	MaxSeqs          int // running sequences
	MaxAdapters      int // distinct adapters running at once; 0 = no bound
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

// begin forms and starts a step at the given time.
func (c *Core) begin(start time.Duration) bool {
	c.batch = c.batch[:0]
	budget := c.cfg.MaxBatchedTokens
	before := c.totals
	var load StepLoad
	preempted := c.scheduleRunning(&budget, &load)
	if !preempted {
		c.scheduleWaiting(start, &budget, &load)
	}
	c.totals.MaxRunning = max(c.totals.MaxRunning, len(c.running))
	if len(c.batch) == 0 {
		return false
	}
	d := time.Duration(math.Round(float64(c.cfg.Timing.StepTime(load)) * c.factor / c.cfg.Speed))
	c.busy, c.clock, c.stepEnd = true, start, start+max(d, 1)
	c.totals.Steps++
	c.totals.BusyTime += c.stepEnd - start
	c.totals.PrefilledTokens += int64(load.PrefillTokens)
	if q := c.totals.QueriedTokens - before.QueriedTokens; q > 0 {
		c.totals.LastHitRate = float64(c.totals.HitTokens-before.HitTokens) / float64(q)
	}
	return true
}

// scheduleRunning gives each running sequence its next token or prefill chunk,
// in order of admission. When blocks run out the youngest gives way.
func (c *Core) scheduleRunning(budget *int, load *StepLoad) (preempted bool) {
	for i := 0; i < len(c.running) && *budget > 0; i++ {
		s := c.running[i]
		n := min(s.tokens()-s.computed, *budget)
		for !c.grow(s, n) {
			victim := c.running[len(c.running)-1]
			c.running = c.running[:len(c.running)-1]
			c.preempt(victim)
			preempted = true
			if victim == s {
				return true
			}
		}
		c.schedule(s, n, load)
		*budget -= n
	}
	return preempted
}

// scheduleWaiting admits sequences first come first served until the budget,
// the bound on sequences or the free blocks are used up.
func (c *Core) scheduleWaiting(start time.Duration, budget *int, load *StepLoad) {
	for i := 0; i < len(c.waiting) && *budget > 0 && len(c.running) < c.cfg.MaxSeqs; {
		s := c.waiting[i]
		if s.arrival > start {
			return
		}
		if !c.adapterFits(s.Adapter) {
			i++ // others may pass it, as in vLLM
			continue
		}
		hits := c.hits(s)
		computed := hits * c.cfg.BlockTokens
		if s.Remote && s.cached < 0 {
			computed = max(computed, len(s.Prompt)-1)
		}
		n := min(s.tokens()-computed, *budget)
		if !c.admit(s, hits, computed+n) {
			return
		}
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.running = append(c.running, s)
		s.state, s.computed, s.published = seqRunning, computed, hits
		if s.cached < 0 {
			s.cached, s.admitted = hits*c.cfg.BlockTokens, start
			s.remote = computed - s.cached
			c.totals.QueriedTokens += int64(len(s.Prompt))
			c.totals.HitTokens += int64(s.cached)
		}
		c.schedule(s, n, load)
		*budget -= n
	}
}

func (c *Core) adapterFits(adapter string) bool {
	if adapter == "" || c.cfg.MaxAdapters == 0 {
		return true
	}
	var distinct []string
	for _, r := range c.running {
		if r.Adapter == adapter {
			return true
		}
		if r.Adapter != "" && !slices.Contains(distinct, r.Adapter) {
			distinct = append(distinct, r.Adapter)
		}
	}
	return len(distinct) < c.cfg.MaxAdapters
}

// hits counts the leading blocks of a sequence found in the cache. The last
// token is always computed, since it is what the next one is sampled from.
func (c *Core) hits(s *Seq) int {
	n := min((s.tokens()-1)/c.cfg.BlockTokens, len(s.Hashes))
	for i := range n {
		if c.pool.lookup(s.Hashes[i]) == none {
			return i
		}
	}
	return n
}

// admit pins the hits and takes blocks for tokens up to the given count, or
// changes nothing and returns false.
func (c *Core) admit(s *Seq, hits, tokens int) bool {
	need := ceilDiv(tokens, c.cfg.BlockTokens) - hits
	idle := 0 // hits that would leave the free queue
	for _, h := range s.Hashes[:hits] {
		if c.pool.blocks[c.pool.lookup(h)].ref == 0 {
			idle++
		}
	}
	if need > c.pool.free-idle {
		return false
	}
	for _, h := range s.Hashes[:hits] {
		b := c.pool.lookup(h)
		c.pool.pin(b)
		s.blocks = append(s.blocks, b)
	}
	for range need {
		s.blocks = append(s.blocks, c.pool.take())
	}
	return true
}

// grow takes the blocks that n more tokens need, or none and returns false.
func (c *Core) grow(s *Seq, n int) bool {
	need := ceilDiv(s.computed+n, c.cfg.BlockTokens) - len(s.blocks)
	if need > c.pool.free {
		return false
	}
	for range need {
		s.blocks = append(s.blocks, c.pool.take())
	}
	return true
}

func (c *Core) schedule(s *Seq, n int, load *StepLoad) {
	s.step = n
	c.batch = append(c.batch, s)
	if n == 1 && s.out > 0 {
		load.DecodeStreams++
		load.DecodeContext += int64(s.computed)
		return
	}
	load.PrefillTokens += n
	load.PrefillPairs += int64(n) * int64(s.computed)
}

func (c *Core) preempt(s *Seq) {
	c.freeBlocks(s)
	s.state = seqWaiting
	s.preemptions++
	c.totals.Preemptions++
	c.waiting = slices.Insert(c.waiting, 0, s)
}

// freeBlocks releases a sequence's blocks from last to first.
func (c *Core) freeBlocks(s *Seq) {
	for i := len(s.blocks) - 1; i >= 0; i-- {
		c.pool.release(s.blocks[i])
	}
	s.blocks, s.computed, s.published, s.step = s.blocks[:0], 0, 0, 0
}

// finish ends the step in flight: what it computed becomes shareable, and each
// sequence that is through with its tokens has its next one.
func (c *Core) finish() {
	c.busy, c.clock = false, c.stepEnd
	ended := false
	for _, s := range c.batch {
		if s.state != seqRunning || s.step == 0 {
			continue // aborted meanwhile
		}
		s.computed += s.step
		s.step = 0
		c.publish(s)
		if s.computed < s.tokens() {
			continue // more of its prefill to come
		}
		first := s.out == 0
		if first {
			c.totals.PromptTokens += int64(len(s.Prompt))
		}
		if s.MaxOutput > 0 {
			s.out++
			c.totals.GeneratedTokens++
		}
		done := s.out >= s.MaxOutput
		if done {
			s.state, ended = seqDone, true
			c.freeBlocks(s)
			c.totals.Finished++
		}
		c.events = append(c.events, Event{Seq: s, At: c.clock, Tokens: s.out, Finished: done})
	}
	if ended {
		c.running = slices.DeleteFunc(c.running, func(s *Seq) bool { return s.state != seqRunning })
	}
	c.batch = c.batch[:0]
}

// publish makes a sequence's newly completed blocks findable.
func (c *Core) publish(s *Seq) {
	bt := c.cfg.BlockTokens
	for ; (s.published+1)*bt <= s.computed; s.published++ {
		i := s.published
		if i == len(s.Hashes) { // the block holds output
			parent := s.Seed
			if i > 0 {
				parent = s.Hashes[i-1]
			}
			ids := make([]uint32, bt)
			for k := range ids {
				ids[k] = s.token(i*bt + k)
			}
			s.Hashes = append(s.Hashes, chainHash(parent, ids))
		}
		c.pool.publish(s.blocks[i], s.Hashes[i])
	}
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
	Running, Waiting      int
	UsedBlocks, Blocks    int
	CachedBlocks          int // blocks that hold a findable prefix, in use or not
	WaitingUncachedTokens int // prompt tokens of waiting sequences not in the cache now
}

// Load returns the present load. A sequence whose arrival lies ahead is waiting.
func (c *Core) Load() Load {
	l := Load{Running: len(c.running), Waiting: len(c.waiting), UsedBlocks: c.pool.used(), Blocks: len(c.pool.blocks)}
	for i := range c.pool.blocks {
		if c.pool.blocks[i].cached {
			l.CachedBlocks++
		}
	}
	for _, s := range c.waiting {
		l.WaitingUncachedTokens += s.tokens() - c.hits(s)*c.cfg.BlockTokens
	}
	return l
}

// WaitingSeqs counts the sequences that wait, those yet to arrive included.
func (c *Core) WaitingSeqs() int { return len(c.waiting) }

// CachedPrefix returns how many leading tokens of a prompt a sequence arriving
// now would find in the cache. It changes nothing.
func (c *Core) CachedPrefix(prompt []uint32, seed uint64) int {
	s := &Seq{Prompt: prompt, Hashes: HashChain(nil, prompt, c.cfg.BlockTokens, seed)}
	if len(prompt) == 0 {
		return 0
	}
	return c.hits(s) * c.cfg.BlockTokens
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
