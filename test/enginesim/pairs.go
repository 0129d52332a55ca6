package enginesim

import (
	"context"
	"sync"
	"time"
)

// Leg is the part of requests that an engine serves, as SGLang's disaggregation modes.
type Leg string

// The legs; "" serves whole requests.
const (
	LegPrefill Leg = "prefill"
	LegDecode  Leg = "decode"
)

// Pairs is where the legs of requests meet, by their rooms. Engines that work together
// share one; the zero value is ready.
type Pairs struct {
	mu    sync.Mutex
	rooms map[string]chan struct{} // guarded by mu; closed when the prompt is prefilled
}

func (p *Pairs) room(name string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rooms == nil {
		p.rooms = map[string]chan struct{}{}
	}
	if p.rooms[name] == nil {
		p.rooms[name] = make(chan struct{})
	}
	return p.rooms[name]
}

// meet is what an engine of one leg does with a request before it is scheduled: one
// that prefills makes one token of it, one that decodes waits until the prompt's KV is
// there, or for ever. It reports false when the client has gone meanwhile.
func (e *Engine) meet(ctx context.Context, req *request, rec *RequestRecord) bool {
	if e.cfg.Leg != LegDecode {
		return true
	}
	select {
	case <-e.cfg.Pairs.room(req.room):
		e.cfg.Pairs.mu.Lock()
		delete(e.cfg.Pairs.rooms, req.room)
		e.cfg.Pairs.mu.Unlock()
		return true
	case <-ctx.Done():
		e.locked(func() {
			rec.Outcome, rec.End = OutcomeAborted, time.Now()
			e.rec.aborts++
		})
		return false
	}
}

// prefilled tells the other leg of a request that has been answered.
func (e *Engine) prefilled(req *request, rec *RequestRecord) {
	if e.cfg.Leg != LegPrefill {
		return
	}
	done := false
	e.locked(func() { done = rec.Outcome == OutcomeFinished })
	if done {
		close(e.cfg.Pairs.room(req.room))
	}
}

// leg makes a parsed request one of the engine's leg.
func (e *Engine) leg(r *request) *apiError {
	switch {
	case e.cfg.Leg == "":
		return nil
	case r.room == "":
		return badRequest("Disaggregated request received without bootstrap room id.")
	case e.cfg.Leg == LegPrefill:
		r.limit, r.min = 1, 0
	default:
		r.remotePrefill = true
	}
	return nil
}
