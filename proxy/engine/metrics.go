package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hearsay-llm/hearsay/state"
)

// figure is what is read of an exposition.
type figure uint8

const (
	running figure = iota
	waiting
	kvUsage
	queries
	hits
	processed   // prompt tokens since the process began
	capacity    // KV tokens
	cacheConfig // vLLM: labels block_size and num_gpu_blocks
	lora        // vLLM: labels; its value is a Unix time
	started     // Unix seconds
	figures     // how many there are
)

// family is what a metric of one engine tells. Of several names for one figure the
// one with the lowest age counts: releases rename, and some expose both.
type family struct {
	figure figure
	age    int
}

// dialect is how one engine names things.
type dialect struct {
	families map[string]family
	rank     string // label that tells data-parallel ranks apart
}

// startTime is the process start as Prometheus clients name it. Processes that
// serve together (several API servers) have none.
const startTime = "process_start_time_seconds"

// loraInfo is vLLM's metric of adapters in use.
const loraInfo = "vllm:lora_requests_info"

var vllmDialect = dialect{rank: "engine", families: map[string]family{
	"vllm:num_requests_running":           {running, 0},
	"vllm:num_requests_waiting":           {waiting, 0},
	"vllm:kv_cache_usage_perc":            {kvUsage, 0},
	"vllm:gpu_cache_usage_perc":           {kvUsage, 1},
	"vllm:prefix_cache_queries_total":     {queries, 0},
	"vllm:prefix_cache_queries":           {queries, 1},
	"vllm:gpu_prefix_cache_queries_total": {queries, 2},
	"vllm:prefix_cache_hits_total":        {hits, 0},
	"vllm:prefix_cache_hits":              {hits, 1},
	"vllm:gpu_prefix_cache_hits_total":    {hits, 2},
	"vllm:prompt_tokens_total":            {processed, 0},
	"vllm:cache_config_info":              {cacheConfig, 0},
	loraInfo:                              {lora, 0},
	startTime:                             {started, 0},
}}

var sglangDialect = dialect{rank: "dp_rank", families: map[string]family{
	"sglang:num_running_reqs":     {running, 0},
	"sglang_num_running_reqs":     {running, 1},
	"sglang:num_queue_reqs":       {waiting, 0},
	"sglang_num_queue_reqs":       {waiting, 1},
	"sglang:token_usage":          {kvUsage, 0},
	"sglang_token_usage":          {kvUsage, 1},
	"sglang:prompt_tokens_total":  {processed, 0},
	"sglang_prompt_tokens_total":  {processed, 1},
	"sglang:max_total_num_tokens": {capacity, 0},
	"sglang_max_total_num_tokens": {capacity, 1},
	startTime:                     {started, 0},
}}

var llamaDialect = dialect{families: map[string]family{
	"llamacpp:requests_processing":        {running, 0},
	"llamacpp:requests_deferred":          {waiting, 0},
	"llamacpp:prompt_tokens_total":        {processed, 0}, // those from its cache are not among them
	"llamacpp:prompt_tokens_cached_total": {hits, 0},
	"llamacpp:kv_cache_usage_ratio":       {kvUsage, 0}, // older builds
	startTime:                             {started, 0},
}}

// tally is one figure over its label sets.
type tally struct {
	sum  float64
	n    int
	age  int
	seen bool
}

func (t *tally) add(age int, v float64) {
	switch {
	case !t.seen || age < t.age:
		*t = tally{v, 1, age, true}
	case age == t.age:
		t.sum += v
		t.n++
	}
}

// total is the sum, negative when nothing was seen.
func (t *tally) total() float64 {
	if !t.seen || t.sum > maxFigure {
		return -1
	}
	return t.sum
}

// mean is the average, negative when nothing was seen.
func (t *tally) mean() float64 {
	if !t.seen {
		return -1
	}
	return t.sum / float64(t.n)
}

// tallies is what an exposition says of one rank, or of all.
type tallies struct {
	of     [figures]tally
	block  float64 // tokens; 0 = unknown
	blocks float64 // tokens in all blocks
	lora   slots
	newest float64 // time of lora
}

