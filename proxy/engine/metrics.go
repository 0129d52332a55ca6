package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hearsay-llm/hearsay/state"
)

// names are the metric families of one engine, newest name first. Counts are
// summed over label sets (an engine's ranks), ratios averaged.
type names struct {
	running, waiting, kv, queries, hits []string
	lora, cacheConfig                   string
}

// startTime is the process start, Unix seconds, as Prometheus clients name it.
const startTime = "process_start_time_seconds"

// maxFigure is the largest value believed of any metric.
const maxFigure = 1e15

var vllmMetrics = names{
	running:     []string{"vllm:num_requests_running"},
	waiting:     []string{"vllm:num_requests_waiting"},
	kv:          []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
	queries:     []string{"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"},
	hits:        []string{"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"},
	lora:        "vllm:lora_requests_info",
	cacheConfig: "vllm:cache_config_info",
}

var sglangMetrics = names{
	running: []string{"sglang:num_running_reqs", "sglang_num_running_reqs"},
	waiting: []string{"sglang:num_queue_reqs", "sglang_num_queue_reqs"},
	kv:      []string{"sglang:token_usage", "sglang_token_usage"},
}

var llamaMetrics = names{
	running: []string{"llamacpp:requests_processing"},
	waiting: []string{"llamacpp:requests_deferred"},
}

// readMetrics scrapes /metrics into out.
func (rd *Reader) readMetrics(ctx context.Context, r state.Replica, out *state.Reading, n names) error {
	body, err := rd.get(ctx, r, "/metrics")
	if err != nil {
		return err
	}
	return parseMetrics(body, n, out)
}

// parseMetrics fills out from a text exposition.
func parseMetrics(body []byte, n names, out *state.Reading) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	fams, err := parser.TextToMetricFamilies(bytes.NewReader(n.keep(body)))
	if err != nil {
		return fmt.Errorf("parse metrics: %w", err)
	}
	out.Running = reduce(fams, n.running, false)
	out.Waiting = reduce(fams, n.waiting, false)
	out.KVUsage = reduce(fams, n.kv, true)
	out.Queries = reduce(fams, n.queries, false)
	out.Hits = reduce(fams, n.hits, false)
	if v := reduce(fams, []string{startTime}, true); v > 0 {
		out.Started = v
	}
	if f := fams[n.cacheConfig]; f != nil {
		out.Capacity = capacity(f)
	}
	if f := fams[n.lora]; f != nil {
		out.Adapters = adapters(f)
	}
	if out.Running < 0 && out.Waiting < 0 && out.KVUsage < 0 {
		return fmt.Errorf("no known metric in %d bytes", len(body))
	}
	return nil
}

// keep copies the lines of the families that are read. An engine's exposition is
// mostly histograms, whose parsing would cost a reader of many replicas most of
// its time.
func (n *names) keep(body []byte) []byte {
	wanted := func(line []byte) bool {
		if rest, ok := bytes.CutPrefix(line, []byte("# TYPE ")); ok {
			line = rest
		}
		end := bytes.IndexAny(line, "{ \t")
		if end < 0 {
			return false
		}
		name := string(line[:end])
		for _, list := range [][]string{n.running, n.waiting, n.kv, n.queries, n.hits, {n.lora, n.cacheConfig, startTime}} {
			if slices.Contains(list, name) {
				return true
			}
		}
		return false
	}
	var out []byte
	for line := range bytes.Lines(body) {
		if wanted(line) {
			out = append(out, line...)
		}
	}
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return out
}

// reduce sums (or averages) the first of the named families that exists; negative
// if none does.
func reduce(fams map[string]*dto.MetricFamily, names []string, mean bool) float64 {
	for _, name := range names {
		f := fams[name]
		if f == nil || len(f.GetMetric()) == 0 {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += value(m)
		}
		if mean {
			sum /= float64(len(f.GetMetric()))
		}
		if math.IsNaN(sum) || sum < 0 || sum > maxFigure {
			return -1 // not a figure: unknown
		}
		return sum
	}
	return -1
}

