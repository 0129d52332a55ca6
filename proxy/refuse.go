package proxy

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/api/messages"
)

// refuse answers a request that no replica served.
func (r *request) refuse(f *failure) {
	fault := r.verdict(f)
	if r.call.cause() != nil {
		r.ctx.SetConnectionClose()
	}
	if fault != nil {
		r.fail(fault)
		return
	}
	r.pass(f)
}

// verdict counts a request that no replica served, remembers why, and says what its
// client is told: nil for a replica's own words.
func (r *request) verdict(f *failure) *api.Error {
	e := r.judge(f)
	r.noteRefusal(e, f)
	return e
}

func (r *request) judge(f *failure) *api.Error {
	r.reason = f.reason
	r.place.Leave()
	switch cause := r.call.cause(); {
	case errors.Is(cause, errClientGone):
		r.s.metrics.disconnect.WithLabelValues(string(r.phase)).Inc()
		return api.ClientClosed()
	case cause != nil:
		return shuttingDown()
	}
	switch {
	case f.shed != "":
		r.s.core.shed(r.pool, f.shed)
		r.job.missed()
	case f.outcome == OutcomeBusy && r.job.Attempts() > 0:
		r.s.core.shed(r.pool, shedReplicasBusy)
		r.job.missed()
	}
	if f.err != nil && f.outcome == OutcomeBusy && f.wait > 0 {
		e := *f.err
		e.RetryAfter = f.wait
		return &e
	}
	return f.err
}

// pass relays a replica's own error as it is.
func (r *request) pass(f *failure) {
	h := &r.ctx.Response.Header
	copyFields(h, &f.head)
	if f.outcome == OutcomeBusy && f.wait > 0 {
		h.Set("Retry-After", seconds(f.wait))
	}
	r.debugFields(h)
	if shape := r.ask.Endpoint.Shape(); !reads(shape, f.body) {
		r.answer(f.status, "application/json", messages.Error(f.status, f.body).Append(nil, shape))
		return
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
		r.conn.reset()
	}
	_ = conn.Close()
}
