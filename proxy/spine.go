package proxy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// complete serves one request that goes to a replica, from its body to its answer.
// What the answer's relay holds is given back by request.end, on every path.
//
// A goroutine waits for a replica inside dispatch and attempt. What they call first
// has returned by then, which keeps the frames of a waiting stream's stack few.
func (r *request) complete(ep api.Endpoint) {
	if !r.admit(ep) {
		return
	}
	switch f, quiet := r.dispatch(); {
	case quiet:
		r.open()
	case f != nil:
		r.refuse(f)
	default:
		r.begin(r.tries.answer)
	}
}

// admit reads and parses the body and arms the request. It reports false when that
// ended the request.
func (r *request) admit(ep api.Endpoint) bool {
	if !r.takePlace() {
		return false
	}
	h := &r.ctx.Request.Header
	r.debug = r.s.cfg.Debug && string(h.Peek("X-Hearsay-Debug")) == "1"

	if fault := r.take(ep); fault != nil {
		r.fail(fault)
		return false
	}
	if ep == api.Count && r.countHere() {
		return false
	}

	var err error
	if ep == api.Messages {
		pool, _ := r.s.core.store.View().Resolve(r.ask.Model)
		err = r.translate(pool, pool != nil && len(pool.Spec.Fallback) > 0)
	}
	if err == nil {
		r.job, err = r.enter(r.following.pool)
	}
	if err != nil {
		r.fail(api.AsError(err))
		return false
	}
	r.pool = r.job.Pool().Spec.Name
	if othersMay(&r.ask) {
		r.fallbacks = r.job.Pool().Spec.Fallback
	}
	if err := r.arm(); err != nil {
		r.fail(shuttingDown())
		return false
	}
	r.call.end = r.began.Add(orDefault(r.job.Pool().Spec.TotalTimeout, defaultTotal))
	r.takeLegs()
	if r.hears() {
		r.heart.gone = r.call.cancel
		r.heart.every = r.job.Pool().Spec.Heartbeat
		r.heart.start(time.Now())
	}
	return true
}

// take reads what is asked for, and where that has to go if one replica alone has it.
func (r *request) take(ep api.Endpoint) (fault *api.Error) {
	if ep == api.Stored {
		return r.stored()
	}
	if fault = r.claim(); fault != nil {
		return fault
	}
	if r.ask, r.body, fault = r.read(ep); fault != nil || ep != api.Responses {
		return fault
	}
	r.following, fault = r.s.core.follow(&r.ask)
	return fault
}

// enter admits the request to a pool, nil for the one of its model.
func (r *request) enter(pool *state.PoolView) (*Job, error) {
	r.native = r.chat == nil && r.ask.Endpoint.Shape() == api.Anthropic
	asked, body := r.sent()
	tenant, weight := r.client.Share()
	c := r.s.core
	a := Ask{
		ID: r.id, Request: asked, Body: body, Session: string(r.ctx.Request.Header.Peek("X-Session-Id")),
		Tenant: tenant, Weight: weight, Band: r.band(pool, asked),
		Pool: pool, Only: r.following.only, MaxWait: maxWait(r.ctx.Request.Header.Peek("X-Hearsay-Max-Wait")),
	}
	j, err := c.Admit(&a)
	asked.Hashed()
	if err == nil {
		c.prompts.keep(j, &a, c.now())
		c.warm.keep(j, &a, c.now())
	}
	return j, err
}

// maxWait reads how long a client wants to wait in a queue at most: seconds, or a
// duration with its unit. 0 is no wish.
func maxWait(v []byte) time.Duration {
	if len(v) == 0 {
		return 0
	}
	d, err := time.ParseDuration(string(v))
	if s, e := strconv.ParseFloat(string(v), 64); e == nil && s >= 0 && s < 1e6 {
		d, err = time.Duration(s*float64(time.Second)), nil
	}
	if err != nil || d < 0 {
		return 0
	}
	return max(1, d) // it may not want to wait at all
}

