package proxy

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

const (
	// warmPriority is what vLLM is told of a prompt that warms: lower numbers go first,
	// clients' requests have 0 unless they say otherwise.
	warmPriority = 100
	// warmAnswer bounds an answer of one token, bytes.
	warmAnswer = 1 << 20
)

// warmFields are those that a prompt that warms must not have.
var warmFields = append([]api.LegName{api.LegStreamOptions, api.LegMinTokens}, meetFields...)

// measured is a kept prompt's length, as it is estimated now.
type measured struct {
	ask    api.Request
	marks  []prefix.Mark
	tokens []int32
	prompt int // tokens
}

// measure reads a kept prompt again.
func (p *Prewarm) measure(pool *state.PoolView, x *warmPrompt) (m measured, ok bool) {
	var err error
	if m.ask, err = api.Parse(x.endpoint, x.body); err != nil {
		return m, false
	}
	var h prefix.Hasher
	if m.marks, err = h.Marks(nil, x.seed, m.ask.Input(x.body)); err != nil {
		return m, false
	}
	ratio := p.s.core.ratios.For(pool.Spec.UpstreamName())
	m.tokens, m.prompt = appendTokens(nil, m.marks, ratio), ratio.Tokens(h.Total())
	return m, true
}

// send sends one prompt to a replica, for one token, and counts it as any request of
// this router is counted, but for clients' metrics and usage. tokens are those of the
// prompt that the replica had to prefill.
func (p *Prewarm) send(ctx context.Context, pool *state.PoolView, r *state.ReplicaView, x *warmPrompt, end time.Time) (o Outcome, tokens int) {
	c, name := p.s.core, pool.Spec.Name
	m, ok := p.measure(pool, x)
	if !ok {
		return OutcomeRejected, 0
	}
	var match [1]sketch.Match
	now := c.now()
	p.sketch.Lookup(match[:], m.marks, []state.Slot{r.Slot}, now)
	held := 0
	if n := match[0].Live; n > 0 {
		held = int(m.tokens[n-1])
	}
	ticket := c.store.Begin(r, m.prompt-held)
	var placement *sketch.Placement
	if c.index != nil {
		placement = c.index.Place(r.ID, m.marks, m.tokens, now)
	}
	o, u, known := p.exchange(ctx, pool, r, x, &m.ask, end)
	now = c.now()
	if o == OutcomeServed {
		tokens = m.prompt - held
		if known && u.CachedKnown {
			tokens = u.InputTotal - u.InputCached
			placement.Evidence(held, u.InputTotal, u.InputCached)
		}
		ticket.FirstToken()
		placement.First(now)
		placement.End(now)
	} else {
		placement.Withdraw(now)
	}
	ticket.End()
	if c.reporter != nil {
		c.reporter.Report(r.ID, o, 0, now)
	}
	if o == OutcomeRejected {
		p.kept.refused(name, x)
	}
	c.metrics.prewarms.WithLabelValues(name, o.String()).Inc()
	c.metrics.prewarmTokens.WithLabelValues(name).Add(float64(max(0, tokens)))
	return o, tokens
}

// exchange asks the replica. A vLLM that knows no priorities refuses them: it is asked
// again without.
func (p *Prewarm) exchange(ctx context.Context, pool *state.PoolView, r *state.ReplicaView, x *warmPrompt, ask *api.Request, end time.Time) (Outcome, api.Usage, bool) {
	c := newCall()
	c.end = end
	defer c.release()
	defer context.AfterFunc(ctx, func() { c.cancel(errShutdown) })()
	last := kindOf(&pool.Spec, r) == state.EngineVLLM && !p.s.core.noPriority.has(r.URL)
	status, body, err := p.ask(c, pool, r, x, ask, last)
	if err == nil && status == http.StatusBadRequest && last {
		if status, body, err = p.ask(c, pool, r, x, ask, false); err == nil && status == http.StatusOK {
			p.s.core.noPriority.add(r.URL)
		}
	}
	o := warmOutcome(status, err)
	if o != OutcomeServed {
		return o, api.Usage{}, false
	}
	read := api.ReadResponse(body, api.Inclusive, nil)
	if read.Error || !jsonValid(body) {
		return OutcomeFailed, api.Usage{}, false
	}
	return o, read.Usage, read.HasUsage
}

