package proxy

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// OpenAI's Responses go to replicas as they are. What a response leaves behind is kept by
// the process that made it, but for commercial APIs, where it belongs to the account. So
// its id gets a tag that names the replica, and who comes back with it is sent there.

// keepsOwn reports whether an engine of this kind keeps responses in its process.
func keepsOwn(kind state.EngineKind) bool {
	return kind != state.EngineOpenAI && kind != state.EngineAnthropic
}

// sharesStore reports whether any replica of the pool finds what another one has kept.
func sharesStore(p *state.PoolView) bool {
	for _, r := range p.Replicas {
		if kindOf(&p.Spec, r) != state.EngineOpenAI {
			return false
		}
	}
	return p.Spec.Engine == state.EngineOpenAI || len(p.Replicas) > 0
}

// ownerIn finds the replica of a pool that a tag names, nil if it is not there.
func ownerIn(p *state.PoolView, t api.Tag) *state.ReplicaView {
	for _, r := range p.Replicas {
		if api.OwnerOf(p.Spec.Name, string(r.ID)) == t.Owner {
			return r
		}
	}
	return nil
}

// restarted reports whether the replica's process is known to be another one than that
// which the tag names.
func restarted(r *state.ReplicaView, t api.Tag) bool {
	now := api.BootOf(r.Reading.Started)
	return now != 0 && t.Boot != 0 && now != t.Boot
}

// Why a response can't be had.
const (
	goneReplica = "the replica that kept it is gone"
	goneBoot    = "the replica that kept it has been restarted"
	goneAway    = "the replica that kept it can't be reached or has failed"
	goneKept    = "the replica that made it does not have it: it was deleted, or restarted, or keeps none"
	goneUnknown = "its id does not tell which replica keeps it"
)

// lost is 404 for a response that can't be had: of a request that goes on from it, or that
// asks for it.
func lost(ep api.Endpoint, why string) *api.Error {
	e := &api.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Reason: "response_lost"}
	if ep == api.Stored {
		e.Code, e.Param = "response_not_found", "response_id"
		e.Message = "The response can't be had: " + why + "."
		return e
	}
	e.Code, e.Param = "previous_response_not_found", "previous_response_id"
	e.Message = "The previous response can't be had: " + why + ". Send the whole input again, without previous_response_id."
	return e
}

// following is where a request has to go that goes on from a response, or asks for it.
type following struct {
	pool *state.PoolView // nil for the one of its model
	only state.ReplicaID // "" for any replica of its pool
	id   string          // the response's, as the replica knows it; "" where the client's own will do
}

// serveResponses checks that a pool's engines can serve a request of Responses.
func serveResponses(p *state.PoolView, ask *api.Request) *api.Error {
	if speaksMessages(p) {
		e := api.BadRequest("model", "The engine of this model does not speak OpenAI's Responses. Use /v1/messages.")
		e.Code = "unsupported_api"
		return e
	}
	if ask.Conversation.Present() && !sharesStore(p) {
		return api.BadRequest("conversation", "The engines of this model keep no conversations. Use previous_response_id, or send the whole input.")
	}
	if ask.Background {
		for _, r := range p.Replicas {
			if kindOf(&p.Spec, r) == state.EngineLlamaCpp {
				return api.BadRequest("background", "The engines of this model answer nothing in the background.")
			}
		}
	}
	return nil
}

// follow checks what of a request of Responses is kept elsewhere, and says where it has to
// go: to a replica of its pool, or of one that was asked in the place of that.
func (c *Core) follow(ask *api.Request) (f following, _ *api.Error) {
	v := c.store.View()
	p, _ := v.Resolve(ask.Model)
	if p == nil {
		return f, nil // refused as any other
	}
	if e := serveResponses(p, ask); e != nil {
		return f, e
	}
	if !ask.Previous.Present() {
		return f, nil
	}
	id, tag, tagged := api.SplitTag(ask.PreviousID)
	if tagged {
		for _, name := range append([]string{p.Spec.Name}, p.Spec.Fallback...) {
			q := v.PoolNamed(name)
			if q == nil || sharesStore(q) {
				continue
			}
			r := ownerIn(q, tag)
			switch {
			case r == nil:
				continue
			case restarted(r, tag):
				return f, lost(ask.Endpoint, goneBoot)
			case q.Spec.Name != p.Spec.Name:
				f.pool = q
			}
			f.only, f.id = r.ID, id
			return f, nil
		}
	}
	switch {
	case sharesStore(p):
		return f, nil
	case tagged:
		return f, lost(ask.Endpoint, goneReplica)
	}
	for _, name := range p.Spec.Fallback {
		if q := v.PoolNamed(name); q != nil && sharesStore(q) && serveResponses(q, ask) == nil {
			f.pool = q // whose ids have no tag: it made it in the place of the pool
			return f, nil
		}
	}
	if len(p.Replicas) > 1 {
		return f, lost(ask.Endpoint, goneUnknown)
	}
	return f, nil
}

