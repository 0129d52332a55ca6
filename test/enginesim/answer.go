package enginesim

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// answer relays a call's progress to its client. One handler goroutine owns it.
type answer struct {
	e     *Engine
	w     http.ResponseWriter
	r     *http.Request
	rc    *http.ResponseController
	c     *call
	req   *request
	f     *format
	m     *messageForm  // of the Messages API, else nil
	p     *responseForm // of Responses, else nil
	fault *activeFault  // one that meets an answer that has begun, or nil
	// report is the form of load report asked for, or "".
	report string

	buf      []byte
	events   int // in buf or written
	progress []seqProgress
	sent     []int // tokens written per sequence
}

// stream answers with an event stream, one event per StreamInterval tokens.
func (a *answer) stream(ctx context.Context) {
	h := a.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	a.status(http.StatusOK)
	_ = a.rc.Flush() // the header comes before the first token, as from uvicorn
	a.progress = make([]seqProgress, len(a.c.seqs))
	a.sent = make([]int, len(a.c.seqs))
	if a.fault != nil && a.fault.AfterEvents == 0 {
		a.fail(ctx)
		return
	}
	if a.p != nil && a.announced(ctx) {
		a.c.finish(OutcomeAborted) // unless a fault has
		return
	}
	opened := false
	for done := false; !done; {
		if err := a.c.wait(ctx, a.progress); err != nil {
			a.broken(ctx)
			return
		}
		if !opened && a.opening(ctx) {
			return
		}
		opened = true
		done = true
		for i := range a.c.seqs {
			if a.tokens(ctx, i) {
				return
			}
			done = done && a.sent[i] == a.c.gens[i].tokens && a.progress[i].done
		}
		if !done && a.flush() != nil {
			a.c.finish(OutcomeAborted)
			return
		}
	}
	if a.closing(ctx) {
		return
	}
	a.c.finish(OutcomeFinished)
	_ = a.flush()
	a.noteEvents()
}

// opening writes the events that come with the first token. It reports, as do tokens
// and closing, whether a fault ended the answer.
func (a *answer) opening(ctx context.Context) (over bool) {
	switch {
	case a.m != nil:
		a.buf = a.m.start(a.buf, a.c.usage(a.progress))
		return a.event(ctx)
	case a.p != nil:
		return a.itemOpens(ctx)
	case a.f.kind == formatChat:
		for i := range a.c.seqs {
			a.buf = a.f.role(a.buf, i, a.continuous(i, 0))
			if a.event(ctx) {
				return true
			}
		}
	}
	return false
}

// closing writes the events that follow the last token.
func (a *answer) closing(ctx context.Context) (over bool) {
	u := a.c.usage(a.progress)
	if a.m != nil {
		a.buf = a.m.ending(a.buf, &a.c.gens[0], u)
		if a.event(ctx) {
			return true
		}
		a.buf = a.m.stop(a.buf)
		return a.event(ctx)
	}
	if a.p != nil {
		return a.itemCloses(ctx, u)
	}
	if a.req.includeUsage || a.e.cfg.Kind == LlamaCpp {
		a.buf = a.f.tail(a.buf, u, a.timings(u))
		if a.event(ctx) {
			return true
		}
	}
	a.buf = append(a.buf, doneEvent...)
	return a.event(ctx)
}

// doneEvent ends a stream of the OpenAI API.
const doneEvent = "data: [DONE]\n\n"

// tokens writes the events of sequence i that are due.
func (a *answer) tokens(ctx context.Context, i int) (over bool) {
	g := &a.c.gens[i]
	for n := a.due(i); n > 0; n = a.due(i) {
		from := a.sent[i]
		a.sent[i] += n
		switch {
		case a.m != nil:
			over = a.message(ctx, g, from, a.sent[i])
		case a.p != nil:
			over = a.piece(ctx, g, from, a.sent[i])
		default:
			a.buf = a.f.open(a.buf, i, from == 0)
			start := len(a.buf)
			for k := range n {
				a.buf = g.appendPiece(a.buf, from+k)
			}
			whole := len(a.buf) - start
			a.buf = a.buf[:start+len(g.visible(a.buf[start:], g.written))]
			g.written += whole
			finish := ""
			if a.sent[i] == g.tokens {
				finish = g.finishReason()
			}
			a.buf = a.f.shut(a.buf, finish, g.stop, a.continuous(i, a.sent[i]))
			over = a.event(ctx)
		}
		if over {
			return true
		}
	}
	return false
}

