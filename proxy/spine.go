package proxy

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
)

// complete serves one request that goes to a replica, from its body to its answer.
// What the answer's relay holds is given back by request.end, on every path.
func (r *request) complete(ep api.Endpoint) {
	h := &r.ctx.Request.Header
	r.debug = r.s.cfg.Debug && string(h.Peek("X-Hearsay-Debug")) == "1"

	body, fault := r.readBody()
	if fault != nil {
		r.fail(fault)
		return
	}
	ask, err := api.Parse(ep, body)
	if err != nil {
		r.fail(api.AsError(err))
		return
	}
	r.ask, r.body = ask, body

	r.job, err = r.s.core.Admit(&Ask{ID: r.id, Request: &r.ask, Body: body, Session: string(h.Peek("X-Session-Id"))})
	if err != nil {
		r.fail(api.AsError(err))
		return
	}
	r.pool = r.job.Pool().Spec.Name
	if err := r.arm(); err != nil {
		r.fail(shuttingDown())
		return
	}
	r.call.end = r.began.Add(orDefault(r.job.Pool().Spec.TotalTimeout, defaultTotal))

	if f := r.dispatch(); f != nil {
		r.refuse(f)
	}
}

// Time limits of pools that set none.
const (
	defaultConnect   = 2 * time.Second
	defaultFirstByte = 10 * time.Minute
	defaultIdle      = 30 * time.Second
	defaultTotal     = time.Hour
	defaultAttempts  = 2
)

