package proxy

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// handle is the server's handler: it contains panics, refuses ambiguous framing,
// and finds what a path is for.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	r := &request{s: s, ctx: ctx, began: time.Now(), pool: unknownPool}
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
			r.abandon()
			clearResponse(&ctx.Response)
			r.fail(api.Internal())
			ctx.SetConnectionClose()
		}
	}()
	r.conn, _ = ctx.Conn().(*clientConn)
	h := &ctx.Request.Header
	r.id = requestID(h.PeekAll("X-Request-Id")...)
	if !r.receive() {
		return
	}
	if s.draining.Load() || r.conn != nil && r.began.Sub(r.conn.accepted) > s.limits.ConnAge {
		ctx.SetConnectionClose()
	}
	if !h.IsHTTP11() {
		ctx.SetConnectionClose()
	}
	if r.ws = asksWebSocket(h); r.ws {
		r.closing() // frames may follow
	}
	if ep, ok := s.route(ctx, r); ok {
		if ep == api.Other {
			r.path = string(ctx.Path())
		}
		r.complete(ep)
	}
}

// receive reads the request's body, when its end is clear. It reports false when
// the request has been refused.
func (r *request) receive() bool {
	c, raw := r.conn, r.ctx.Request.Header.RawHeaders()
	var stranger *api.Error
	size, fault := framing(raw)
	if fault == "" && c != nil && !c.head.agrees(raw) {
		fault = errHead.Error()
	}
	var refusal *api.Error
	switch version := string(r.ctx.Request.Header.Protocol()); {
	case fault != "":
		refusal = badFraming("The request is refused: " + fault + ".")
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		refusal = api.VersionNotSupported()
	}
	if refusal != nil {
		if c != nil {
			c.answering()
		}
		r.fail(refusal)
		r.closing()
		return false
	}
	if r.client, stranger = r.s.clientOf(r.ctx); c == nil {
		if stranger != nil {
			r.unknownClient(stranger)
		}
		return stranger == nil
	}
	if stranger != nil && (size < 0 || size > int64(len(c.ahead))) {
		c.answering() // a stranger's body that has not come with its head is not waited for
		r.unknownClient(stranger)
		r.closing()
		return false
	}
	body, err := c.readBody(size)
	if err != nil {
		r.s.badRequest(r.ctx, r.id, err)
		return false
	}
	c.answering()
	if stranger != nil {
		r.unknownClient(stranger)
		return false
	}
	r.ctx.Request.SetBodyRaw(body)
	r.began = time.Now()
	return true
}

// closing ends the connection behind the answer, whatever the client still sends.
func (r *request) closing() {
	r.ctx.SetConnectionClose()
	if r.conn != nil {
		r.conn.linger = true
	}
}

// expect decides whether a client that asks first may send its body.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	h := &ctx.Request.Header
	var e *api.Error
	path := string(ctx.Path())
	switch size, fault := framing(h.RawHeaders()); {
	case fault != "":
		e = badFraming("The request is refused: " + fault + ".")
	case allowed(path) == "":
		e = api.NotFound()
	case allowed(path) != postOnly || !ctx.IsPost():
		e = api.MethodNotAllowed(allowed(path))
	case size > int64(s.limits.BodyBytes):
		e = api.BodyTooLarge(int64(s.limits.BodyBytes))
	default:
		if _, e = s.clientOf(ctx); e != nil {
			ctx.Response.Header.Set("WWW-Authenticate", "Bearer")
			break
		}
		if _, e = mediaOf(api.EndpointOf(path), h.ContentType()); e != nil {
			break
		}
		if _, e = encodingOf(h); e == nil {
			return http.StatusContinue
		}
	}
	s.metrics.requests.WithLabelValues(unknownPool, strconv.Itoa(e.Status)).Inc()
	s.writeError(ctx, requestID(h.PeekAll("X-Request-Id")...), e)
	return e.Status
}

// allowed is the methods a path takes, "" for a path that is not served.
func allowed(path string) string {
	switch ep := api.EndpointOf(path); {
	case ep == api.Chat || ep == api.Completions || ep == api.Embeddings || ep == api.Responses || ep == api.Messages || ep == api.Count || api.PassedThrough(path):
		return postOnly
	case ep == api.Stored:
		return storedMethods(path)
	case ep == api.Models, path == "/livez", path == "/readyz", path == "/health":
		return getOnly
	}
	return ""
}

// Paths that are served, beside /v1/models/{id}, with the methods they take.
const (
	getOnly  = "GET, HEAD, OPTIONS"
	postOnly = "POST, OPTIONS"
)

// route decides by the parsed path, which has no dot segments and no doubled
// slashes left. It answers what no replica is needed for, and tells the endpoint of
// anything else.
func (s *Server) route(ctx *fasthttp.RequestCtx, r *request) (ep api.Endpoint, ok bool) {
	path := string(ctx.Path())
	ep = api.EndpointOf(path)
	method := string(ctx.Method())
	allow := allowed(path)
	if string(ctx.RequestURI()) == "*" && method == fasthttp.MethodOptions {
		allow = "GET, HEAD, POST, OPTIONS"
	}
	switch {
	case allow == "":
		r.fail(api.NotFound())
	case method == fasthttp.MethodOptions:
		ctx.Response.Header.Set("Allow", allow)
		r.answer(http.StatusNoContent, "", nil)
	case !slices.Contains(strings.Split(allow, ", "), method):
		ctx.Response.Header.Set("Allow", allow)
		r.fail(api.MethodNotAllowed(allow))
	case (allow == postOnly || ep == api.Stored) && r.ws:
		r.fail(api.UpgradeRefused())
	case allow == postOnly || ep == api.Stored:
		return ep, true
	case path == "/readyz":
		s.readyz(ctx, r)
	case ep == api.Models:
		s.models(path, r)
	default:
		r.answer(http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
	}
	return ep, false
}

// modelInfo is one entry of the model list.
type modelInfo struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// Of an adapter: itself, as vLLM has its place here, and its model.
	Root   string `json:"root,omitempty"`
	Parent string `json:"parent,omitempty"`
}

