package proxy

import (
	"errors"
	"net/http"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/sse"
)

// runsOn reports whether a stream goes on past the length its head gave: engines
// have been seen to give the length of the first piece.
func (a *relay) runsOn() bool {
	return a.r.x.body.kind == bodySized && a.midway()
}

// cutShort reports whether a stream that ends with its connection ended before its
// answer did: then nothing tells a proper end from a dead engine but the answer.
func (a *relay) cutShort() bool {
	if a.r.x.body.kind != bodyUntilClose || a.framer.Done() {
		return false
	}
	return a.framer.Cut() || a.midway() && a.r.ask.Endpoint != api.Embeddings
}

// unended reports whether a stream that ended in order lacks the event that ends it: an
// API with typed events always has one.
func (a *relay) unended() bool { return a.r.ask.Endpoint.Shape() == api.Typed && a.midway() }

// midway reports whether a stream has said nothing yet that ends an answer.
func (a *relay) midway() bool {
	return !a.framer.Done() && a.framer.Finish() == "" && a.framer.Error() == nil
}

// farewell tells a client why its stream ends here.
func (a *relay) farewell() *api.Error {
	switch {
	case errors.Is(a.failed, errShutdown):
		return shuttingDown()
	case errors.Is(a.failed, errIdleTimeout):
		return api.GatewayTimeout("idle_timeout")
	case errors.Is(a.failed, errTotalTimeout):
		return api.GatewayTimeout("total_timeout")
	case errors.Is(a.failed, sse.ErrTooLong):
		return api.BadGateway("event_too_long")
	}
	return api.BadGateway("stream_broken")
}

// finish closes the request's books. err is what ended the relay, nil for an
// answer relayed whole.
func (a *relay) finish(err error) {
	if a.finished {
		return
	}
	a.finished = true
	r := a.r
	res := Result{Outcome: OutcomeServed, Streamed: a.stream && r.ask.Endpoint != api.Stored, Last: a.last}
	status := r.status
	switch {
	case err == nil && (a.whole || a.ended):
		res.Whole = a.sink != nil
	case a.failed == nil || errors.Is(a.failed, errClientGone):
		res.Outcome = OutcomeAborted
		status, r.reason = api.StatusClientClosed, "client_closed"
		if r.heart.stall {
			r.reason = "write_stall"
		}
		r.s.metrics.disconnect.WithLabelValues(string(r.phase)).Inc()
	case errors.Is(a.failed, errShutdown):
		res.Outcome, r.reason = OutcomeAborted, "shutdown"
	case errors.Is(a.failed, errTotalTimeout): // it was answering: not its fault
		res.Outcome, r.reason = OutcomeAborted, "total_timeout"
	case errors.Is(a.failed, errIdleTimeout), errors.Is(a.failed, errFirstByteTimeout):
		res.Outcome, r.reason = OutcomeTimeout, a.farewell().Reason
	default:
		res.Outcome, r.reason = OutcomeFailed, a.farewell().Reason
	}
	a.account(&res)
	if r.legs != nil {
		r.billLegs(&res)
	}
	r.used = res.Usage
	r.brokeOff()
	r.job.End(&res)
	a.free()
	r.end(status)
}

// brokeOff counts an answer that ended before its end, unless the client left.
func (r *request) brokeOff() {
	if r.reason != "" && r.reason != "client_closed" {
		r.s.metrics.broken.WithLabelValues(r.pool, r.reason).Inc()
	}
}

// account reads what the engine said of its use, and whether it failed in words.
func (a *relay) account(res *Result) {
	if a.r.ask.Endpoint == api.Stored {
		return // what it used was counted when it was made
	}
	kind := a.r.family()
	defer func() {
		if !res.HasUsage {
			res.Usage = a.r.job.estimate(a.pieces(), a.whole)
		}
		if res.Usage.Source != api.None && res.Outcome != OutcomeServed {
			res.Usage.Source = api.Partial
		}
	}()
	switch {
	case a.stream:
		if kind == api.LlamaCpp {
			res.Usage, res.HasUsage = api.ParseTimings(a.framer.Timings())
		}
		if u := a.framer.Usage(); !res.HasUsage && u != nil {
			res.Usage, res.HasUsage = api.ParseStreamUsage(a.framer.StartUsage(), u, kind)
		}
		if e := a.framer.Error(); e != nil && res.Outcome == OutcomeServed {
			res.Whole = false
			if code := errorCode(e); code >= 400 && code < 500 {
				res.Outcome = OutcomeRejected
			} else {
				res.Outcome, a.r.reason = OutcomeFailed, "error_event"
			}
		} else if a.typed.Failed && res.Outcome == OutcomeServed {
			res.Outcome = outcomeOf(a.typed.Code)
		}
	case a.tail != nil:
		res.Usage, res.HasUsage = usageIn(a.tail, kind)
		res.Whole = false
	default:
		res.Usage, res.HasUsage = a.read.Usage, a.read.HasUsage
	}
}

// outcomeOf is what a response that failed for this reason says of its replica.
func outcomeOf(code string) Outcome {
	switch status := api.StatusOfCode(code); {
	case status == http.StatusTooManyRequests:
		return OutcomeBusy
	case status < http.StatusInternalServerError:
		return OutcomeRejected
	}
	return OutcomeFailed
}

// pieces is how much has come of an answer: events of a stream, bytes of text else.
func (a *relay) pieces() int {
	if a.stream {
		return a.framer.Events()
	}
	return a.read.Text
}

// rest gives the buffer back while nothing is in it.
func (a *relay) rest() {
	if a.buf != nil {
		relayBuffers.Put(a.buf)
		a.buf = nil
	}
}

// free gives everything back.
func (a *relay) free() {
	a.rest()
	if a.framer != nil {
		a.framer.Reset(sse.Options{})
		framers.Put(a.framer)
		a.framer = nil
	}
}