func orDefault[T time.Duration | int](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// dispatch tries replicas until one answers or nothing is left to try. It returns
// nil when an answer has been set up, and otherwise what to tell the client.
func (r *request) dispatch() *failure {
	var last, reached *failure
	wait := time.Duration(0) // the least that busy replicas asked for
	for {
		replica, err := r.job.Next()
		if err != nil {
			if last == nil {
				last = &failure{outcome: OutcomeBusy, err: api.AsError(err)}
				r.s.metrics.shed.WithLabelValues(r.pool, last.err.Reason).Inc()
			}
			break
		}
		if last != nil {
			r.s.metrics.retries.WithLabelValues(r.pool, last.reason).Inc()
		}
		r.replica = replica
		r.phase = phaseConnecting
		f := r.attempt(replica)
		if f == nil {
			return nil
		}
		r.x.drop()
		r.job.End(&Result{Outcome: f.outcome, RetryAfter: f.asked})
		if f.outcome == OutcomeBusy && f.wait > 0 && (wait == 0 || f.wait < wait) {
			wait = f.wait
		}
		last = f
		if !f.unreached {
			reached = f
		}
		if !f.retry || r.call.cause() != nil ||
			r.job.Attempts() >= orDefault(r.job.Pool().Spec.RetryAttempts, defaultAttempts) {
			break
		}
	}
	switch {
	case last.unreached && reached != nil:
		last = reached // what a replica said is worth more than that another is away
	case last.unreached:
		r.s.metrics.shed.WithLabelValues(r.pool, last.err.Reason).Inc()
	}
	if last.outcome == OutcomeBusy && wait > 0 {
		last.wait = wait
	}
	return last
}

// attempt sends the request to one replica. It returns nil when the answer is on
// its way to the client, and otherwise how the attempt failed: then nothing has
// reached the client.
func (r *request) attempt(replica *state.ReplicaView) *failure {
	spec := &r.job.Pool().Spec
	pool, err := r.s.up.of(replica.URL)
	if err != nil {
		return broken("bad_url", true)
	}
	bare := r.s.core.noUsage.has(replica.URL)
	refused := false // asking for usage was
	for {
		r.prepare(spec, bare)
		r.addRank(spec, replica)
		r.x = exchange{call: r.call, pool: pool, resp: r.x.resp, waits: waits{
			connect:   orDefault(spec.ConnectTimeout, defaultConnect),
			firstByte: orDefault(spec.FirstByteTimeout, defaultFirstByte),
			idle:      orDefault(spec.IdleTimeout, defaultIdle),
		}}
		r.out = splice(r.out[:0], r.body, r.edits)
		out := outgoing{body: r.out}
		r.head = appendRequest(r.head[:0], upstreamPath(r.ask.Endpoint), pool.addr, r.fields(spec, replica), out.size())
		out.head = r.head
		r.x.onConnect = func() { r.phase = phaseWaiting }
		if err := r.x.send(&out); err != nil {
			return r.unsent(err)
		}
		r.noteLoad(spec, replica)
		if status := r.x.resp.StatusCode(); status >= 300 || status == http.StatusNoContent {
			f := r.rejected(status)
			if r.usage && f.blamesUsage() {
				// Our own addition may be what was refused: not the client's problem.
				r.x.drop()
				bare, refused = true, true
				continue
			}
			return f
		}
		f := r.accept()
		if f == nil && refused {
			// Only now it is known: an error may also quote what a client wrote.
			r.s.core.noUsage.add(replica.URL)
		}
		return f
	}
}

// upstreamPath is the path replicas are asked at: never what a client wrote.
func upstreamPath(ep api.Endpoint) string {
	switch ep {
	case api.Completions:
		return "/v1/completions"
	case api.Embeddings:
		return "/v1/embeddings"
	}
	return "/v1/chat/completions"
}

func (r *request) fields(spec *state.PoolSpec, replica *state.ReplicaView) []byte {
	rank := -1
	if spec.DPRanks > 1 {
		rank = replica.Rank
	}
	return appendFields(make([]byte, 0, 512), &r.ctx.Request.Header, r.id, r.ctx.RemoteAddr(), r.s.keys.of(spec), rank, r.asksLoad(spec, replica))
}

// prepare splices what a replica must see differently; a bare body does not ask
// for usage.
func (r *request) prepare(spec *state.PoolSpec, bare bool) {
	r.edits, r.usage = r.edits[:0], false
	if name := spec.UpstreamName(); name != r.ask.Model {
		r.edits = r.ask.RenameModel(r.edits, name)
	}
	if !bare {
		n := len(r.edits)
		r.edits = r.ask.AskUsage(r.edits)
		r.usage = len(r.edits) > n
	}
}

// accept takes a good response: an event stream is looked into as far as its first
// event, anything else is read whole where it is short. What came encoded, though
// nobody asked for that, passes unread.
func (r *request) accept() *failure {
	a := &relay{r: r}
	enc := r.x.resp.ContentEncoding()
	a.encoded = len(enc) > 0 && !equalFold(enc, "identity")
	if events := isEventStream(r.x.resp.ContentType()); events && a.encoded {
		r.begin(a)
		return nil
	} else if events {
		a.watch()
		if f := a.peek(); f != nil {
			a.free()
			return f
		}
	} else if f := a.load(); f != nil {
		a.free()
		return f
	}
	r.begin(a)
	return nil
}

// begin commits to the answer: from here on no other replica is tried.
func (r *request) begin(a *relay) {
	resp := &r.ctx.Response
	resp.SetStatusCode(r.x.resp.StatusCode())
	copyFields(&resp.Header, r.x.resp)
	h := &resp.Header
	h.Set("x-request-id", r.id)
	if r.debug {
		debugFields(h, r.s.core.store.View().Self, r.job.Pick())
	}
	r.status = resp.StatusCode()
	r.releaseBody()
	switch {
	case a.whole:
		resp.SetBodyRaw(a.ahead)
		a.finish(nil)
	case !r.ctx.Request.Header.IsHTTP11() && a.size() < 0:
		a.plain()
	default:
		if a.stream {
			h.Set("Cache-Control", "no-cache")
			h.Set("X-Accel-Buffering", "no")
		}
		r.phase = phaseStreaming
		resp.SetBodyStream(a, a.size())
	}
}

// refuse answers a request that no replica served.
func (r *request) refuse(f *failure) {
	r.reason = f.reason
	switch cause := r.call.cause(); {
	case errors.Is(cause, errClientGone):
		r.s.metrics.disconnect.WithLabelValues(string(r.phase)).Inc()
		r.ctx.SetConnectionClose()
		r.fail(api.ClientClosed())
		return
	case cause != nil:
		r.ctx.SetConnectionClose()
		r.fail(shuttingDown())
		return
	}
	if f.outcome == OutcomeBusy && r.job.Attempts() > 0 {
		r.s.metrics.shed.WithLabelValues(r.pool, "replicas_busy").Inc()
	}
	if f.err != nil {
		if f.outcome == OutcomeBusy && f.wait > 0 {
			e := *f.err
			e.RetryAfter = f.wait
			f.err = &e
		}
		r.fail(f.err)
		return
	}
	r.pass(f)
}

// pass relays a replica's own error as it is.
func (r *request) pass(f *failure) {
	h := &r.ctx.Response.Header
	copyFields(h, &f.head)
	if f.outcome == OutcomeBusy && f.wait > 0 {
		h.Set("Retry-After", seconds(f.wait))
	}
	if r.debug {
		debugFields(h, r.s.core.store.View().Self, r.job.Pick())
	}
	r.answer(f.status, string(f.head.ContentType()), f.body)
}

// plain answers an HTTP/1.0 client with a body of unknown length: it ends where
// the connection does. A broken one ends with a reset.
func (a *relay) plain() {
	r := a.r
	resp := &r.ctx.Response
	if r.ctx.ConnRequestNum() > 1 {
		// An answer before it may still lie in the server's buffer.
		a.finish(errClientGone)
		clearResponse(resp)
		resp.SetStatusCode(http.StatusHTTPVersionNotSupported)
		return
	}
	r.phase = phaseStreaming
	r.ctx.SetConnectionClose()
	head := append([]byte("HTTP/1.0 "), seconds(time.Duration(resp.StatusCode())*time.Second)...)
	head = append(head, " "...)
	head = append(head, fasthttp.StatusMessage(resp.StatusCode())...)
	head = append(head, "\r\nConnection: close\r\n"...)
	for k, v := range resp.Header.All() {
		if s := string(k); s != "Content-Length" && s != "Transfer-Encoding" && s != "Connection" {
			head = append(append(append(append(head, k...), ": "...), v...), "\r\n"...)
		}
	}
	head = append(head, "\r\n"...)
	conn := r.ctx.Conn()
	_, err := conn.Write(head)
	if err == nil {
		_, err = a.WriteTo(conn)
	}
	a.finish(err)
	if err != nil && err != io.EOF && r.conn != nil {
		if l, ok := r.conn.Conn.(interface{ SetLinger(int) error }); ok {
			_ = l.SetLinger(0)
		}
	}
	_ = conn.Close()
}
