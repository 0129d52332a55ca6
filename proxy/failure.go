package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// failure is how an attempt failed before anything of it reached the client: what
// to tell the client if nothing else helps, and whether another replica may.
type failure struct {
	outcome Outcome
	retry   bool
	reason  string        // label
	wait    time.Duration // what to tell the client of a busy replica
	asked   time.Duration // what it asked for itself; 0: it did not say
	// unreached: there was no connection, so nothing was sent
	unreached bool
	// other: it was the other leg that failed, not the replica of the attempt
	other bool
	// shed is why the request was refused for want of capacity, as metrics have it; empty:
	// it was not, or replicas that were asked were busy
	shed string

	// Either err, or the replica's own answer.
	err    *api.Error
	status int
	head   fasthttp.ResponseHeader
	body   []byte
}

// result is what an attempt that failed so comes to.
func (f *failure) result() *Result {
	return &Result{Outcome: f.outcome, RetryAfter: f.asked, Limited: f.status == http.StatusTooManyRequests}
}

// shedShutdown is the reason of what the router's end cuts off.
const shedShutdown = "shutdown"

// shuttingDown is for requests that the router's end cuts off.
func shuttingDown() *api.Error {
	e := api.Unavailable(shedShutdown, time.Second)
	e.Code, e.Message = "shutting_down", "The router is shutting down. Try again."
	return e
}

// broken is a replica that failed.
func broken(reason string, retry bool) *failure {
	return &failure{outcome: OutcomeFailed, retry: retry, reason: reason, err: api.BadGateway(reason)}
}

// unreachable is a replica that no connection could be made to. Should no replica
// have been reached, the client is told what it is told once that is known.
func unreachable(reason string) *failure {
	e := api.Unavailable("all_"+routing.ExcludedUnreachable, unreachableWait)
	e.Message = "No replica of this model could be reached. Try again later."
	return &failure{outcome: OutcomeFailed, retry: true, reason: reason, unreached: true, err: e}
}

// unreachableWait is when a client may ask again that met unreachable replicas
// alone: by then they have been found out, or are back.
const unreachableWait = 2 * time.Second

// unsent is an attempt that brought no usable response head.
func (r *request) unsent(err error) *failure {
	reason := "transport"
	switch {
	case errors.Is(err, errClientGone), errors.Is(err, errShutdown):
		return &failure{outcome: OutcomeAborted, reason: "aborted", err: api.ClientClosed()}
	case errors.Is(err, errOtherLeg):
		return r.otherLeg()
	case errors.Is(err, errPoolFull):
		return &failure{
			outcome: OutcomeBusy, retry: true, reason: "connections", wait: time.Second,
			err: api.Unavailable("connections", time.Second),
		}
	case errors.Is(err, errConnectTimeout):
		f := unreachable("connect_timeout")
		f.outcome = OutcomeTimeout
		return f
	case errors.Is(err, errFirstByteTimeout), errors.Is(err, errIdleTimeout):
		return &failure{outcome: OutcomeTimeout, retry: true, reason: "timeout", err: api.GatewayTimeout("first_byte_timeout")}
	case errors.Is(err, errTotalTimeout):
		return &failure{outcome: OutcomeAborted, reason: "total_timeout", err: api.GatewayTimeout("total_timeout")}
	case errors.Is(err, errBadResponse):
		reason = "bad_response"
	case r.x.conn == nil:
		return unreachable("connect")
	}
	return broken(reason, true)
}

// rejected reads a response that is no success.
func (r *request) rejected(status int) *failure {
	f := &failure{status: status, reason: "status_" + strconv.Itoa(status/100) + "xx"}
	r.x.resp.CopyTo(&f.head)
	r.x.started = true // an error is not waited for as a first token is
	body, err := readBounded(&r.x, r.s.limits.ErrorBytes)
	if err != nil && status >= 500 && status != http.StatusServiceUnavailable && status != api.StatusOverloaded || errors.Is(err, errClientGone) || errors.Is(err, errShutdown) {
		return r.unsent(err)
	}
	f.body = body
	if err == nil {
		r.x.close() // read whole: the connection is good
	}
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == api.StatusOverloaded:
		f.outcome, f.retry, f.reason = OutcomeBusy, true, "busy"
		f.asked = retryAfter(f.head.Peek("Retry-After"), time.Now())
		f.wait = max(f.asked, time.Second)
	case status >= 600: // no status
		return broken("bad_response", true)
	case status >= 500 && kindOf(&r.job.Pool().Spec, r.replica) == state.EngineLlamaCpp && api.LlamaMistake(body):
		f.outcome = OutcomeRejected
	case status >= 500:
		f.outcome, f.retry = OutcomeFailed, true
	case status >= 400:
		f.outcome, f.retry = OutcomeRejected, r.unlisted(status, body)
	default: // a redirect, or success without content: no engine means that
		return broken("bad_response", true)
	}
	if !isErrorJSON(body) || err != nil {
		f.err = unreadable(status, f.wait)
	}
	return f
}