// warmOutcome is what an answer, or none, says of a replica.
func warmOutcome(status int, err error) Outcome {
	var late timeoutError
	switch {
	case errors.Is(err, errShutdown):
		return OutcomeAborted
	case errors.As(err, &late):
		return OutcomeTimeout
	case errors.Is(err, errPoolFull):
		return OutcomeBusy
	case err != nil:
		return OutcomeFailed
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return OutcomeBusy
	case status == http.StatusOK:
		return OutcomeServed
	case status >= 400 && status < 500:
		return OutcomeRejected
	}
	return OutcomeFailed
}

// ask sends the prompt once and reads the answer whole.
func (p *Prewarm) ask(c *call, pool *state.PoolView, r *state.ReplicaView, x *warmPrompt, ask *api.Request, last bool) (status int, answer []byte, err error) {
	conns, err := p.s.up.of(r.URL)
	if err != nil {
		return 0, nil, err
	}
	spec := &pool.Spec
	path := "/v1/chat/completions"
	if x.endpoint == api.Completions {
		path = "/v1/completions"
	}
	out := outgoing{body: splice(nil, x.body, warmEdits(spec, r, x, ask, last))}
	to := recipient{key: p.s.keys.of(spec), rank: -1}
	if spec.DPRanks > 1 {
		to.rank = r.Rank
	}
	fields := to.append([]byte("Content-Type: application/json\r\nX-Request-Id: prewarm-" + requestID() + "\r\n"))
	out.head = appendRequest(nil, "", path, conns.addr, fields, out.size())
	e := exchange{call: c, pool: conns, waits: waits{
		connect: orDefault(spec.ConnectTimeout, defaultConnect), firstByte: state.MaxWarming, idle: orDefault(spec.IdleTimeout, defaultIdle),
	}}
	defer e.drop()
	if err := e.send(&out); err != nil {
		return 0, nil, err
	}
	if answer, err = readBounded(&e, warmAnswer); err != nil {
		return 0, nil, err
	}
	status = e.resp.StatusCode()
	e.close()
	return status, answer, nil
}

// warmEdits makes a client's body one for one token, not streamed.
func warmEdits(spec *state.PoolSpec, r *state.ReplicaView, x *warmPrompt, ask *api.Request, last bool) (edits []api.Edit) {
	legs, kind := api.ReadLegs(ask, x.body), kindOf(spec, r)
	edits = saltEdits(nil, ask, spec, kind, x.seed.Tenant)
	edits = ask.SetTier(edits, "default")
	if last {
		edits = ask.SetPriority(edits, warmPriority)
	} else {
		edits = ask.DropPriority(edits)
	}
	if name := upstreamName(spec, r, x.adapter); name != ask.Model {
		edits = ask.RenameModel(edits, name)
	}
	edits = legs.Set(edits, api.LegStream, "false")
	edits = legs.Set(edits, api.LegMaxTokens, "1")
	edits = legs.Set(edits, api.LegMaxCompletionTokens, "1")
	add := ""
	if !legs.Has(api.LegStream) {
		add += `,"stream":false`
	}
	if !legs.Has(api.LegMaxTokens) && !legs.Has(api.LegMaxCompletionTokens) {
		add += `,"max_tokens":1`
	}
	if spec.DPRanks > 1 && kind == state.EngineSGLang {
		add += `,"data_parallel_rank":` + strconv.Itoa(r.Rank)
	}
	if add != "" {
		add = add[1:]
	}
	return legs.Rewrite(edits, add, warmFields...)
}
