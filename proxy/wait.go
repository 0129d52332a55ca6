package proxy

import (
	"context"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

// find picks a replica, and waits in the pool's queue where there is none with room.
// quiet says that the client is to hear something first: then the request keeps its
// place and find goes on when it is called again.
func (r *request) find() (replica *state.ReplicaView, err error, quiet bool) {
	if r.inQueue == nil {
		replica, err = r.job.first()
		if r.job.arrive(err); err == nil {
			return replica, nil, false
		}
		wait, held := r.job.waitsFor()
		if wait <= 0 || r.elsewhere() {
			return nil, err, false
		}
		if err := r.line(wait, held); err != nil {
			return nil, err, false
		}
	} else {
		r.job.queue.Resume(&r.inQueue.Entry)
		r.job.core.pump(r.job.queue)
	}
	for {
		if replica, err, quiet = r.inLine(); quiet {
			return nil, nil, true
		}
		r.leftLine()
		if err == nil || r.call.cause() != nil {
			return replica, err, false
		}
		switch api.AsError(err).Reason {
		case shedTimeout, shedHoldTimeout, shedDisplaced:
			if !r.elsewhere() {
				r.fallbacks = nil // it has waited enough
			}
			return nil, err, false
		case shedShutdown:
			return nil, err, false
		}
		// Its replicas went away while it waited for room.
		if wait, held := r.job.waitsFor(); wait <= 0 || !held || r.elsewhere() || r.line(wait, true) != nil {
			return nil, err, false
		}
	}
}

// line puts the request into its pool's queue.
func (r *request) line(wait time.Duration, held bool) (err error) {
	r.inQueue, err = r.job.wait(wait, held, time.Now())
	if err == nil {
		r.phase = phaseQueued
	}
	return err
}

// leftLine notes that the wait is over.
func (r *request) leftLine() {
	p := r.inQueue
	r.inQueue = nil
	r.job.queued = max(1, time.Since(p.since))
	r.queued += time.Since(p.began)
	r.job.queue.waited.Observe(time.Since(p.began).Seconds())
}

// inLine waits for what comes of the request's place. It returns as find does.
func (r *request) inLine() (replica *state.ReplicaView, err error, quiet bool) {
	p, h := r.inQueue, &r.heart
	end := p.until
	if !r.call.end.IsZero() && r.call.end.Before(end) {
		end = r.call.end
	}
	var stopping <-chan struct{}
	if p.held {
		stopping = r.s.stopping // a first replica is not waited for here any more
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		next := end
		if r.hears() && h.every > 0 && h.due.Before(next) {
			next = h.due
		}
		t.Reset(time.Until(next))
		select {
		case <-p.Out:
			replica, err = p.outcome()
			return replica, err, false
		case <-r.call.ctx.Done():
			return r.quit(context.Cause(r.call.ctx), false)
		case <-stopping:
			return r.quit(errShutdown, false)
		case <-t.C:
		}
		now := time.Now()
		if !now.Before(end) {
			return r.quit(nil, p.held)
		}
		if now.Before(h.due) || !r.job.queue.Pause(&p.Entry) {
			continue
		}
		if h.sound(true) == errQuiet {
			return nil, nil, true
		}
		r.job.queue.Resume(&p.Entry)
		r.job.core.pump(r.job.queue)
	}
}

// quit gives the request's place up: its time is over, or cause is why nobody waits for
// it any more. It returns as find does.
func (r *request) quit(cause error, held bool) (*state.ReplicaView, error, bool) {
	p := r.inQueue
	switch {
	case !p.leave():
		replica, err := p.outcome()
		return replica, err, false
	case cause == errShutdown:
		return nil, shuttingDown(), false
	case cause != nil:
		return nil, api.ClientClosed(), false
	}
	return nil, r.job.expired(held), false
}

// elsewhere leaves only those pools to be asked in the place of this one that would
// serve the request at once, which is better than to wait, and reports whether there is
// one.
func (r *request) elsewhere() bool {
	if r.job.Adapter() != "" {
		return false
	}
	for i, name := range r.fallbacks {
		if r.s.core.hasRoom(name, r.job) {
			r.fallbacks = r.fallbacks[i:]
			return true
		}
	}
	return false
}

// pumpEvery is how often queues are looked after in which requests wait: much goes by
// time alone, as the end of a back-off.
const pumpEvery = 25 * time.Millisecond

// pumps looks after what waits, until ctx ends: at every new View, and in between.
func (s *Server) pumps(ctx context.Context) {
	q, published := &s.core.queues, s.core.store.Published()
	t := time.NewTimer(pumpEvery)
	defer t.Stop()
	for {
		var changed <-chan struct{}
		var tick <-chan time.Time
		if q.each(s.core.pump) {
			t.Reset(pumpEvery)
			changed, tick = published, t.C
		}
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		case <-changed:
		case <-tick:
		}
	}
}