// unlisted reports whether a replica says that it does not have the request's adapter:
// it was unloaded since the last reading, and another replica may have it still.
func (r *request) unlisted(status int, body []byte) bool {
	return r.job != nil && r.job.Adapter() != "" && // a prefill beside the answer has no job
		(status == http.StatusNotFound || status == http.StatusBadRequest && bytes.Contains(body, []byte("LoRA adapter")))
}

// told is a replica's own words as an error of ours, for a stream that has begun.
func (f *failure) told() *api.Error {
	e, ok := api.ReadError(f.body)
	if !ok {
		return unreadable(f.status, f.wait)
	}
	e.Status = f.status
	return e.ForClient()
}

// unreadable stands in for an error that a client of this API could not read. A
// client's mistake stays one.
func unreadable(status int, wait time.Duration) *api.Error {
	switch {
	case status == http.StatusTooManyRequests:
		return api.Overloaded("replicas_busy", wait)
	case status == http.StatusServiceUnavailable || status == api.StatusOverloaded:
		e := api.Unavailable("replicas_busy", wait)
		e.Code, e.Message = "overloaded", "The replicas of this model are busy. Try again later."
		return e
	case status >= 400 && status < 500:
		e := api.BadRequest("", "The model's replica refused the request.")
		e.Status, e.Reason = status, "replica_refused"
		return e
	}
	return api.BadGateway("bad_response")
}

// isErrorJSON reports whether a body is a JSON object, as engines' errors are.
func isErrorJSON(body []byte) bool {
	b := bytes.TrimSpace(body)
	return len(b) > 1 && b[0] == '{' && jsonValid(b)
}

// blamesUsage reports whether a replica refused the usage we asked for.
func (f *failure) blamesUsage() bool {
	return (f.status == http.StatusBadRequest || f.status == http.StatusUnprocessableEntity) &&
		(bytes.Contains(f.body, []byte("stream_options")) || bytes.Contains(f.body, []byte("include_usage")))
}

// maxRetryAfter caps what a replica may ask for: some ask for a week.
const maxRetryAfter = time.Minute

// retryAfter reads a Retry-After header: seconds or a date. 0 is none.
func retryAfter(v []byte, now time.Time) time.Duration {
	if len(v) == 0 {
		return 0
	}
	if n, err := strconv.ParseFloat(string(v), 64); err == nil {
		if !(n > 0) {
			return 0
		}
		return time.Duration(min(n, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	t, err := http.ParseTime(string(v))
	if err != nil {
		return 0
	}
	return max(0, min(t.Sub(now), maxRetryAfter))
}

// seconds is a duration in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// readBounded reads a body whole when it has at most limit bytes. Of a longer one
// it returns what it has read, with errTooLong.
func readBounded(x *exchange, limit int) ([]byte, error) {
	start := 1 << 10
	if n := x.body.size(); n >= 0 {
		start = int(min(n, relayBuffer)) // the replica's word is good for so much
	}
	b := make([]byte, 0, min(start, limit+1))
	for !x.body.done() {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := x.Read(b[len(b):min(cap(b), limit+1)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		case len(b) > limit:
			return b, errTooLong
		}
	}
	return b, nil
}

var errTooLong = errors.New("body is longer than its limit")

// urlSet is a small set of replica URLs. Safe for concurrent use.
type urlSet struct {
	mu sync.Mutex
	m  map[string]bool // guarded by mu
}

// maxURLs bounds the set; past it, it starts anew.
const maxURLs = 4096

func (s *urlSet) add(u string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= maxURLs {
		s.m = make(map[string]bool)
	}
	s.m[u] = true
}

func (s *urlSet) has(u string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[u]
}