// due is how many tokens of sequence i the next event has, 0 while there is none.
func (a *answer) due(i int) int {
	p := &a.progress[i]
	left := p.tokens - a.sent[i]
	switch {
	case left <= 0:
		return 0
	case a.sent[i] == 0:
		return 1
	case left < a.c.interval && !p.done:
		return 0
	}
	return min(a.c.interval, left)
}

// continuous is the usage of an event with continuous_usage_stats, else nil.
func (a *answer) continuous(i, tokens int) *usage {
	if !a.req.continuousUsage || !a.req.includeUsage {
		return nil
	}
	return &usage{prompt: len(a.c.seqs[i].Prompt), cached: a.c.usage(a.progress).cached, output: tokens}
}

// event counts the event just put into buf and carries out the fault that waits
// for it. It reports whether that ended the answer.
func (a *answer) event(ctx context.Context) (over bool) {
	a.events++
	if a.fault == nil || a.events < a.fault.AfterEvents {
		return false
	}
	_ = a.flush()
	a.noteEvents()
	a.fail(ctx)
	return true
}

// fail carries out the fault; what is in buf is dropped.
func (a *answer) fail(ctx context.Context) {
	switch a.fault.Kind {
	case FaultStreamError:
		a.buf = a.errorEvent(a.buf[:0])
		a.events++
		a.noteEvents()
		a.c.finish(OutcomeFault)
		_ = a.flush()
		return
	case FaultSilence:
		a.e.hold(ctx, a.fault)
		if ctx.Err() != nil {
			a.c.finish(OutcomeAborted)
			return
		}
		a.c.finish(OutcomeFault)
		cut(a.w, false)
	}
	a.c.finish(OutcomeFault)
	cut(a.w, a.fault.Kind == FaultReset)
}

// errorEvent appends the event that says that a stream failed.
func (a *answer) errorEvent(dst []byte) []byte {
	err := a.fault.apiError()
	if a.p != nil {
		return a.p.failed(dst, err)
	}
	if a.m != nil {
		return append(append(append(dst, "event: error\ndata: "...), mustJSON(a.e.messageError(err, a.w.Header()))...), "\n\n"...)
	}
	body := map[string]any{"error": vllmError{Message: err.message, Type: err.kind, Code: err.status}}
	dst = append(append(append(dst, "data: "...), mustJSON(body)...), "\n\n"...)
	return append(dst, doneEvent...)
}

// broken ends an answer whose client has gone or whose call was killed.
func (a *answer) broken(ctx context.Context) {
	_ = a.flush()
	a.noteEvents()
	if ctx.Err() == nil {
		cut(a.w, false)
	}
}

func (a *answer) flush() error {
	if len(a.buf) == 0 {
		return nil
	}
	_, err := a.w.Write(a.buf)
	a.buf = a.buf[:0]
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return a.rc.Flush()
}

func (a *answer) status(code int) {
	a.e.locked(func() { a.c.rec.Status = code })
	a.w.WriteHeader(code)
}

func (a *answer) noteEvents() { a.e.locked(func() { a.c.rec.Events = a.events }) }

func (a *answer) timings(u usage) timings {
	t := timings{usage: u}
	for i := range a.progress {
		t.prefill = max(t.prefill, a.progress[i].first-a.c.arrival)
		t.decode = max(t.decode, a.progress[i].last-a.progress[i].first)
	}
	return t
}

