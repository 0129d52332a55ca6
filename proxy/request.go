package proxy

import (
	"bytes"
	"mime"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/gateway"
	"github.com/hearsay-llm/hearsay/state"
)

// phase is how far a request has come, as far as a client that leaves cares.
type phase string

const (
	phaseQueued     phase = "queued"     // it waits for a replica with room
	phaseConnecting phase = "connecting" // no replica has the request yet
	phaseWaiting    phase = "waiting"    // a replica has it, nothing has been relayed
	phaseStreaming  phase = "streaming"
)

var disconnectPhases = []phase{phaseQueued, phaseConnecting, phaseWaiting, phaseStreaming}

// request is one client request on its way through. It belongs to the goroutine
// that serves the client's connection; only call is shared.
type request struct {
	s     *Server
	ctx   *fasthttp.RequestCtx
	conn  *clientConn
	id    string
	path  string // one that is passed through, with its query
	began time.Time
	pool  string // label
	debug bool
	ws    bool // the client asks for WebSocket

	client  *gateway.Client // whose it is; nil: nobody's that is known
	place   gateway.Place   // among those that its key has under way
	claimed *state.Band     // the priority that its header claims; nil: none

	method    string // "" for POST
	following following

	native bool        // the replica is asked in Anthropic's API
	chat   *translated // what it is asked instead of a client's message; nil: as the client asks

	ask  api.Request
	body []byte // as the client sent it, decoded; nil once an answer is relayed
	job  *Job
	// fallbacks are the pools that are left to be asked in the place of the present one;
	// fell is why the present one is asked in the place of the request's own.
	fallbacks []string
	fell      string
	before    *failure  // why the pool before could not serve it; nil: there was none
	stood     *standing // how it stood there
	call      *call
	disarm    func()
	x         exchange
	tries     tries
	inQueue   *place        // in the pool's queue; nil: it does not wait
	queued    time.Duration // it has waited, in all queues
	legs      *legs         // nil where a replica serves it whole
	heart     heart
	phase     phase
	first     time.Duration // until the first token; 0: none came

	edits   []api.Edit
	out     outgoing // as the replica gets it
	usage   bool     // out asks for usage that the client did not ask for
	shown   string   // what the answer must call the model, a JSON string; empty: as the replica does
	replica *state.ReplicaView

	status int
	used   api.Usage // as the engine reported it
	reason string    // of an error
	ended  bool
}

// answer answers without a replica.
func (r *request) answer(status int, contentType string, body []byte) {
	resp := &r.ctx.Response
	resp.SetStatusCode(status)
	if contentType != "" {
		resp.Header.SetContentType(contentType)
	}
	setID(&resp.Header, r.id, r.ask.Endpoint.Shape())
	resp.SetBodyRaw(body)
	r.end(status)
}

// fail answers with an error.
func (r *request) fail(e *api.Error) {
	r.reason = e.Reason
	if r.job == nil {
		r.noteRefusal(e, nil)
	}
	allow := append([]byte(nil), r.ctx.Response.Header.Peek("Allow")...)
	r.s.writeError(r.ctx, r.id, e)
	if len(allow) > 0 {
		r.ctx.Response.Header.SetBytesV("Allow", allow)
	}
	if r.job != nil && r.job.Attempts() > 0 {
		r.debugFields(&r.ctx.Response.Header)
	}
	r.end(e.Status)
}

// arm watches for the client's leaving from here to the request's end.
func (r *request) arm() error {
	r.call = newCall()
	if err := r.s.register(r.call); err != nil {
		return err
	}
	r.disarm = func() {}
	if r.conn != nil {
		c := r.call
		r.disarm = r.conn.OnHangup(func() { c.cancel(errClientGone) })
	}
	return nil
}

// end closes the request: nothing is held after it, and it is counted and logged
// once.
func (r *request) end(status int) {
	if r.ended {
		return
	}
	r.ended = true
	r.status = status
	r.place.Leave()
	r.letGo()
	m := r.s.metrics
	m.requests.WithLabelValues(r.pool, strconv.Itoa(status)).Inc()
	took := time.Since(r.began)
	if r.job == nil && r.pool == unknownPool && status < 400 {
		return // probes and lists
	}
	m.duration.WithLabelValues(r.pool).Observe(took.Seconds())
	if e := r.s.log.Debug(); e.Enabled() {
		e.Str("request_id", r.id).Str("pool", r.pool).Int("status", status).Float64("dur_ms", float64(took.Microseconds())/1000)
		if r.reason != "" {
			e.Str("reason", r.reason)
		}
		if r.queued > 0 {
			e.Float64("queued_ms", float64(r.queued.Microseconds())/1000)
		}
		if r.job != nil {
			p := r.job.Pick()
			e.Str("model", r.job.Pool().Spec.Model).Str("replica", string(p.Replica)).Int("attempts", r.job.Attempts()).
				Int("prompt_tokens", p.PromptTokens).Int("hit_tokens", p.MatchedTokens)
			r.logClient(e)
			if r.fell != "" {
				e.Str("fallback", r.job.Pool().Spec.Name).Str("fallback_reason", r.fell)
			}
			if r.used.Source == api.Reported {
				e.Int("tokens_in", r.used.InputTotal).Int("tokens_out", r.used.Output)
			}
			if t := r.job.legs; t != nil && t.handed {
				e.Str("prefill", string(t.picked))
			}
			if r.first > 0 {
				e.Float64("ttft_ms", float64(r.first.Microseconds())/1000)
			}
		}
		e.Msg("request")
	}
	if r.job != nil {
		r.job.Release()
		r.job = nil
	}
}