// locate finds who keeps a response by its id alone, and the pool that is in.
func (c *Core) locate(given string) (f following, pool *state.PoolView, _ *api.Error) {
	v := c.store.View()
	if id, tag, ok := api.SplitTag(given); ok {
		for _, p := range v.Pools {
			if sharesStore(p) {
				continue
			}
			if r := ownerIn(p, tag); r != nil {
				if restarted(r, tag) {
					return f, nil, lost(api.Stored, goneBoot)
				}
				return following{only: r.ID, id: id}, p, nil
			}
		}
	}
	for _, p := range v.Pools {
		if sharesStore(p) {
			if pool != nil {
				return f, nil, lost(api.Stored, goneUnknown)
			}
			pool = p
		}
	}
	if pool == nil && len(v.Pools) == 1 && len(v.Pools[0].Replicas) == 1 {
		pool = v.Pools[0]
	}
	switch _, _, tagged := api.SplitTag(given); {
	case pool != nil && (!tagged || sharesStore(pool)):
		return following{id: given}, pool, nil
	case tagged:
		return f, nil, lost(api.Stored, goneReplica)
	}
	return f, nil, lost(api.Stored, goneUnknown)
}

// storedPath is the path of a response that is kept, in parts; below is empty, cancel or
// input_items. It returns false for paths that are not served.
func storedPath(path string) (id, below string, ok bool) {
	id, below, found := strings.Cut(strings.TrimPrefix(path, "/v1/responses/"), "/")
	if id == "" || id == "compact" || id == "input_tokens" || found && below != "cancel" && below != "input_items" {
		return "", "", false
	}
	return id, below, true
}

// storedMethods are the methods a path below /v1/responses takes, "" for none.
func storedMethods(path string) string {
	switch _, below, ok := storedPath(path); {
	case !ok:
		return ""
	case below == "cancel":
		return postOnly
	case below == "input_items":
		return "GET, OPTIONS"
	}
	return "GET, DELETE, OPTIONS"
}

// maxResponseID bounds a response's id, bytes.
const maxResponseID = 256

// sane reports whether an id is one that goes into a path as it is.
func sane(id string) bool {
	for i := range len(id) {
		c := id[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return id != "" && len(id) <= maxResponseID
}

// storedQuery are the parameters that are passed on.
var storedQuery = []string{"stream", "starting_after", "include", "include[]", "include_obfuscation", "after", "before", "limit", "order"}

// stored makes a request for a response that is kept: no body is read and its path names
// no model.
func (r *request) stored() *api.Error {
	id, below, _ := storedPath(string(r.ctx.Path()))
	f, pool, fault := r.s.core.locate(id)
	if fault == nil && !sane(f.id) {
		fault = lost(api.Stored, goneUnknown)
	}
	if fault != nil {
		return fault
	}
	r.following = f
	r.method, r.path = string(r.ctx.Method()), "/v1/responses/"+f.id
	if below != "" {
		r.path += "/" + below
	}
	q := r.ctx.QueryArgs()
	sep := "?"
	for _, name := range storedQuery {
		for _, v := range q.PeekMulti(name) {
			r.path += sep + url.QueryEscape(name) + "=" + url.QueryEscape(string(v))
			sep = "&"
		}
	}
	r.ask = api.Request{Endpoint: api.Stored, Model: pool.Spec.Model, N: 1}
	r.ask.Stream = r.method == fasthttp.MethodGet && q.GetBool("stream")
	return nil
}

// names are what an answer must say in place of what its replica says.
func (r *request) names() api.Names {
	n := api.Names{Model: r.shown}
	ep := r.ask.Endpoint
	spec := &r.job.Pool().Spec
	if ep == api.Stored && r.shown != "" { // it may be an adapter's
		n.Of = string(scan.AppendQuoted(nil, spec.UpstreamName()))
	}
	if ep != api.Responses && ep != api.Stored || !keepsOwn(kindOf(spec, r.replica)) {
		return n
	}
	t := api.Tag{Owner: api.OwnerOf(spec.Name, string(r.replica.ID))}
	if now := r.s.core.store.View().Replica(r.replica.ID); now != nil {
		t.Boot = api.BootOf(now.Reading.Started)
	}
	n.Tag = t.String()
	if ep == api.Responses && r.ask.PreviousID != "" {
		n.Previous = string(scan.AppendQuoted(nil, r.ask.PreviousID))
	}
	return n
}

// held reports whether the events that only announce an answer wait for what they
// announce: until then another replica may answer. Who asks in the background wants to
// know the id.
func (r *request) held() bool { return r.ask.Endpoint == api.Responses && !r.ask.Background }

// forgotten is a replica's word that it does not have the response, nil for any other. It
// names the response by the id that is known there.
func (r *request) forgotten(f *failure) *api.Error {
	id := r.following.id
	if f.status != http.StatusNotFound || len(id) < 4 || !bytes.Contains(f.body, []byte(id)) {
		return nil
	}
	return lost(r.ask.Endpoint, goneKept)
}

// away is what became of a request that one replica alone can serve, where that one can't
// be had: nil if it is no such request, or the replica wants it later.
func (r *request) away(e *api.Error) *api.Error {
	if r.following.only == "" || e.Status == http.StatusTooManyRequests {
		return nil
	}
	return lost(r.ask.Endpoint, goneAway)
}
