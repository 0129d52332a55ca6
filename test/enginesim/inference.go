package enginesim

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// The inference paths.
const (
	chatPath      = "/v1/chat/completions"
	textPath      = "/v1/completions"
	embeddingPath = "/v1/embeddings"
)

// endpoint is what differs between the inference paths before the scheduler.
type endpoint struct {
	idPrefix string
	format   formatKind
	parse    func(body []byte) (*request, *apiError)
	prompts  func(*request) ([][]uint32, *apiError)
}

func (e *Engine) chat() endpoint {
	return endpoint{"chatcmpl-", formatChat, e.parse, func(r *request) ([][]uint32, *apiError) {
		ids, err := appendChat(make([]uint32, 0, len(r.messages.Raw)/4+64), r.messages, r.tools, e.cfg.MediaTokens)
		if err != nil {
			return nil, badRequest("%v", err)
		}
		return [][]uint32{ids}, nil
	}}
}

func (e *Engine) completion() endpoint {
	return endpoint{"cmpl-", formatText, e.parse, func(r *request) ([][]uint32, *apiError) { return prompts("prompt", r.prompt) }}
}

func (e *Engine) embedding() endpoint {
	return endpoint{"embd-", formatEmbedding, e.parse, func(r *request) ([][]uint32, *apiError) { return prompts("input", r.input) }}
}

// inference returns the handler of a path: receive, fail on command, parse,
// schedule, answer. Whatever happens ends up in the record.
func (e *Engine) inference(of func() endpoint) http.HandlerFunc {
	ep := of()
	return func(w http.ResponseWriter, r *http.Request) {
		body, apiErr := e.readBody(w, r)
		if apiErr == nil {
			apiErr = e.admit(r, body)
		}
		rec := &RequestRecord{
			XRequestID: r.Header.Get("X-Request-Id"), Path: r.URL.Path, Arrival: time.Now(), Outcome: OutcomeActive,
			BodyBytes: len(body),
		}
		sum := sha256.Sum256(body)
		rec.BodySHA256 = hex.EncodeToString(sum[:])
		if e.cfg.KeepBodies {
			rec.Body = body
		}
		e.mu.Lock()
		e.rec.add(rec)
		if rec.ID = ep.idPrefix + e.replyID(rec); ep.format == formatResponse {
			rec.ID = ep.idPrefix + e.responseID(rec)
		}
		e.mu.Unlock()
		fault := e.take(FaultStatus, FaultReset, FaultFin, FaultSilence, FaultStreamError)
		if fault != nil && fault.beforeAnswer() {
			e.failNow(w, r, rec, fault)
			return
		}
		var c *call
		var req *request
		if apiErr == nil {
			c, req, apiErr = e.prepare(ep, rec, body)
		}
		if apiErr == nil {
			if !e.meet(r.Context(), req, rec) {
				return
			}
			apiErr = e.submit(c, body)
		}
		if apiErr != nil {
			e.locked(func() {
				rec.Outcome, rec.Status, rec.End = OutcomeRejected, apiErr.status, time.Now()
			})
			e.writeError(w, r, apiErr)
			return
		}
		a := &answer{
			e: e, w: w, r: r, rc: http.NewResponseController(w), c: c, req: req, fault: fault,
			f: newFormat(ep.format, e.cfg, rec, req), report: r.Header.Get("Endpoint-Load-Metrics-Format"),
		}
		switch ep.format {
		case formatMessage:
			a.m = newMessageForm(e.cfg, rec, req)
		case formatResponse:
			a.p = newResponseForm(e.cfg, rec, req)
		}
		if c.stream {
			a.stream(r.Context())
		} else {
			a.whole(r.Context())
		}
		e.prefilled(req, rec)
	}
}

// replyID is the request's own id, as vLLM takes it, or one of ours. Locked.
func (e *Engine) replyID(rec *RequestRecord) string {
	if id := rec.XRequestID; id != "" && e.cfg.Kind != Anthropic {
		return strings.Clone(id)
	}
	var b [8]byte
	x := mix(e.cfg.Seed ^ mix(uint64(rec.Seq)))
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
	return hex.EncodeToString(b[:])
}