// letGo releases the upstream connection and everything that watches.
func (r *request) letGo() {
	if r.inQueue != nil {
		r.inQueue.leave()
		r.inQueue = nil
	}
	r.x.close()
	r.x.freeHead()
	if r.legs != nil {
		r.closeLegs()
	}
	if r.disarm != nil {
		r.disarm()
		r.disarm = nil
	}
	if r.call != nil {
		r.s.unregister(r.call)
		r.call.release()
	}
}

// abandon is for a request whose handling broke.
func (r *request) abandon() {
	r.x.drop()
	if r.job != nil {
		r.job.End(&Result{Outcome: OutcomeAborted})
	}
}

// releaseBody lets the prompt go: no other replica will need it.
func (r *request) releaseBody() {
	r.body, r.out, r.edits = nil, outgoing{}, nil
	if r.legs != nil {
		r.legs.params, r.legs.add, r.job.legs.body = nil, "", nil
		if r.legs.side != nil && r.conn != nil {
			r.conn.body = nil // the prefill may still be sending it: not for others to write to
		}
	}
	if r.chat != nil {
		r.chat.body = nil
	}
	r.ask.Settled()
	r.ctx.Request.ReleaseBody(64 << 10)
	if r.conn != nil {
		r.conn.freeBody()
	}
}

// mediaOf accepts JSON in UTF-8, a body without a type, and forms where the endpoint
// takes them, of which it returns the boundary.
func mediaOf(ep api.Endpoint, contentType []byte) (boundary string, _ *api.Error) {
	if len(contentType) == 0 {
		return "", nil
	}
	media, params, _ := bytes.Cut(contentType, []byte(";"))
	media = bytes.ToLower(bytes.TrimSpace(media))
	if ep == api.Other && string(media) == "multipart/form-data" {
		_, p, err := mime.ParseMediaType(string(contentType))
		if err != nil || p["boundary"] == "" {
			return "", api.UnsupportedMedia("Content-Type", string(contentType))
		}
		return p["boundary"], nil
	}
	if string(media) != "application/json" && !bytes.HasSuffix(media, []byte("+json")) {
		return "", api.UnsupportedMedia("Content-Type", string(contentType))
	}
	for p := range bytes.SplitSeq(params, []byte(";")) {
		k, v, _ := bytes.Cut(p, []byte("="))
		if !equalFold(bytes.TrimSpace(k), "charset") {
			continue
		}
		v = bytes.Trim(bytes.TrimSpace(v), `"`)
		if !equalFold(v, "utf-8") && !equalFold(v, "utf8") && !equalFold(v, "us-ascii") {
			return "", api.UnsupportedMedia("charset", string(v))
		}
	}
	return "", nil
}

// read reads and parses the body.
func (r *request) read(ep api.Endpoint) (ask api.Request, body []byte, _ *api.Error) {
	boundary, e := mediaOf(ep, r.ctx.Request.Header.ContentType())
	if e != nil {
		return ask, nil, e
	}
	if body, e = r.readBody(); e != nil {
		return ask, nil, e
	}
	var err error
	if boundary != "" {
		ask, err = api.ParseForm(boundary, body)
	} else {
		ask, err = api.Parse(ep, body)
	}
	if err == nil && ask.Model == "" { // native interfaces of engines name none
		if ask.Model = r.s.onlyModel(); ask.Model == "" {
			err = api.BadRequest("model", "The request names no model, and there are several. Set 'model'; GET /v1/models lists the models.")
		}
	}
	if err != nil {
		return ask, nil, api.AsError(err)
	}
	return ask, body, nil
}

// onlyModel is the model of the only pool there is, "" if there are several.
func (s *Server) onlyModel() string {
	pools := s.core.store.View().Pools
	if len(pools) != 1 {
		return ""
	}
	return pools[0].Spec.Model
}