func value(m *dto.Metric) float64 {
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	default:
		return m.GetUntyped().GetValue()
	}
}

// capacity is block size x blocks, summed over an engine's ranks; negative when
// the labels are missing or odd.
func capacity(f *dto.MetricFamily) float64 {
	sum := -1.0
	for _, m := range f.GetMetric() {
		size, err1 := strconv.ParseFloat(label(m, "block_size"), 64)
		blocks, err2 := strconv.ParseFloat(label(m, "num_gpu_blocks"), 64)
		if err1 == nil && err2 == nil && size > 0 && blocks > 0 && size*blocks < maxFigure {
			sum = max(sum, 0) + size*blocks
		}
	}
	return sum
}

// adapters lists the running adapters. The family's value is a Unix time: the
// newest series is the present one.
func adapters(f *dto.MetricFamily) []string {
	var newest *dto.Metric
	for _, m := range f.GetMetric() {
		if newest == nil || value(m) > value(newest) {
			newest = m
		}
	}
	if newest == nil {
		return nil
	}
	var out []string
	for name := range strings.SplitSeq(label(newest, "running_lora_adapters"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// readSGLang prefers /v1/loads, which also tells waiting uncached tokens, and
// falls back to /metrics.
func (rd *Reader) readSGLang(ctx context.Context, r state.Replica, out *state.Reading) error {
	body, err := rd.get(ctx, r, "/v1/loads?include=core,queues,memory")
	if err != nil {
		return rd.readMetrics(ctx, r, out, sglangMetrics)
	}
	return parseLoads(body, out)
}

// parseLoads fills out from SGLang's /v1/loads: one entry per data-parallel rank.
func parseLoads(body []byte, out *state.Reading) error {
	var doc struct {
		Version string `json:"version"`
		Loads   []struct {
			Running         *float64 `json:"num_running_reqs"`
			Waiting         *float64 `json:"num_waiting_reqs"`
			WaitingUncached *float64 `json:"num_waiting_uncached_tokens"`
			Max             *float64 `json:"max_total_num_tokens"`
			Usage           *float64 `json:"token_usage"`
		} `json:"loads"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("parse loads: %w", err)
	}
	if len(doc.Loads) == 0 {
		return fmt.Errorf("no loads reported")
	}
	sum := func(dst *float64, v *float64) {
		if v != nil {
			*dst = max(*dst, 0) + *v
		}
	}
	usage := 0.0
	for _, l := range doc.Loads {
		sum(&out.Running, l.Running)
		sum(&out.Waiting, l.Waiting)
		sum(&out.WaitingUncached, l.WaitingUncached)
		sum(&out.Capacity, l.Max)
		if l.Usage != nil {
			usage += *l.Usage
			out.KVUsage = usage / float64(len(doc.Loads))
		}
	}
	out.Version = doc.Version
	return nil
}

// readLlamaCpp reads /metrics where it is enabled and /props for the capacity.
func (rd *Reader) readLlamaCpp(ctx context.Context, r state.Replica, out *state.Reading) error {
	body, err := rd.get(ctx, r, "/props")
	if err != nil {
		return err
	}
	var props struct {
		Slots    float64 `json:"total_slots"`
		Settings struct {
			NCtx float64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Sleeping bool `json:"is_sleeping"`
	}
	if err := json.Unmarshal(body, &props); err != nil {
		return fmt.Errorf("parse props: %w", err)
	}
	if props.Slots > 0 && props.Settings.NCtx > 0 {
		out.Capacity = props.Slots * props.Settings.NCtx
	}
	out.Loading = props.Sleeping
	if err := rd.readMetrics(ctx, r, out, llamaMetrics); err != nil {
		// Metrics are off by default there: alive, load unknown.
		return nil
	}
	if props.Slots > 0 && out.Running >= 0 {
		out.KVUsage = min(1, out.Running/props.Slots)
	}
	return nil
}