// models lists the pools' public names and the adapters that their replicas list, or
// shows one of them. A pool without replicas is listed too: it will be served when it
// has one.
func (s *Server) models(path string, r *request) {
	created := s.core.started.Unix()
	info := func(id, parent string) modelInfo {
		m := modelInfo{ID: id, Object: "model", Created: created, OwnedBy: "hearsay"}
		if parent != "" {
			m.Root, m.Parent = id, parent
		}
		return m
	}
	v := s.core.store.View()
	if id := strings.TrimPrefix(strings.TrimPrefix(path, "/v1/models"), "/"); id != "" {
		p, adapter := v.Resolve(id)
		switch {
		case p == nil:
			r.fail(api.ModelNotFound(id))
		case adapter != "":
			r.answerJSON(http.StatusOK, info(id, p.Spec.Model))
		default:
			r.answerJSON(http.StatusOK, info(id, ""))
		}
		return
	}
	list := struct {
		Object string      `json:"object"`
		Data   []modelInfo `json:"data"`
	}{Object: "list", Data: []modelInfo{}}
	seen := map[string]bool{}
	for _, p := range v.Pools {
		for _, id := range append([]string{p.Spec.Model}, p.Spec.Aliases...) {
			if id != "" && !seen[id] {
				seen[id] = true
				list.Data = append(list.Data, info(id, ""))
			}
		}
	}
	for _, p := range v.Pools {
		for _, id := range p.Adapters() {
			if of, adapter := v.Resolve(id); of == p && adapter != "" && !seen[id] {
				seen[id] = true
				list.Data = append(list.Data, info(id, p.Spec.Model))
			}
		}
	}
	r.answerJSON(http.StatusOK, list)
}

// poolState is a pool in the verbose readiness answer.
type poolState struct {
	Name     string `json:"name"`
	Model    string `json:"model"`
	Replicas int    `json:"replicas"`
	Draining int    `json:"draining"`
	// Of a pool whose replicas serve legs: those that can take one now, and what is
	// missing for a whole answer.
	Prefill *int   `json:"prefill,omitempty"`
	Decode  *int   `json:"decode,omitempty"`
	Missing string `json:"missing,omitempty"`
}

// readyz says whether the router should get traffic. Pools without replicas do not
// make it unready: it answers for them.
func (s *Server) readyz(ctx *fasthttp.RequestCtx, r *request) {
	state := Readiness{Ready: true}
	if s.cfg.Ready != nil {
		state = s.cfg.Ready()
	}
	if s.draining.Load() {
		reasons := map[string]string{"shutdown": errShutdown.Error()}
		for k, v := range state.Reasons {
			reasons[k] = v
		}
		state = Readiness{Reasons: reasons}
	}
	status := http.StatusOK
	if !state.Ready {
		status = http.StatusServiceUnavailable
	}
	if !ctx.QueryArgs().Has("verbose") {
		text := "ok\n"
		if !state.Ready {
			text = "not ready\n"
		}
		r.answer(status, "text/plain; charset=utf-8", []byte(text))
		return
	}
	out := struct {
		Readiness
		Pools []poolState `json:"pools"`
	}{Readiness: state, Pools: []poolState{}}
	v := s.core.store.View()
	for _, p := range v.Pools {
		ps := poolState{Name: p.Spec.Name, Model: p.Spec.Model, Replicas: len(p.Replicas)}
		for _, rep := range p.Replicas {
			if rep.Draining {
				ps.Draining++
			}
		}
		if l := p.Legs(v.Weights, time.Now()); p.Split {
			ps.Prefill, ps.Decode, ps.Missing = &l.Prefill, &l.Decode, l.Missing()
		}
		out.Pools = append(out.Pools, ps)
	}
	r.answerJSON(status, out)
}

func (r *request) answerJSON(status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		r.fail(api.Internal())
		return
	}
	r.answer(status, "application/json", b)
}

// clearResponse takes back what was set. The library's Reset would also forget how
// the server was told to write headers.
func clearResponse(resp *fasthttp.Response) {
	resp.ResetBody()
	for _, k := range resp.Header.PeekKeys() {
		resp.Header.DelBytes(append([]byte(nil), k...))
	}
}

// writeError answers with an error in the shape that goes with the path.
func (s *Server) writeError(ctx *fasthttp.RequestCtx, id string, e *api.Error) {
	ctx.Response.ResetBody()
	ctx.Response.SetStatusCode(e.Status)
	h := &ctx.Response.Header
	h.SetContentType("application/json")
	shape := api.ShapeOf(string(ctx.Path()))
	setID(h, id, shape)
	if n := e.RetryAfterSeconds(); n > 0 {
		h.Set("Retry-After", strconv.Itoa(n))
	}
	ctx.Response.SetBodyRaw(e.Append(nil, shape))
}
