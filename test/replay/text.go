package replay

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
)

// lateShare is the client's own delay, as a share of the median TTFT, from which the figures are called into question.
const lateShare = 0.1

// lateLeast is how many requests it takes to judge the client by its latest ones: the first opens connections.
const lateLeast = 100

// WriteText writes the report as a person reads it.
func (r *Report) WriteText(w io.Writer) error {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	name := r.Trace
	if name == "" {
		name = "trace"
	}
	t.line("%s, model %s, %s", name, r.Model, r.Endpoint)
	if r.Speed != 1 {
		t.line("times in engine seconds (wall clock x %g)", r.Speed)
	}
	if r.Interrupted {
		t.line("INTERRUPTED before the end of the trace: figures are of the requests that had ended")
	}
	t.line("")
	t.row("requests", "sent", "ok", "errors", "unfinished", "warm-up")
	t.row("", n(r.Sent), n(r.OK), n(r.Errors), n(r.Unfinished), n(r.Warmup))
	t.line("")
	t.row("time", "mean", "p50", "p90", "p99", "max", "count")
	t.dist("TTFT", r.TTFT)
	t.dist("TPOT", r.TPOT)
	t.dist("E2E", r.E2E)
	t.line("")
	t.row("hit rate", percent(r.HitRate), fmt.Sprintf("%d of %d prompt tokens cached", r.CachedTokens, r.PromptTokens))
	if p := r.Prediction; p != nil {
		t.row("predicted", fmt.Sprintf("%d tokens", p.PredictedTokens),
			fmt.Sprintf("error p50 %.1f %%, p90 %.1f %% of the prompt; bias %+.1f %%", 100*p.ErrorShare.P50, 100*p.ErrorShare.P90, 100*p.Bias))
	}
	t.row("goodput", fmt.Sprintf("%.2f/s", r.Goodput.PerSecond), fmt.Sprintf("%.1f %% of requests within %s", 100*r.Goodput.Share, r.sloText()))
	t.row("throughput", fmt.Sprintf("%.2f/s", r.Throughput.Requests),
		fmt.Sprintf("%.0f input and %.0f output tokens/s", r.Throughput.InputTokens, r.Throughput.OutputTokens))
	t.row("duration", seconds(r.Duration), fmt.Sprintf("%s on the wall clock", seconds(r.WallDuration)))
	t.line("")
	t.rows("target", r.TargetRows)
	t.rows("replica", r.Replicas)
	if len(r.ErrorsByKind) > 0 {
		t.row("error", "count", "example")
		for _, kind := range slices.Sorted(maps.Keys(r.ErrorsByKind)) {
			t.row(string(kind), n(r.ErrorsByKind[kind]), strconv.Quote(r.ErrorExamples[kind]))
		}
		t.line("")
	}
	r.notes(t)
	if err := t.w.Flush(); t.err == nil {
		t.err = err
	}
	return t.err
}

// notes says what a reader must know before trusting the figures.
func (r *Report) notes(t *table) {
	t.line("sending: p50 %s, p99 %s after each request was due by the trace (wall clock; not part of the times above)", seconds(r.Lateness.P50), seconds(r.Lateness.P99))
	if r.Lateness.Count >= lateLeast && r.Lateness.P99 > lateShare*r.Raw.TTFT.P50 && r.Lateness.P99 > 0.001 {
		t.line("note: this client fell behind the trace: 1 of 100 requests left more than %s late, over %.0f %% of the median TTFT (%s on the wall clock).",
			seconds(r.Lateness.P99), 100*lateShare, seconds(r.Raw.TTFT.P50))
		t.line("      The target saw a gentler load than the trace's. Replay at a lower speed or rate, or from a machine of its own.")
	}
	if r.Blocked > 0 {
		t.line("note: sends that waited for the bound on requests in flight (%d): %d; the loop was not open then", r.concurrency, r.Blocked)
	}
	if r.HeldTurns > 0 {
		t.line("note: turns that waited for their own session's answer: %d, p50 %s", r.HeldTurns, seconds(r.Held.P50))
	}
	if r.OK > 0 && r.UsageReports == 0 {
		t.line("note: no engine reported usage; output tokens are counted by events, the hit rate is unknown")
	} else if r.OK > 0 && r.CachedReports == 0 {
		t.line("note: no engine reported cached tokens; the hit rate is unknown (vLLM: --enable-prompt-tokens-details, SGLang: --enable-cache-report)")
	}
}

func (r *Report) sloText() string {
	switch {
	case r.SLOTTFT > 0 && r.SLOTPOT > 0:
		return fmt.Sprintf("TTFT %s and TPOT %s", seconds(r.SLOTTFT), seconds(r.SLOTPOT))
	case r.SLOTTFT > 0:
		return "TTFT " + seconds(r.SLOTTFT)
	case r.SLOTPOT > 0:
		return "TPOT " + seconds(r.SLOTPOT)
	}
	return "no bound (no SLO given)"
}

// WriteSamples writes one CSV row per measured request, in order of sending. Times are wall-clock seconds, unknown values empty.
func (r *Report) WriteSamples(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"due_trace_s", "sent_s", "end_s", "late_s", "target", "replica", "kind", "ttft_s", "tpot_s", "prompt_tokens", "cached_tokens", "predicted_tokens", "output_tokens"}) // kept by out until Error
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 6, 64) }
	known := func(ok bool, v int) string {
		if !ok {
			return ""
		}
		return n(v)
	}
	for _, s := range r.samples {
		_ = out.Write([]string{
			f(s.at.Seconds()), f(s.sent.Seconds()), f(s.end.Seconds()), f(s.late.Seconds()), r.targets[s.target], s.replica, string(s.kind),
			f(s.ttft.Seconds()), f(s.tpot.Seconds()), known(s.usage.known, s.usage.prompt), known(s.usage.cachedKnown, s.usage.cached),
			known(s.predictedKnown, s.predicted), n(s.output),
		})
	}
	out.Flush()
	return out.Error()
}

// table writes aligned rows and keeps the first error.
type table struct {
	w   *tabwriter.Writer
	err error
}

func (t *table) line(format string, args ...any) {
	if _, err := fmt.Fprintf(t.w, format+"\n", args...); t.err == nil {
		t.err = err
	}
}

func (t *table) row(cells ...string) {
	line := ""
	for i, c := range cells {
		if i > 0 {
			line += "\t"
		}
		line += c
	}
	t.line("%s", line)
}

func (t *table) dist(name string, d Dist) {
	if d.Count == 0 {
		t.row(name, "-", "-", "-", "-", "-", "0")
		return
	}
	t.row(name, seconds(d.Mean), seconds(d.P50), seconds(d.P90), seconds(d.P99), seconds(d.Max), n(d.Count))
}

func (t *table) rows(kind string, rows []Row) {
	if len(rows) == 0 {
		return
	}
	t.row(kind, "requests", "errors", "TTFT p50", "TTFT p99", "hit rate")
	for _, r := range rows {
		p50, p99 := "-", "-"
		if r.TTFT.Count > 0 {
			p50, p99 = seconds(r.TTFT.P50), seconds(r.TTFT.P99)
		}
		t.row(r.Name, n(r.Requests), n(r.Errors), p50, p99, percent(r.HitRate))
	}
	t.line("")
}

func n(v int) string { return strconv.Itoa(v) }

func percent(share *float64) string {
	if share == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.1f %%", 100**share)
}