// takeLegs notes whether the job may be served in two legs.
func (r *request) takeLegs() {
	if r.legs = nil; r.job.legs != nil && r.job.legs.body != nil {
		r.legs = &legs{}
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

// upstreamPath is the path replicas are asked at: one of those known, never what a
// client wrote.
func (r *request) upstreamPath() string {
	switch ask, _ := r.sent(); ask.Endpoint {
	case api.Completions:
		return "/v1/completions"
	case api.Embeddings:
		return "/v1/embeddings"
	case api.Messages:
		return "/v1/messages"
	case api.Count:
		return "/v1/messages/count_tokens"
	case api.Responses:
		return "/v1/responses"
	case api.Other, api.Stored:
		return r.path
	}
	return "/v1/chat/completions"
}

func (r *request) fields(dst []byte, spec *state.PoolSpec, replica *state.ReplicaView) []byte {
	to := recipient{
		key: r.s.keys.of(spec), rank: -1, load: r.asksLoad(spec, replica),
		xKey: r.native && kindOf(spec, replica) == state.EngineAnthropic,
	}
	if spec.RanksOf(&replica.Replica) > 1 {
		to.rank = replica.Rank
	}
	return appendFields(dst, &r.ctx.Request.Header, r.id, r.ctx.RemoteAddr(), to)
}

// prepare makes the exchange with a replica, and what is sent to it.
func (r *request) prepare(spec *state.PoolSpec, replica *state.ReplicaView, pool *connPool, bare bool) {
	r.edit(spec, replica, bare)
	r.addRank(spec, replica)
	if r.legs != nil {
		r.editLegs()
	}
	r.assemble(spec, replica, pool)
	if r.legs != nil && r.legs.decode != nil {
		r.x.call = r.legs.decode
	}
}

// assemble makes the exchange with a replica of what has been noted to be edited.
func (r *request) assemble(spec *state.PoolSpec, replica *state.ReplicaView, pool *connPool) {
	_, body := r.sent()
	r.out.body = splice(r.out.body[:0], body, r.edits)
	var room [512]byte
	fields := r.fields(room[:0], spec, replica)
	r.out.head = appendRequest(slices.Grow(r.out.head[:0], len(fields)+128), r.method, r.upstreamPath(), pool.addr, fields, r.out.size())
	r.x = exchange{call: r.call, pool: pool, resp: r.x.resp, waits: waits{
		connect:   orDefault(spec.ConnectTimeout, defaultConnect),
		firstByte: orDefault(spec.FirstByteTimeout, defaultFirstByte),
		idle:      orDefault(spec.IdleTimeout, defaultIdle),
	}}
	r.x.onConnect = func() { r.phase = phaseWaiting }
	r.x.hasty = kindOf(spec, replica) == state.EngineLlamaCpp
	if r.hears() {
		r.x.heart = &r.heart
	}
}

// hears reports whether the client can be told that it is waited: in comments of an
// event stream, whose length no head gives.
func (r *request) hears() bool { return r.ask.Stream && r.ctx.Request.Header.IsHTTP11() }

// upstreamName is what a replica calls the pool's model, or an adapter of it. An adapter
// has one name everywhere, but SGLang takes it for one only behind its model's, which has
// no colon, and answers any other name as the model itself.
func upstreamName(spec *state.PoolSpec, replica *state.ReplicaView, adapter string) string {
	switch {
	case adapter == "":
		return spec.UpstreamName()
	case kindOf(spec, replica) == state.EngineSGLang:
		model, _, _ := strings.Cut(spec.UpstreamName(), ":")
		return model + ":" + adapter
	}
	return adapter
}

// edit notes what a replica must see differently; a bare body does not ask for
// usage.
func (r *request) edit(spec *state.PoolSpec, replica *state.ReplicaView, bare bool) {
	r.edits, r.usage, r.shown = r.edits[:0], false, ""
	ask, body := r.sent()
	kind := kindOf(spec, replica)
	r.capEdits(ask, body, kind)
	tenant, _ := r.client.Share()
	r.edits = saltEdits(r.edits, ask, spec, kind, tenant)
	if name := upstreamName(spec, replica, r.job.Adapter()); name != ask.Model {
		r.edits = ask.RenameModel(r.edits, name)
		r.shown = string(scan.AppendQuoted(nil, ask.Model))
	}
	if r.following.id != "" && ask.Previous.Present() {
		r.edits = append(r.edits, api.Edit{Span: ask.Previous, With: string(scan.AppendQuoted(nil, r.following.id))})
	}
	switch {
	case bare, ask.Endpoint == api.Other, ask.Endpoint == api.Responses, ask.Endpoint == api.Stored, r.native:
	default:
		n := len(r.edits)
		r.edits = ask.AskUsage(r.edits)
		r.usage = len(r.edits) > n
	}
}

// accept takes a good response: an event stream is looked into as far as its first
// event, anything else is read whole where it is short. What came encoded, though
// nobody asked for that, passes unread. It returns as attempt does.
func (r *request) accept() (f *failure, quiet bool) {
	t := &r.tries
	if t.answer == nil {
		a := &relay{r: r}
		t.answer = a
		enc := r.x.resp.ContentEncoding()
		a.encoded = len(enc) > 0 && !equalFold(enc, "identity")
		if isEventStream(r.x.resp.ContentType()) && !a.encoded {
			a.watch()
		}
	}
	switch a := t.answer; {
	case a.stream:
		f, quiet = a.peek()
	case a.encoded && isEventStream(r.x.resp.ContentType()):
	default:
		f = a.load()
	}
	switch {
	case quiet:
		return nil, true
	case f == nil && r.heart.w != nil && !t.answer.stream:
		f = broken("bad_response", true) // the client has been promised events
	}
	if f != nil {
		t.answer.free()
		return f, false
	}
	if t.refused {
		// Only now it is known: an error may also quote what a client wrote.
		r.s.core.noUsage.add(r.replica.URL)
	}
	return nil, false
}

// begin commits to the answer: from here on no other replica is tried.
func (r *request) begin(a *relay) {
	resp := &r.ctx.Response
	resp.SetStatusCode(r.x.resp.StatusCode())
	copyFields(&resp.Header, r.x.resp)
	h := &resp.Header
	setID(h, r.id, r.ask.Endpoint.Shape())
	r.status = resp.StatusCode()
	switch {
	case a.whole:
		r.debugFields(h)
		r.releaseBody()
		resp.SetBodyRaw(a.ahead)
		a.finish(nil)
	case !r.ctx.Request.Header.IsHTTP11() && a.size() < 0:
		r.debugFields(h)
		a.plain()
	default:
		if a.stream {
			r.streamFields(h)
		} else {
			r.debugFields(h)
		}
		resp.SetBodyStream(a, a.size())
	}
}

// streamFields are the headers of every stream's answer.
func (r *request) streamFields(h *fasthttp.ResponseHeader) {
	setID(h, r.id, r.ask.Endpoint.Shape())
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	r.debugFields(h)
}

// debugFields names the pick to a client that may know it.
func (r *request) debugFields(h *fasthttp.ResponseHeader) {
	if r.debug {
		debugFields(h, r.s.core.store.View().Self, r.job.Pick())
	}
}
