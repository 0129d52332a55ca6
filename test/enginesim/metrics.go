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
	labels string // common labels, without braces
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

func (x *exposition) histogram(name, help string, h histogram) {
	x.family(name, "histogram", help)
	var n int64
	for i, c := range h.counts {
		n += c
		le := math.Inf(1)
		if i < len(h.bounds) {
			le = h.bounds[i]
		}
		x.sample(name+"_bucket", `le="`+formatFloat(le)+`"`, float64(n))
	}
	x.sample(name+"_sum", "", h.sum)
	x.sample(name+"_count", "", float64(n))
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
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
	x := &exposition{}
	l, t := e.core.Load(), e.core.Totals()
	switch e.cfg.Kind {
	case SGLang:
		e.sglangMetrics(x, l, t)
	case LlamaCpp:
		e.llamaMetrics(x, l, t)
	default:
		e.vllmMetrics(x, l, t)
	}
	return x.Bytes()
}

func (e *Engine) vllmMetrics(x *exposition, l Load, t Totals) {
	x.one("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", unixSeconds(e.born))
	x.labels = "engine=" + quote(e.cfg.EngineLabel) + ",model_name=" + quote(e.cfg.Model)
	use := float64(l.UsedBlocks) / float64(l.Blocks)
	x.one("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", float64(l.Running))
	x.one("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", float64(l.Waiting))
	x.one("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", use)
	x.one("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in terms of number of queried tokens.", float64(t.QueriedTokens))
	x.one("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.", float64(t.HitTokens))
	x.one("vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.", float64(t.Preemptions))
	x.one("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", float64(t.PromptTokens))
	x.one("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.", float64(t.GeneratedTokens))
	x.family("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	x.sample("vllm:request_success_total", `finished_reason="stop"`, float64(e.stats.stop))
	x.sample("vllm:request_success_total", `finished_reason="length"`, float64(e.stats.length))
	x.sample("vllm:request_success_total", `finished_reason="abort"`, float64(e.stats.aborted))
	x.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", e.stats.firstToken)
	x.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", e.stats.interToken)
	x.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", e.stats.total)
	x.labels = ""
	x.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig.")
	x.sample("vllm:cache_config_info", fmt.Sprintf(
		`block_size="%d",cache_dtype="auto",enable_prefix_caching="True",engine=%s,gpu_memory_utilization="0.9",num_gpu_blocks="%d"`,
		e.cfg.BlockTokens, quote(e.cfg.EngineLabel), l.Blocks), 1)
	if len(e.cfg.Adapters) > 0 {
		running, waiting := e.core.Adapters()
		limit := e.cfg.MaxLoRAs
		if limit == 0 {
			limit = len(e.cfg.Adapters)
		}
		x.family("vllm:lora_requests_info", "gauge", "Running stats on lora requests.")
		x.sample("vllm:lora_requests_info", fmt.Sprintf(`max_lora="%d",running_lora_adapters=%s,waiting_lora_adapters=%s`,
			limit, quote(strings.Join(running, ",")), quote(strings.Join(waiting, ","))), unixSeconds(time.Now()))
	}
}

func (e *Engine) sglangMetrics(x *exposition, l Load, t Totals) {
	x.one("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", unixSeconds(e.born))
	x.labels = `engine_type="unified",model_name=` + quote(e.cfg.Model) + `,moe_ep_rank="0",pp_rank="0",tp_rank="0"`
	x.one("sglang:num_running_reqs", "gauge", "The number of running requests.", float64(l.Running))
	x.one("sglang:num_queue_reqs", "gauge", "The number of requests in the waiting queue.", float64(l.Waiting))
	x.one("sglang:num_used_tokens", "gauge", "The number of used tokens.", float64(l.UsedBlocks*e.cfg.BlockTokens))
	x.one("sglang:token_usage", "gauge", "The token usage.", float64(l.UsedBlocks)/float64(l.Blocks))
	x.one("sglang:max_total_num_tokens", "gauge", "Maximum total number of tokens in the KV cache pool.", float64(e.cfg.KVTokens))
	x.one("sglang:cache_hit_rate", "gauge", "The prefix cache hit rate of the last prefill batch.", t.LastHitRate)
	x.labels = "model_name=" + quote(e.cfg.Model)
	x.one("sglang:prompt_tokens_total", "counter", "Number of prefill tokens processed.", float64(t.PromptTokens))
	x.one("sglang:generation_tokens_total", "counter", "Number of generation tokens processed.", float64(t.GeneratedTokens))
	x.one("sglang:cached_tokens_total", "counter", "Number of cached prompt tokens.", float64(t.HitTokens))
	x.one("sglang:num_requests_total", "counter", "Number of requests processed.", float64(e.stats.stop+e.stats.length))
	x.histogram("sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.", e.stats.firstToken)
	x.histogram("sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", e.stats.interToken)
	x.histogram("sglang:e2e_request_latency_seconds", "Histogram of end-to-end request latency in seconds.", e.stats.total)
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
