package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/gateway"
	"github.com/hearsay-llm/hearsay/state"
)

// Who a client is, by its key, and what that means for its request. A key never goes to
// a replica: upstreamFields holds none of the headers it comes in.

// clientOf is whose a request is, nil for nobody that is known. It fails where a key is
// needed and none, or an unknown one, was sent.
func (s *Server) clientOf(ctx *fasthttp.RequestCtx) (*gateway.Client, *api.Error) {
	if s.gate.Open() {
		return nil, nil
	}
	h := &ctx.Request.Header
	bearer, other := bearerOf(h.Peek("Authorization")), h.Peek("X-Api-Key")
	c := s.gate.Find(bearer)
	if c == nil {
		c = s.gate.Find(other) // libraries of both families send their own header, some both
	}
	switch {
	case c != nil || !s.gate.Requires() || !needsKey(ctx):
		return c, nil
	case len(bearer)+len(other) == 0:
		return nil, api.NoKey()
	}
	return nil, api.UnknownKey()
}

// needsKey reports whether a request is for anything but probes, what browsers ask
// beforehand, and paths that are not served.
func needsKey(ctx *fasthttp.RequestCtx) bool {
	switch path := string(ctx.Path()); path {
	case "/livez", "/readyz", "/health":
		return false
	default:
		return allowed(path) != "" && !ctx.IsOptions()
	}
}

// bearerOf is the token in an Authorization header, nil where it is of another scheme.
func bearerOf(authorization []byte) []byte {
	const scheme = "bearer "
	if len(authorization) < len(scheme) || !equalFold(authorization[:len(scheme)], scheme) {
		return nil
	}
	return bytes.TrimSpace(authorization[len(scheme):])
}

// unknownClient answers a request that is refused for its key.
func (r *request) unknownClient(e *api.Error) {
	r.ctx.Response.Header.Set("WWW-Authenticate", "Bearer")
	r.fail(e)
}

// takePlace counts the request as one of those that its key has under way; request.end
// gives the place back. It reports false when the request has been refused.
func (r *request) takePlace() (ok bool) {
	if r.place, ok = r.client.Enter(); !ok {
		r.s.metrics.limits.WithLabelValues(limitParallel).Inc()
		r.fail(api.TooManyParallel(r.client.MaxParallel))
	}
	return ok
}

// priorityHeader is where clients say how soon they want to be served.
const priorityHeader = "X-Priority"

// claim reads the priority that the header claims. Words that are none are refused: who
// sends one would believe that it means something.
func (r *request) claim() *api.Error {
	given := bytes.TrimSpace(r.ctx.Request.Header.Peek(priorityHeader))
	if len(given) == 0 {
		return nil
	}
	b, err := state.ParseBand(string(bytes.ToLower(given)))
	if err != nil {
		return api.BadPriority("x-priority", string(given))
	}
	r.claimed = &b
	return nil
}

// band is the request's priority in a pool: what it claims, within what its key may
// claim. The header goes before the body.
func (r *request) band(pool *state.PoolView, asked *api.Request) state.Band {
	claim := state.BandNormal
	switch {
	case r.claimed != nil:
		claim = *r.claimed
	case asked.HasPriority:
		if pool == nil {
			pool, _ = r.s.core.store.View().Resolve(asked.Model)
		}
		claim = bandOf(asked.Priority, pool != nil && engineOf(pool) == state.EngineSGLang)
	case asked.Tier == api.TierPriority:
		claim = state.BandHigh
	case asked.Tier == api.TierFlex:
		claim = state.BandLow
	}
	return r.client.Capped(claim)
}

// bandOf is the band of an engine's number. vLLM serves lower numbers first, SGLang
// higher ones.
func bandOf(priority int, moreIsSooner bool) state.Band {
	switch {
	case priority == 0:
		return state.BandNormal
	case (priority > 0) == moreIsSooner:
		return state.BandHigh
	}
	return state.BandLow
}

// engineOf is the kind of a pool's engines, of the first one where the pool names none.
func engineOf(p *state.PoolView) state.EngineKind {
	if len(p.Replicas) > 0 {
		return kindOf(&p.Spec, p.Replicas[0])
	}
	return p.Spec.Engine
}

// capEdits notes what keeps the body from claiming more inside an engine than its key
// may. Where no keys are known nobody's claim is worth more than another's, and bodies
// travel as they are.
func (r *request) capEdits(ask *api.Request, body []byte, kind state.EngineKind) {
	if !r.s.gate.HasKeys() || r.client.Capped(state.BandHigh) == state.BandHigh {
		return
	}
	switch kind {
	case state.EngineSGLang:
		// Which end comes first is how it was started, and any number comes before none.
		r.edits = ask.DropPriority(r.edits)
	case state.EngineOpenAI:
		r.edits = ask.SetTier(r.edits, "default")
		fallthrough
	default:
		r.edits = ask.FloorPriority(r.edits, body)
	}
}

// saltEdits appends what keeps tenants apart in an engine's cache, as their marks are,
// in pools that isolate them: engines that know a salt get one that no client can choose.
func saltEdits(edits []api.Edit, ask *api.Request, spec *state.PoolSpec, kind state.EngineKind, tenant string) []api.Edit {
	if spec.Isolation != isolateTenants || kind != state.EngineVLLM && kind != state.EngineSGLang {
		return edits
	}
	switch ask.Endpoint {
	case api.Chat, api.Completions, api.Embeddings, api.Responses:
		return ask.SetCacheSalt(edits, saltOf(tenant))
	}
	return edits
}

// saltOf is the salt of a tenant's prompts.
func saltOf(tenant string) string {
	sum := sha256.Sum256([]byte("tenant " + strconv.Quote(tenant)))
	return hex.EncodeToString(sum[:16])
}

// logClient adds to a request's line whose it is and how soon it was to be served.
func (r *request) logClient(e *zerolog.Event) {
	if r.client != nil {
		e.Str("key_name", r.client.Name).Str("tenant", r.client.Tenant)
	}
	e.Str("band", r.job.band.String())
}
