package proxy

import (
	"bytes"
	"io"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// peek reads a stream up to its first event, so that an engine that refuses inside
// a 200 is found out while another replica may still be tried. Comments before it are
// no answer yet, but go out as they come: quiet says that this is to be made
// possible, or that the client is to hear a comment of ours.
func (a *relay) peek() (f *failure, quiet bool) {
	r := a.r
	limit := peekBytes
	if r.held() {
		limit = peekHeld
	}
	for len(a.ahead) < limit && !a.begun() {
		if r.hears() && a.comments() > a.passed {
			if r.heart.w == nil {
				return nil, true
			}
			if err := r.heart.say(a.passComments()); err != nil {
				return r.unsent(err), false
			}
		}
		p, err := a.next()
		a.ahead = append(a.ahead, p...)
		if err == errQuiet {
			return nil, true
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			if a.begun() {
				a.failed = err
				break
			}
			return r.unsent(err), false
		}
	}
	if a.framer.FirstIsError() {
		return a.refusal(a.framer.Error()), false
	}
	if !a.begun() && len(a.ahead) < limit && r.x.body.done() {
		return broken("empty_stream", true), false
	}
	return nil, false
}

// begun reports whether the stream has said more than that an answer will come, or as
// much as its client is to know at once.
func (a *relay) begun() bool {
	n := a.framer.Events()
	if a.r.held() {
		n -= a.framer.Leading()
	}
	return n > 0 || a.framer.Done()
}

// refusal is an error event that came instead of an answer.
func (a *relay) refusal(payload []byte) *failure {
	status := errorCode(payload)
	typed, isTyped := api.ReadTypedError(payload)
	if status == 0 && isTyped {
		status = typed.Status
	}
	f := &failure{outcome: OutcomeFailed, retry: true, reason: "error_event", status: 502}
	switch {
	case status == 429 || status == 503:
		f.outcome, f.status, f.wait = OutcomeBusy, status, time.Second
	case status >= 400 && status < 500:
		f.outcome, f.retry, f.status = OutcomeRejected, false, status
	}
	f.head.SetContentType("application/json")
	f.body = bytes.Clone(payload)
	switch {
	case isTyped:
		f.err = typed.ForClient()
		if f.outcome == OutcomeBusy {
			f.err = unreadable(f.status, f.wait)
		}
	case !isErrorJSON(f.body):
		f.err = unreadable(f.status, f.wait)
	}
	return f
}
