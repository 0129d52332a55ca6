package enginesim

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stats are the counters of the HTTP side; they start over with a restart.
// Guarded by Engine.mu.
type stats struct {
	stop, length, aborted         int64
	firstToken, interToken, total histogram
}

func newStats() stats {
	return stats{
		firstToken: newHistogram(.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
		interToken: newHistogram(.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5),
		total:      newHistogram(.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240),
	}
}

func (s *stats) finished(eos bool) {
	if eos {
		s.stop++
	} else {
		s.length++
	}
}

func (s *stats) clone() stats {
	c := *s
	for _, h := range []*histogram{&c.firstToken, &c.interToken, &c.total} {
		h.counts = slices.Clone(h.counts)
	}
	return c
}

type histogram struct {
	bounds []float64
	counts []int64 // len = len(bounds)+1, not cumulative
	sum    float64
}

func newHistogram(bounds ...float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i]++
	h.sum += v
}

// exposition writes the Prometheus text format.
type exposition struct {
	bytes.Buffer
	labels string           // common labels, without braces
	rank   func(int) string // the label of a rank
}

func (x *exposition) family(name, kind, help string) {
	fmt.Fprintf(x, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (x *exposition) sample(name, extra string, v float64) {
	x.WriteString(name)
	if labels := strings.Trim(x.labels+","+extra, ","); labels != "" {
		x.WriteString("{" + labels + "}")
	}
	x.WriteString(" " + formatFloat(v) + "\n")
}

func (x *exposition) one(name, kind, help string, v float64) {
	x.family(name, kind, help)
	x.sample(name, "", v)
}

// each writes one sample per rank.
func (x *exposition) each(name, kind, help string, ranks []rankState, v func(*rankState) float64) {
	x.family(name, kind, help)
	for i := range ranks {
		x.sample(name, x.rank(i), v(&ranks[i]))
	}
}

func (x *exposition) histogram(name, help string, ranks []rankState, of func(*rankState) *histogram) {
	x.family(name, "histogram", help)
	for i := range ranks {
		h, rank := of(&ranks[i]), x.rank(i)
		var n int64
		for i, c := range h.counts {
			n += c
			le := math.Inf(1)
			if i < len(h.bounds) {
				le = h.bounds[i]
			}
			x.sample(name+"_bucket", strings.Trim(rank+`,le="`+formatFloat(le)+`"`, ","), float64(n))
		}
		x.sample(name+"_sum", rank, h.sum)
		x.sample(name+"_count", rank, float64(n))
	}
}

// formatFloat writes numbers as Python's client does: 3.0, +Inf.
func formatFloat(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// quote escapes a label value.
func quote(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v) + `"`
}

// exposition renders /metrics. It locks.
func (e *Engine) exposition() []byte {
	ranks := e.states()
	e.mu.Lock()
	born := e.born
	e.mu.Unlock()
	x := &exposition{rank: func(int) string { return "" }}
	switch e.cfg.Kind {
	case SGLang:
		e.sglangMetrics(x, ranks, born)
	case LlamaCpp:
		e.llamaMetrics(x, ranks[0].load, ranks[0].totals)
	default:
		e.vllmMetrics(x, ranks, born)
	}
	return x.Bytes()
}

func (e *Engine) vllmMetrics(x *exposition, ranks []rankState, born time.Time) {
	x.one("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", unixSeconds(born))
	x.rank = func(i int) string { return "engine=" + quote(ranks[i].label) + ",model_name=" + quote(e.cfg.Model) }
	each := func(name, kind, help string, v func(*rankState) float64) { x.each(name, kind, help, ranks, v) }
	each("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", func(r *rankState) float64 { return float64(r.load.Running) })
	each("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", func(r *rankState) float64 { return float64(r.load.Waiting) })
	each("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", func(r *rankState) float64 {
		return float64(r.load.UsedBlocks) / float64(r.load.Blocks)
	})
	for _, c := range []struct {
		name, help string
		v          func(*Totals) int64
	}{
		{"vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", func(t *Totals) int64 { return t.QueriedTokens }},
		{"vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", func(t *Totals) int64 { return t.HitTokens }},
		{"vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", func(t *Totals) int64 { return t.Preemptions }},
		{"vllm:prompt_tokens_total", "Number of prefill tokens processed.", func(t *Totals) int64 { return t.PromptTokens }},
		{"vllm:generation_tokens_total", "Number of generation tokens processed.", func(t *Totals) int64 { return t.GeneratedTokens }},
	} {
		each(c.name, "counter", c.help, func(r *rankState) float64 { return float64(c.v(&r.totals)) })
	}
	x.family("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	for i := range ranks {
		s := &ranks[i].stats
		x.sample("vllm:request_success_total", x.rank(i)+`,finished_reason="stop"`, float64(s.stop))
		x.sample("vllm:request_success_total", x.rank(i)+`,finished_reason="length"`, float64(s.length))
		x.sample("vllm:request_success_total", x.rank(i)+`,finished_reason="abort"`, float64(s.aborted))
	}
	x.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", ranks, func(r *rankState) *histogram { return &r.stats.firstToken })
	x.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", ranks, func(r *rankState) *histogram { return &r.stats.interToken })
	x.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", ranks, func(r *rankState) *histogram { return &r.stats.total })
	x.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig.")
	for _, r := range ranks {
		x.sample("vllm:cache_config_info", fmt.Sprintf(
			`block_size="%d",cache_dtype="auto",enable_prefix_caching="True",engine=%s,gpu_memory_utilization="0.9",num_gpu_blocks="%d"`,
			e.cfg.BlockTokens, quote(r.label), r.load.Blocks), 1)
	}
	if n := len(e.listed()); n > 0 || e.cfg.MaxLoRAs > 0 {
		limit := e.cfg.MaxLoRAs
		if limit == 0 {
			limit = n
		}
		x.family("vllm:lora_requests_info", "gauge", "Running stats on lora requests.")
		x.sample("vllm:lora_requests_info", fmt.Sprintf(`max_lora="%d",running_lora_adapters=%s,waiting_lora_adapters=%s`,
			limit, quote(strings.Join(ranks[0].running, ",")), quote(strings.Join(ranks[0].waiting, ","))), unixSeconds(time.Now()))
	}
}

func (e *Engine) sglangMetrics(x *exposition, ranks []rankState, born time.Time) {
	x.one("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", unixSeconds(born))
	x.rank = func(i int) string {
		rank := ""
		if len(ranks) > 1 {
			rank = `dp_rank="` + strconv.Itoa(i) + `",`
		}
		return rank + `engine_type="unified",model_name=` + quote(e.cfg.Model) + `,moe_ep_rank="0",pp_rank="0",tp_rank="0"`
	}
	each := func(name, help string, v func(*rankState) float64) { x.each(name, "gauge", help, ranks, v) }
	each("sglang:num_running_reqs", "The number of running requests.", func(r *rankState) float64 { return float64(r.load.Running) })
	each("sglang:num_queue_reqs", "The number of requests in the waiting queue.", func(r *rankState) float64 { return float64(r.load.Waiting) })
	each("sglang:num_used_tokens", "The number of used tokens.", func(r *rankState) float64 { return float64(r.load.UsedBlocks * e.cfg.BlockTokens) })
	each("sglang:token_usage", "The token usage.", func(r *rankState) float64 { return float64(r.load.UsedBlocks) / float64(r.load.Blocks) })
	each("sglang:max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", func(r *rankState) float64 { return float64(r.capacity) })
	each("sglang:cache_hit_rate", "The prefix cache hit rate of the last prefill batch.", func(r *rankState) float64 { return r.totals.LastHitRate })
	x.rank = func(i int) string {
		if len(ranks) > 1 {
			return `dp_rank="` + strconv.Itoa(i) + `",model_name=` + quote(e.cfg.Model)
		}
		return "model_name=" + quote(e.cfg.Model)
	}
	for _, c := range []struct {
		name, help string
		v          func(*rankState) int64
	}{
		{"sglang:prompt_tokens_total", "Number of prefill tokens processed.", func(r *rankState) int64 { return r.totals.PromptTokens }},
		{"sglang:generation_tokens_total", "Number of generation tokens processed.", func(r *rankState) int64 { return r.totals.GeneratedTokens }},
		{"sglang:cached_tokens_total", "Number of cached prompt tokens.", func(r *rankState) int64 { return r.totals.HitTokens }},
		{"sglang:num_requests_total", "Number of requests processed.", func(r *rankState) int64 { return r.stats.stop + r.stats.length }},
	} {
		x.each(c.name, "counter", c.help, ranks, func(r *rankState) float64 { return float64(c.v(r)) })
	}
	x.histogram("sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.", ranks, func(r *rankState) *histogram { return &r.stats.firstToken })
	x.histogram("sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", ranks, func(r *rankState) *histogram { return &r.stats.interToken })
	x.histogram("sglang:e2e_request_latency_seconds", "Histogram of end-to-end request latency in seconds.", ranks, func(r *rankState) *histogram { return &r.stats.total })
}

func (e *Engine) llamaMetrics(x *exposition, l Load, t Totals) {
	busy := t.BusyTime.Seconds()
	rate := func(n int64) float64 {
		if busy == 0 {
			return 0
		}
		return float64(n) / busy
	}
	x.one("llamacpp:prompt_tokens_total", "counter", "Number of prompt tokens processed.", float64(t.PrefilledTokens))
	x.one("llamacpp:tokens_predicted_total", "counter", "Number of generation tokens processed.", float64(t.GeneratedTokens))
	x.one("llamacpp:n_decode_total", "counter", "Total number of llama_decode() calls", float64(t.Steps))
	x.one("llamacpp:prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s.", rate(t.PrefilledTokens))
	x.one("llamacpp:predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s.", rate(t.GeneratedTokens))
	x.one("llamacpp:requests_processing", "gauge", "Number of requests processing.", float64(l.Running))
	x.one("llamacpp:requests_deferred", "gauge", "Number of requests deferred.", float64(l.Waiting))
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