// whole answers in one body when all sequences are done.
func (a *answer) whole(ctx context.Context) {
	if a.fault != nil && a.fault.Kind == FaultStreamError {
		a.c.finish(OutcomeFault)
		a.e.locked(func() { a.c.rec.Status = a.fault.Status })
		a.e.writeError(a.w, a.r, a.fault.apiError())
		return
	}
	a.progress = make([]seqProgress, len(a.c.seqs))
	for done := false; !done; {
		if err := a.c.wait(ctx, a.progress); err != nil {
			a.broken(ctx)
			return
		}
		done = true
		for i := range a.progress {
			done = done && a.progress[i].done
		}
	}
	u := a.c.usage(a.progress)
	a.body(u)
	a.w.Header().Set("Content-Type", "application/json")
	a.w.Header().Set("Content-Length", strconv.Itoa(len(a.buf)))
	if a.fault != nil { // half a body counts as the events before the failure
		a.status(http.StatusOK)
		a.buf = a.buf[:len(a.buf)/2]
		_ = a.flush()
		a.fail(ctx)
		return
	}
	a.c.finish(OutcomeFinished)
	a.loadHeader()
	a.status(http.StatusOK)
	_, _ = a.w.Write(a.buf)
}

// body puts a whole answer into buf.
func (a *answer) body(u usage) {
	switch {
	case a.f.kind == formatEmbedding:
		a.buf = embeddings(a.c.rec, a.c.gens, a.req.dimensions, a.req.base64, u)
		return
	case a.p != nil:
		a.wholeResponse(u)
		return
	case a.m != nil:
		a.buf = a.m.whole(a.buf, &a.c.gens[0], a.progress[0].tokens, u)
		if a.e.cfg.Kind == VLLM && a.req.remoteDecode {
			a.buf = append(append(a.buf, `,"kv_transfer_params":`...), a.transfer()...)
		}
	default:
		a.buf = append(a.buf, a.f.whole...)
		for i := range a.c.gens {
			a.buf = a.f.choice(a.buf, i, &a.c.gens[i], a.progress[i].tokens)
		}
		a.buf = a.f.usage(append(a.buf, `],`...), u)
		a.buf = a.f.timings(a.buf, a.timings(u))
		if a.e.cfg.Kind == VLLM {
			a.buf = append(a.buf, `,"prompt_logprobs":null,"kv_transfer_params":`...)
			a.buf = append(a.buf, a.transfer()...)
		}
	}
	a.buf = append(a.buf, '}')
}

// transfer is what a prefill made for another engine returns: parameters that
// name its blocks.
func (a *answer) transfer() string {
	if !a.req.remoteDecode {
		return "null"
	}
	blocks := make([]int, ceilDiv(len(a.c.seqs[0].Prompt), a.e.cfg.BlockTokens))
	for i := range blocks {
		blocks[i] = i
	}
	return string(mustJSON(map[string]any{
		"do_remote_prefill": true, "do_remote_decode": false, "remote_engine_id": "sim-" + a.c.rec.ID,
		"remote_block_ids": blocks, "remote_host": "127.0.0.1", "remote_port": 5600, "tp_size": 1,
	}))
}

// loadHeader adds the load report a client asks for, in vLLM's form. As there,
// streams have none: their header is written before anything is known.
func (a *answer) loadHeader() {
	if a.report == "" || a.e.cfg.Kind != VLLM {
		return
	}
	w, l := a.w, a.e.Load()
	use, waiting := float64(l.UsedBlocks)/float64(l.Blocks), float64(l.Waiting)
	switch strings.ToUpper(a.report) {
	case "JSON":
		w.Header().Set("Endpoint-Load-Metrics", fmt.Sprintf(`JSON {"named_metrics": {"kv_cache_usage_perc": %s, "num_requests_waiting": %s}}`, formatFloat(use), formatFloat(waiting)))
	case "TEXT":
		w.Header().Set("Endpoint-Load-Metrics", fmt.Sprintf("TEXT named_metrics.kv_cache_usage_perc=%s, named_metrics.num_requests_waiting=%s", formatFloat(use), formatFloat(waiting)))
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
