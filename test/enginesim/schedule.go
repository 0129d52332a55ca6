package enginesim

import (
	"math"
	"slices"
	"time"
)

// How a step is formed and ended; see Core.

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
	loading := time.Duration(c.loadAdapters()) * c.cfg.AdapterLoad
	d := time.Duration(math.Round(float64(c.cfg.Timing.StepTime(load)+loading) * c.factor / c.cfg.Speed))
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

// loadAdapters loads what the step in the making needs and is not there, in place of
// what was used least recently, and returns how many.
func (c *Core) loadAdapters() (n int) {
	for _, s := range c.batch {
		if s.Adapter == "" {
			continue
		}
		i := slices.Index(c.loaded, s.Adapter)
		if i < 0 {
			n++
			if m := c.cfg.MaxAdapters; m > 0 && len(c.loaded) == m {
				c.loaded = c.loaded[:m-1]
			}
		} else {
			c.loaded = slices.Delete(c.loaded, i, i+1)
		}
		c.loaded = slices.Insert(c.loaded, 0, s.Adapter)
	}
	c.totals.AdapterLoads += int64(n)
	return n
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
func (c *Core) hits(s *Seq) int { return c.cachedBlocks(s.Hashes, s.tokens()) }

func (c *Core) cachedBlocks(hashes []uint64, tokens int) int {
	n := min((tokens-1)/c.cfg.BlockTokens, len(hashes))
	for i, h := range hashes[:n] {
		if c.pool.lookup(h) == none {
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
