package enginesim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// answer relays a call's progress to its client. One handler goroutine owns it.
type answer struct {
	e     *Engine
	w     http.ResponseWriter
	rc    *http.ResponseController
	c     *call
	req   *request
	f     *format
	fault *activeFault // with AfterEvents > 0, or nil
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
	opened := false
	for done := false; !done; {
		if err := a.c.wait(ctx, a.progress); err != nil {
			a.broken(ctx)
			return
		}
		if !opened && a.f.kind == formatChat {
			for i := range a.c.seqs {
				a.buf = a.f.role(a.buf, i, a.continuous(i, 0))
				if a.event(ctx) {
					return
				}
			}
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
	u := a.c.usage(a.progress)
	if a.req.includeUsage || a.e.cfg.Kind == LlamaCpp {
		a.buf = a.f.tail(a.buf, u, a.timings(u))
		if a.event(ctx) {
			return
		}
	}
	a.buf = append(a.buf, "data: [DONE]\n\n"...)
	if a.event(ctx) {
		return
	}
	a.c.finish(OutcomeFinished)
	_ = a.flush()
	a.noteEvents()
}

// tokens writes the events of sequence i that are due. It reports whether a
// fault ended the answer.
func (a *answer) tokens(ctx context.Context, i int) (over bool) {
	g, p := &a.c.gens[i], &a.progress[i]
	for a.sent[i] < p.tokens {
		n := 1
		if a.sent[i] > 0 {
			n = min(a.c.interval, p.tokens-a.sent[i])
			if n < a.c.interval && !p.done {
				return false
			}
		}
		a.buf = a.f.open(a.buf, i, a.sent[i] == 0)
		for k := range n {
			a.buf = g.appendPiece(a.buf, a.sent[i]+k)
		}
		a.sent[i] += n
		finish := ""
		if a.sent[i] == g.tokens {
			finish = g.finishReason()
		}
		a.buf = a.f.shut(a.buf, finish, a.continuous(i, a.sent[i]))
		if a.event(ctx) {
			return true
		}
	}
	return false
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
	if a.fault.Kind == FaultSilence {
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
	if a.f.kind == formatEmbedding {
		a.buf = embeddings(a.c.rec, a.c.gens, a.req.dimensions, a.req.base64, u)
	} else {
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
		a.buf = append(a.buf, '}')
	}
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
	b, err := json.Marshal(map[string]any{
		"do_remote_prefill": true, "do_remote_decode": false, "remote_engine_id": "sim-" + a.c.rec.ID,
		"remote_block_ids": blocks, "remote_host": "127.0.0.1", "remote_port": 5600, "tp_size": 1,
	})
	if err != nil {
		panic(err) // strings and integers only
	}
	return string(b)
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
