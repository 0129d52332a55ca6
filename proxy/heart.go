package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// errQuiet ends a wait for a replica whose client must hear something first.
var errQuiet = errors.New("nothing came for a while")

// comment is what a client hears when there is nothing else. Event streams have such
// lines for this: no client hands them on.
const comment = ": waiting\n\n"

// heart keeps the client of a stream from taking silence for death. While nothing
// comes from a replica, a comment goes out in every interval: between two events
// only, and also before the answer has begun. Then the answer's head goes out with
// the first one, and what follows is still open: as long as the client has seen
// comments alone, any replica may answer. It belongs to the goroutine that serves
// the request.
type heart struct {
	every time.Duration // 0: replicas' own comments are passed on and none are added
	due   time.Time

	w      io.Writer // the client's body; nil before the answer's head is out
	answer *relay    // what is being relayed; nil while the client sees comments alone
	stall  bool      // the client did not take what was written in time
	gone   func(cause error)
}

// start begins an interval.
func (h *heart) start(now time.Time) {
	if h.every > 0 {
		h.due = now.Add(h.every)
	}
}

// sound is called when an interval has passed. clean says that the wait may end here
// and be resumed; it ends with errQuiet where the answer's head has to go out first.
func (h *heart) sound(clean bool) error {
	h.start(time.Now())
	switch {
	case h.w == nil && clean:
		return errQuiet
	case h.w == nil, h.answer != nil && !h.answer.between():
		return nil
	}
	return h.say([]byte(comment))
}

// say writes comments to the client.
func (h *heart) say(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if _, err := h.w.Write(p); err != nil {
		h.stall = timedOut(err)
		h.gone(errClientGone)
		return errClientGone
	}
	h.start(time.Now())
	return nil
}

// early is the body of a stream whose head went out before there was an answer. The
// HTTP server drives it as it does a relay: replicas are waited for, and others
// tried, while it is being written.
type early struct {
	r    *request
	done bool
	err  error // why nothing answered
}

// open sends the answer's head with the first comments, and leaves the rest to the
// body.
func (r *request) open() {
	resp := &r.ctx.Response
	resp.SetStatusCode(http.StatusOK)
	h := &resp.Header
	h.SetContentType("text/event-stream")
	r.streamFields(h)
	r.status = http.StatusOK
	resp.SetBodyStream(&early{r: r}, -1)
}

// SupportsBodyWriteTo lets the HTTP server hand each piece on as it comes.
func (e *early) SupportsBodyWriteTo() bool { return true }

// WriteTo writes comments until there is an answer, and relays it.
func (e *early) WriteTo(w io.Writer) (n int64, err error) {
	r := e.r
	defer func() {
		if p := recover(); p != nil {
			r.s.panicked(p)
			e.err, err = errBroken, errBroken
		}
	}()
	out := &counted{w: w}
	h := &r.heart
	h.w = out
	first := []byte(comment)
	if a := r.tries.answer; a != nil && a.comments() > 0 {
		first = a.passComments()
	}
	_ = h.say(first) // a client that has gone is noticed by all that follows
	f, _ := r.dispatch()
	if f == nil {
		_, err := r.tries.answer.WriteTo(out)
		return out.n, err
	}
	e.err = errBroken
	fault := r.verdict(f)
	switch {
	case errors.Is(r.call.cause(), errClientGone):
		if r.reason = "client_closed"; h.stall {
			r.reason = "write_stall"
		}
		return out.n, errBroken
	case fault == nil:
		fault = f.told()
	}
	r.reason = "no_answer"
	_ = h.say(fault.AppendEvent(nil, r.ask.Endpoint.Shape(), 0))
	return out.n, errBroken
}

// Read is there for the HTTP server's interface; it uses WriteTo.
func (e *early) Read([]byte) (int, error) { return 0, errBroken }

// CloseWithError is called by the HTTP server when the answer has been written.
func (e *early) CloseWithError(err error) error {
	if e.done {
		return nil
	}
	e.done = true
	if a := e.r.tries.answer; a != nil && e.err == nil && e.r.heart.answer == a {
		return a.CloseWithError(err)
	}
	return e.close()
}

// close closes the books of a stream that nothing came of.
func (e *early) close() error {
	r := e.r
	defer func() {
		if p := recover(); p != nil {
			r.s.panicked(p)
			r.end(api.Internal().Status)
		}
	}()
	status := r.status
	if errors.Is(r.call.cause(), errClientGone) {
		status = api.StatusClientClosed
	}
	if a := r.tries.answer; a != nil {
		a.free()
	}
	r.brokeOff()
	r.end(status)
	return nil
}

// counted counts what is written.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	m, err := c.w.Write(p)
	c.n += int64(m)
	return m, err
}

// comments is how many comments came before the first event.
func (a *relay) comments() int {
	if a.framer == nil || a.framer.Events() > 0 || a.framer.Done() {
		return 0
	}
	return a.framer.Comments()
}

// passComments takes what came so far, whole comments alone, out of what is held for
// the answer. The start of an event stays. It is valid until more comes.
func (a *relay) passComments() []byte {
	cut := len(a.ahead) - a.framer.Partial()
	p := a.ahead[:cut]
	a.passed = a.framer.Comments()
	a.ahead = bytes.Clone(a.ahead[cut:])
	return p
}

// between reports whether something may be written to the client here without
// cutting an event.
func (a *relay) between() bool {
	return a.stream && !a.torn && a.failed == nil && a.framer.Between() && !a.framer.Done() && a.framer.Error() == nil
}