// locked changes a record.
func (e *Engine) locked(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// failNow carries out a fault that comes before the response.
func (e *Engine) failNow(w http.ResponseWriter, r *http.Request, rec *RequestRecord, f *activeFault) {
	e.locked(func() {
		rec.Outcome, rec.Status, rec.End = OutcomeFault, f.Status, time.Now()
	})
	switch f.Kind {
	case FaultStatus:
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", itoa(f.RetryAfter))
		}
		if f.Body != "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(f.Status)
			_, _ = w.Write([]byte(f.Body))
			return
		}
		e.writeError(w, r, f.apiError())
	case FaultSilence:
		e.hold(r.Context(), f)
		e.locked(func() {
			rec.End = time.Now()
			if r.Context().Err() != nil {
				rec.Outcome = OutcomeAborted
				e.rec.aborts++
			}
		})
		cut(w, false)
	default:
		cut(w, f.Kind == FaultReset)
	}
}

// prepare turns a body into sequences, outside the lock: parsing, tokenising and
// hashing are what a request costs.
func (e *Engine) prepare(ep endpoint, rec *RequestRecord, body []byte) (*call, *request, *apiError) {
	req, err := ep.parse(body)
	if err != nil {
		return nil, nil, err
	}
	if err := e.leg(req); err != nil {
		return nil, nil, err
	}
	ids, err := ep.prompts(req)
	if err != nil {
		return nil, nil, err
	}
	embed := ep.format == formatEmbedding
	if embed || req.n < 1 {
		req.n = 1
	}
	if len(ids)*req.n > maxSequences {
		return nil, nil, badRequest("at most %d sequences per request", maxSequences)
	}
	c := &call{
		stream: req.stream && !embed, interval: e.cfg.StreamInterval, choices: req.n, rec: rec,
		seqs: make([]*Seq, 0, len(ids)*req.n), gens: make([]generator, 0, len(ids)*req.n),
	}
	seed := chainSeed(req.adapter, req.salt)
	total := 0
	for _, prompt := range ids {
		total += len(prompt)
		if err := e.fits(len(prompt), req, embed); err != nil {
			return nil, nil, err
		}
		hashes := HashChain(make([]uint64, 0, len(prompt)/e.cfg.BlockTokens+8), prompt, e.cfg.BlockTokens, seed)
		base := e.answerSeed(prompt, hashes, seed)
		for k := range req.n {
			g := e.generate(mix(base+uint64(k)), len(prompt), req)
			g.spaced = ep.format == formatText
			g.shape(req)
			s := &Seq{
				Adapter: req.adapter, Prompt: prompt, Seed: seed, Hashes: hashes,
				MaxOutput: g.tokens, Remote: req.remotePrefill,
			}
			if k > 0 {
				s.Hashes = append([]uint64(nil), hashes...)
			}
			if embed {
				s.MaxOutput = 0
			}
			c.seqs = append(c.seqs, s)
			c.gens = append(c.gens, g)
		}
	}
	for i := range c.seqs {
		c.seqs[i].Output = c.gens[i].id
	}
	e.locked(func() {
		rec.Model, rec.RID, rec.Stream, rec.Sequences, rec.PromptTokens = req.model, req.rid, c.stream, len(c.seqs), total
	})
	return c, req, nil
}

// fits checks a prompt against the context length, in vLLM's words.
func (e *Engine) fits(prompt int, req *request, embed bool) *apiError {
	limit := e.cfg.contextLen()
	switch {
	case prompt == 0:
		return badRequest("The decoder prompt cannot be empty")
	case prompt >= limit && !embed || prompt > limit:
		err := badRequest("This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", limit, prompt)
		err.prompt = prompt
		return err
	case req.limit >= 0 && prompt+req.limit > limit && !embed:
		err := badRequest("'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).",
			req.limit, limit, prompt, req.limit, limit, prompt)
		err.prompt = prompt
		return err
	}
	return nil
}

// generate decides length and end of one answer.
func (e *Engine) generate(seed uint64, prompt int, req *request) generator {
	room := e.cfg.contextLen() - prompt
	if req.limit >= 0 {
		room = req.limit
	}
	if req.ignoreEOS || req.limit >= 0 && !e.cfg.DrawUnderLimit {
		return generator{seed: seed, tokens: room}
	}
	drawn := max(drawLength(seed, e.cfg.MeanOutput), req.min)
	if drawn > room {
		return generator{seed: seed, tokens: room}
	}
	return generator{seed: seed, tokens: drawn, eos: true}
}

func (e *Engine) submit(c *call, body []byte) *apiError {
	err := e.begin(c, xxh3.Hash(body))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errQueueFull):
		return &apiError{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", message: "The request queue is full."}
	case errors.Is(err, errStopped):
		return &apiError{status: http.StatusServiceUnavailable, kind: "InternalServerError", message: "engine is not running"}
	}
	return badRequest("%v", err)
}