var errNoMetric = errors.New("no known metric")

// readExposition fills out, one reading per rank, from a text exposition. One
// replica is all of the process: counts are summed over label sets and ratios
// averaged. Several are told apart by the dialect's rank label; of what carries no
// such label only the capacity, the start and the adapters are known of each.
func readExposition(body []byte, d *dialect, ranks []state.Replica, out []state.Reading) error {
	per := make([]tallies, len(ranks))
	var whole tallies // samples without a rank
	wanted := func(name []byte) bool { _, ok := d.families[string(name)]; return ok }
	samples(body, wanted, func(s *sample) {
		f := d.families[string(s.name)]
		if len(ranks) == 1 {
			per[0].take(f, s)
			return
		}
		label := s.label(d.rank)
		if label == nil {
			whole.take(f, s)
			return
		}
		for i := range ranks {
			if string(label) == strconv.Itoa(ranks[i].Rank) {
				per[i].take(f, s)
			}
		}
	})
	known := false
	for i := range per {
		if len(ranks) > 1 {
			per[i].inherit(&whole)
		}
		known = per[i].fill(&out[i]) || known
	}
	if !known && !whole.load() {
		return fmt.Errorf("%w in %d bytes", errNoMetric, len(body))
	}
	return nil
}

func (t *tallies) take(f family, s *sample) {
	switch f.figure {
	case cacheConfig:
		size, err1 := strconv.ParseFloat(string(s.label("block_size")), 64)
		blocks, err2 := strconv.ParseFloat(string(s.label("num_gpu_blocks")), 64)
		if err1 == nil && err2 == nil && size > 0 && blocks > 0 && size*blocks < maxFigure {
			t.block = size
			t.blocks += size * blocks
		}
	case lora:
		if s.value >= t.newest { // the newest series is the present one
			t.newest, t.lora = s.value, slots{
				running: adapters(s.label("running_lora_adapters")), waiting: adapters(s.label("waiting_lora_adapters")),
			}
			if n, err := strconv.Atoi(string(s.label("max_lora"))); err == nil && n > 0 && n < maxFigure {
				t.lora.most = n
			}
		}
	default:
		t.of[f.figure].add(f.age, s.value)
	}
}

// slots are an engine's adapters in use.
type slots struct {
	running, waiting []string
	most             int // that may run at a time; 0 = unknown
}

func adapters(list []byte) (out []string) {
	for name := range strings.SplitSeq(string(list), ",") {
		if name = strings.TrimSpace(name); name != "" && len(out) < state.MaxAdapters && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// inherit takes what holds for each rank from the samples without one.
func (t *tallies) inherit(whole *tallies) {
	if t.block == 0 {
		t.block, t.blocks = whole.block, whole.blocks
	}
	if t.newest == 0 {
		t.newest, t.lora = whole.newest, whole.lora
	}
	for _, f := range []figure{started, capacity} {
		if !t.of[f].seen {
			t.of[f] = whole.of[f]
		}
	}
}

// load reports whether anything is known of the load.
func (t *tallies) load() bool {
	return t.of[running].seen || t.of[waiting].seen || t.of[kvUsage].seen
}

// fill writes a reading's figures and reports whether the load is among them.
func (t *tallies) fill(r *state.Reading) bool {
	r.Running, r.Waiting = t.of[running].total(), t.of[waiting].total()
	r.KVUsage = t.of[kvUsage].mean()
	r.Queries, r.Hits, r.Processed = t.of[queries].total(), t.of[hits].total(), t.of[processed].total()
	if v := t.of[started].mean(); v > 0 {
		r.Started = v
	}
	if v := t.of[capacity].total(); v > 0 {
		r.Capacity = v
	}
	if t.block > 0 {
		r.BlockSize = t.block
		if t.blocks <= maxFigure {
			r.Capacity = t.blocks
		}
	}
	r.AdaptersRunning, r.AdaptersWaiting, r.AdapterSlots = t.lora.running, t.lora.waiting, t.lora.most
	return t.load()
}
