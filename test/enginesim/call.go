package enginesim

import (
	"context"
	"errors"
	"time"
)

// call is one inference request in the engine: one or more sequences that are
// answered together. Its fields are guarded by Engine.mu once it has begun,
// except those that never change.
type call struct {
	e        *Engine
	stream   bool
	interval int
	choices  int    // sequences per prompt
	seqs     []*Seq // prompt by prompt, len = prompts * choices
	gens     []generator
	rec      *RequestRecord
	notify   chan struct{} // holds one token when there is something to read

	arrival  time.Duration
	progress []seqProgress
	open     int    // sequences not finished
	outcome  string // "" while it runs
}

// seqProgress is what the scheduler has said about one sequence.
type seqProgress struct {
	tokens int
	done   bool
	told   int // tokens when the handler was last woken
	first  time.Duration
	last   time.Duration
}

// slot is a Seq's Owner.
type slot struct {
	c *call
	i int
}

var (
	errStopped   = errors.New("engine stopped")
	errQueueFull = errors.New("request queue is full")
)

// begin hands the call to the scheduler.
func (e *Engine) begin(c *call, tie uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return errStopped
	}
	now := e.advance()
	if e.cfg.MaxQueue > 0 && e.core.WaitingSeqs()+len(c.seqs) > e.cfg.MaxQueue {
		return errQueueFull
	}
	c.e, c.arrival, c.open = e, now, len(c.seqs)
	c.notify = make(chan struct{}, 1)
	c.progress = make([]seqProgress, len(c.seqs))
	arrival := now + time.Duration(float64(e.cfg.FrontDelay)/e.cfg.Speed)
	for i, s := range c.seqs {
		e.nextID++
		s.ID, s.Tie, s.Owner = e.nextID, tie, slot{c, i}
		if err := e.core.Add(arrival, s); err != nil {
			for _, done := range c.seqs[:i] {
				e.core.Abort(done)
			}
			return err
		}
	}
	e.calls[c] = struct{}{}
	e.rec.began()
	e.wake()
	return nil
}

// deliver passes an event of the core to its call. Locked.
func (e *Engine) deliver(ev Event) {
	s := ev.Seq.Owner.(slot)
	c, p := s.c, &s.c.progress[s.i]
	if ev.Tokens == 1 || ev.Finished && p.tokens == 0 {
		p.first = ev.At
		if c.rec.FirstToken.IsZero() {
			c.rec.FirstToken = e.at(ev.At)
		}
		e.stats.firstToken.observe((ev.At - c.arrival).Seconds())
	} else {
		e.stats.interToken.observe((ev.At - p.last).Seconds())
	}
	p.tokens, p.last = ev.Tokens, ev.At
	if ev.Finished {
		p.done = true
		c.open--
		e.stats.finished(c.gens[s.i].eos || c.gens[s.i].stop != "")
		e.stats.total.observe((ev.At - c.arrival).Seconds())
		if c.open == 0 {
			c.rec.End = e.at(ev.At)
		}
	}
	if c.open == 0 || c.stream && (p.done || p.told == 0 || p.tokens-p.told >= c.interval) {
		p.told = p.tokens
		c.signal()
	}
}

// signal wakes the call's handler. Locked.
func (c *call) signal() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// wait blocks until there is news, and copies the progress into dst. It fails
// when the client has gone (the sequences are aborted) or the call was killed.
func (c *call) wait(ctx context.Context, dst []seqProgress) error {
	select {
	case <-c.notify:
	case <-ctx.Done():
		c.finish(OutcomeAborted)
		return context.Cause(ctx)
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.outcome != "" {
		return errStopped
	}
	copy(dst, c.progress)
	return nil
}

// finish ends the call with the outcome, unless it has ended.
func (c *call) finish(outcome string) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.outcome == "" {
		c.e.advance()
	}
	c.end(outcome)
}

// end is finish with the lock held and the core up to date.
func (c *call) end(outcome string) {
	if c.outcome != "" {
		return
	}
	e := c.e
	c.outcome = outcome
	for _, s := range c.seqs {
		if e.core.Abort(s) {
			e.stats.aborted++
			e.wake()
		}
	}
	delete(e.calls, c)
	c.note()
	c.rec.Outcome = outcome
	if outcome != OutcomeFinished || c.rec.End.IsZero() {
		c.rec.End = time.Now()
	}
	e.rec.active--
	switch outcome {
	case OutcomeFinished:
		e.rec.finished++
	case OutcomeAborted:
		e.rec.aborts++
	}
}

// note brings the record up to date with the sequences. Locked.
func (c *call) note() {
	r := c.rec
	r.CachedTokens, r.OutputTokens, r.Preemptions = 0, 0, 0
	for i, s := range c.seqs {
		if i%c.choices == 0 {
			r.CachedTokens += s.CachedTokens()
		}
		r.OutputTokens += s.OutputTokens()
		r.Preemptions += s.Preemptions()
	}
}

// usage sums the tokens of the call as vLLM reports them: a prompt counts once
// however many choices it has; output is what the given progress has.
func (c *call) usage(p []seqProgress) usage {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	var u usage
	u.prompt = c.rec.PromptTokens
	for i, s := range c.seqs {
		if i%c.choices == 0 {
			u.cached += s.CachedTokens()
		}
		u.output += p[i].tokens
	}
	return u
}

type usage struct{ prompt, cached, output int }
