package proxy

import (
	"net/http"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

// tries is how far the search for a replica that answers has come. It outlives the
// handler where the answer's head goes out before there is an answer.
type tries struct {
	last, reached *failure
	wait          time.Duration // the least that busy replicas asked for
	under         bool          // a try is under way
	bare, refused bool          // it does not ask for usage; asking for it was refused
	answer        *relay        // its answer; nil before the answer's head
}

// dispatch tries replicas, and those of the pools that are to be asked in the place of
// the request's own, until one answers or nothing is left to try. Its results are those
// of try. A pool that lacks what is asked for says nothing of the request: then the
// failure before it counts.
func (r *request) dispatch() (f *failure, quiet bool) {
	for {
		f, quiet = r.try()
		if f == nil || quiet {
			return f, quiet
		}
		if r.before != nil && f.lacks() {
			f = r.before
		}
		if !r.fallBack(f) {
			return f, quiet
		}
		r.before = f
	}
}

// try tries a pool's replicas until one answers or nothing is left to try. It returns
// nil when an answer has been set up, and otherwise what to tell the client. quiet
// says that the client is to hear something first: then dispatch goes on where it
// was when it is called again.
func (r *request) try() (f *failure, quiet bool) {
	t := &r.tries
	for {
		if !t.under {
			err, waits := r.next()
			if waits {
				return nil, true
			}
			if err != nil {
				if r.legs != nil && r.withoutKV() {
					continue
				}
				break
			}
		}
		var f *failure
		quiet := false
		if r.legs != nil {
			f, quiet = r.lead()
		}
		if f == nil && !quiet {
			f, quiet = r.attempt(r.replica)
		}
		if t.under = quiet; f == nil {
			return nil, quiet
		}
		r.x.drop()
		if r.legs != nil {
			r.missed(f)
		}
		t.answer = nil
		r.job.End(f.result())
		if r.legs != nil && f.other {
			r.job.Again()
		}
		if f.outcome == OutcomeBusy {
			t.least(f.wait)
		}
		t.last = f
		if !f.unreached {
			t.reached = f
		}
		if !f.retry || r.call.cause() != nil ||
			r.job.Attempts() >= orDefault(r.job.Pool().Spec.RetryAttempts, defaultAttempts) {
			break
		}
	}
	last := t.last
	if last.unreached {
		if e := r.away(last.err); e != nil {
			last.err, last.unreached = e, false
		}
	}
	switch {
	case last.unreached && t.reached != nil:
		last = t.reached // what a replica said is worth more than that another is away
	case last.unreached:
		last.shed = last.err.Reason
	}
	if last.outcome == OutcomeBusy && t.wait > 0 {
		last.wait = t.wait
	}
	return last, false
}

// least notes how long one of the busy replicas wants to be left alone.
func (t *tries) least(d time.Duration) {
	if d > 0 && (t.wait == 0 || d < t.wait) {
		t.wait = d
	}
}

// next picks the replica to try now. It fails when there is none. quiet is as try has
// it.
func (r *request) next() (err error, quiet bool) {
	t := &r.tries
	replica, err, quiet := r.find()
	switch {
	case quiet:
		return nil, true
	case err == nil:
	case t.last == nil && api.AsError(err).Status == api.StatusClientClosed:
		t.last = &failure{outcome: OutcomeAborted, reason: "aborted", err: api.AsError(err)}
		return err, false
	case t.last == nil && api.AsError(err).Reason == shedShutdown:
		t.last = &failure{outcome: OutcomeAborted, reason: shedShutdown, err: api.AsError(err)}
		return err, false
	case t.last == nil && r.away(api.AsError(err)) != nil:
		t.last = &failure{outcome: OutcomeRejected, err: r.away(api.AsError(err))}
		return err, false
	case t.last == nil && api.AsError(err).Status == http.StatusNotFound: // its adapter has gone
		t.last = &failure{outcome: OutcomeRejected, reason: api.AsError(err).Reason, err: api.AsError(err)}
		return err, false
	case t.last == nil:
		e := api.AsError(err)
		t.last = &failure{outcome: OutcomeBusy, err: e, shed: e.Reason}
		return err, false
	default:
		if e := api.AsError(err); e.Status == http.StatusTooManyRequests {
			t.least(e.RetryAfter) // of those that were not asked
		}
		return err, false
	}
	if t.last != nil {
		r.s.metrics.retries.WithLabelValues(r.pool, t.last.reason).Inc()
	}
	r.replica, r.phase = replica, phaseConnecting
	t.bare, t.refused = r.s.core.noUsage.has(replica.URL), false
	return nil, false
}

// attempt sends the request to one replica, or goes on waiting for it. It returns nil
// when the answer is on its way to the client or the client is to hear something
// first, and otherwise how the attempt failed: then nothing of it has reached the
// client.
func (r *request) attempt(replica *state.ReplicaView) (f *failure, quiet bool) {
	t := &r.tries
	if t.answer != nil {
		return r.accept()
	}
	spec := &r.job.Pool().Spec
	pool, err := r.s.up.of(replica.URL)
	if err != nil {
		return broken("bad_url", true), false
	}
	for {
		if !t.under {
			r.prepare(spec, replica, pool, t.bare)
		}
		if err := r.x.send(&r.out); err == errQuiet {
			return nil, true
		} else if err != nil {
			return r.unsent(err), false
		}
		r.noteLoad(spec, replica)
		if status := r.x.resp.StatusCode(); status >= 300 || status == http.StatusNoContent {
			f := r.rejected(status)
			if r.usage && f.blamesUsage() {
				// Our own addition may be what was refused: not the client's problem.
				r.x.drop()
				t.bare, t.refused, t.under = true, true, false
				continue
			}
			if e := r.forgotten(f); e != nil {
				f.err = e
			}
			return f, false
		}
		return r.accept()
	}
}
