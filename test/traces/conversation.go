package traces

import (
	"context"
	"sync"
)

// Conversation carries the answers really given from one turn of a session to the next, when a generator is asked for them: a
// turn's prompt then holds what the model said, so that an engine finds its own answers in its cache. Whoever sends the turns
// calls Wait before rendering one and Finish after its answer, once each per turn. All methods may be called from any goroutine.
//
// Such a session is closed within an otherwise open loop: nobody can reply to an answer that has not come. A turn due before the
// answer it needs waits for it, and only for it.
type Conversation struct {
	mu      sync.Mutex
	answers []string        // by turn; "" where none came, guarded by mu
	done    []chan struct{} // by turn, made on demand, closed by Finish; guarded by mu
}

// NewConversation returns a conversation without answers.
func NewConversation() *Conversation { return &Conversation{} }

// Wait blocks until the turn before the given one (0-based) has finished, or ctx ends; its error is ctx's. Turn 0, and any turn
// of a nil conversation, waits for nothing.
func (c *Conversation) Wait(ctx context.Context, turn int) error {
	if c == nil || turn <= 0 {
		return nil
	}
	c.mu.Lock()
	ch := c.slot(turn - 1)
	c.mu.Unlock()
	select {
	case <-ch:
		return nil
	default:
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Finish records the answer of a turn (0-based) and lets the next one go. An empty answer, after a failure, leaves the stand-in
// in the later prompts. The first call for a turn counts; on a nil conversation it does nothing.
func (c *Conversation) Finish(turn int, answer string) {
	if c == nil || turn < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.slot(turn)
	select {
	case <-ch:
		return
	default:
	}
	c.answers[turn] = answer
	close(ch)
}

// answer returns what turn number n (1-based) answered, and whether there is such an answer.
func (c *Conversation) answer(n int) (string, bool) {
	if c == nil || n <= 0 {
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > len(c.answers) || c.answers[n-1] == "" {
		return "", false
	}
	return c.answers[n-1], true
}

// slot needs mu held.
func (c *Conversation) slot(turn int) chan struct{} {
	for len(c.done) <= turn {
		c.done = append(c.done, make(chan struct{}))
		c.answers = append(c.answers, "")
	}
	return c.done[turn]
}
