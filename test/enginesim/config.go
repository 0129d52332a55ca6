package enginesim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the engine an Engine speaks like.
type Kind string

// The kinds of engine.
const (
	VLLM     Kind = "vllm"
	SGLang   Kind = "sglang"
	LlamaCpp Kind = "llamacpp"
	// Anthropic is Anthropic's own API: Messages, and nothing that tells its load.
	Anthropic Kind = "anthropic"
)

var kinds = []Kind{VLLM, SGLang, LlamaCpp, Anthropic}

// Config says what an Engine is. Start from DefaultConfig.
type Config struct {
	// Kind chooses paths, metric names, usage fields and error bodies. Default vllm.
	Kind Kind
	// Model is the served base model's name. Default "sim-70b".
	Model string
	// Adapters are the names of LoRA adapters served beside the base model.
	Adapters []string
	// MaxLoRAs bounds the distinct adapters in one batch, and those loaded; 0 = no
	// bound. Default 0.
	MaxLoRAs int
	// AdapterLoad is what loading an adapter takes, which the whole step waits for,
	// divided by Speed. Default 20 ms.
	AdapterLoad time.Duration

	// Profile is the timing: one of ProfileNames, or "simple". Default "h100-70b-tp4".
	Profile string
	// Speed divides all engine times: 10 = ten times faster. Default 1.
	Speed float64
	// SimplePrefillTokensPerSecond, SimpleBaseStep and SimplePerStream are the
	// parts of profile "simple" (see SimpleTiming). Defaults 10,000/s, 10 ms, 0.
	SimplePrefillTokensPerSecond float64
	SimpleBaseStep               time.Duration
	SimplePerStream              time.Duration
	// FrontDelay is the time from a parsed request to its arrival in the
	// scheduler, divided by Speed. It lets requests that come at one instant meet
	// in one step. Default 1 ms.
	FrontDelay time.Duration

	// BlockTokens is the size of a KV block. Default 16.
	BlockTokens int
	// KVTokens is the capacity of the KV cache, a multiple of BlockTokens. Default
	// 400,000: what four 80 GB accelerators have left beside llama2-70b (about
	// 148 GB at 327,680 bytes per token, less activations).
	KVTokens int
	// MaxBatchedTokens is the token budget of a step. Default 8192.
	MaxBatchedTokens int
	// MaxSeqs bounds the running sequences; llama.cpp's slots. Default 256.
	MaxSeqs int
	// MaxQueue bounds waiting requests, above it 503; 0 = no bound (vLLM). Default 0.
	MaxQueue int
	// MaxModelLen bounds prompt plus output of a sequence, tokens; above it 400. It
	// is also bounded by KVTokens. Default 131,072.
	MaxModelLen int
	// MediaTokens is what an image, audio or file part counts. Default 576.
	MediaTokens int

	// Seed decides generated text and drawn lengths. Engines of one pool share it
	// to give equal answers. Default 1.
	Seed uint64
	// MeanOutput is the mean of the drawn output length, tokens. Default 128.
	MeanOutput int
	// DrawUnderLimit makes max_tokens only bound the drawn length. By default a
	// given limit is the length, so that a replayed trace gets what it asks for.
	DrawUnderLimit bool
	// StreamInterval is the number of tokens per stream event; the first is always
	// sent at once. Default 1.
	StreamInterval int
	// HideCachedTokens leaves prompt_tokens_details out of usage, as vLLM does
	// without --enable-prompt-tokens-details. Default false.
	HideCachedTokens bool

	// Version is what /version says; it changes nothing else. Default "0.11.0".
	Version string
	// DPRanks is how many data-parallel ranks the process has: each schedules and
	// caches for itself, see Engine.Rank. For vLLM and SGLang. Default 1.
	DPRanks int
	// Leg is the part of requests that a SGLang engine serves, and Pairs where it meets
	// the engines that serve the other one. Default: whole requests.
	Leg   Leg
	Pairs *Pairs
	// EngineLabel is the engine label of the metrics. Default "0".
	EngineLabel string
	// KeepAlive closes idle connections after this long; uvicorn's and so vLLM's is
	// 5 s, the default. Wall time, not divided by Speed.
	KeepAlive time.Duration
	// MaxBodyBytes bounds a request body, above it 413. Default 256 MiB.
	MaxBodyBytes int64

	// RecordLimit bounds the requests kept by Record, oldest dropped. Default 10,000.
	RecordLimit int
	// KeepBodies keeps request bodies in the record. Default false.
	KeepBodies bool
}

// DefaultConfig returns the defaults written at the fields of Config.
func DefaultConfig() Config {
	return Config{
		Kind:                         VLLM,
		Model:                        "sim-70b",
		Profile:                      "h100-70b-tp4",
		Speed:                        1,
		AdapterLoad:                  20 * time.Millisecond,
		SimplePrefillTokensPerSecond: 10_000,
		SimpleBaseStep:               10 * time.Millisecond,
		FrontDelay:                   time.Millisecond,
		BlockTokens:                  16,
		KVTokens:                     400_000,
		MaxBatchedTokens:             8192,
		MaxSeqs:                      256,
		MaxModelLen:                  131_072,
		MediaTokens:                  576,
		Seed:                         1,
		MeanOutput:                   128,
		StreamInterval:               1,
		Version:                      "0.11.0",
		DPRanks:                      1,
		EngineLabel:                  "0",
		KeepAlive:                    5 * time.Second,
		MaxBodyBytes:                 256 << 20,
		RecordLimit:                  10_000,
	}
}

// What an engine is made for: memory is taken for it at the start.
const (
	maxKVTokens      = 1 << 26
	maxBatchedTokens = 1 << 20
)

// Validate returns all faults of the configuration, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(slices.Contains(kinds, c.Kind), "kind: unknown %q: use %s, %s, %s or %s", c.Kind, VLLM, SGLang, LlamaCpp, Anthropic)
	check(c.Model != "", "model: empty")
	for i, a := range c.Adapters {
		check(a != "" && a != c.Model && !slices.Contains(c.Adapters[:i], a), "adapters: %q is empty, the model or given twice", a)
	}
	check(c.Profile == "simple" || slices.Contains(ProfileNames(), c.Profile), "profile: unknown %q: use simple, %s", c.Profile, strings.Join(ProfileNames(), ", "))
	if c.Profile == "simple" {
		check(c.SimplePrefillTokensPerSecond > 0, "simple_prefill_tokens_per_second: %v is not positive", c.SimplePrefillTokensPerSecond)
		check(c.SimpleBaseStep >= 0 && c.SimplePerStream >= 0, "simple step times: negative")
	}
	check(c.Speed >= 1e-3 && c.Speed <= 1e6, "speed: %v is not 0.001 to 1000000", c.Speed)
	check(c.FrontDelay >= 0 && c.AdapterLoad >= 0, "front_delay, adapter_load: negative")
	check(c.BlockTokens > 0, "block_tokens: %d is not positive", c.BlockTokens)
	check(c.BlockTokens > 0 && c.KVTokens > 0 && c.KVTokens <= maxKVTokens && c.KVTokens%c.BlockTokens == 0,
		"kv_tokens: %d is not a multiple of %d, the size of a block, from %d to %d", c.KVTokens, c.BlockTokens, c.BlockTokens, maxKVTokens)
	check(c.MaxBatchedTokens > 0 && c.MaxBatchedTokens <= maxBatchedTokens, "max_batched_tokens: %d is not 1 to %d", c.MaxBatchedTokens, maxBatchedTokens)
	check(c.MaxSeqs > 0 && c.MaxSeqs <= c.MaxBatchedTokens, "max_seqs: %d is not 1 to %d, the max_batched_tokens", c.MaxSeqs, c.MaxBatchedTokens)
	check(c.MaxModelLen > 1, "max_model_len: %d is not 2 or more", c.MaxModelLen)
	check(c.MeanOutput > 0, "mean_output: %d is not 1 or more", c.MeanOutput)
	check(c.StreamInterval > 0, "stream_interval: %d is not 1 or more", c.StreamInterval)
	check(c.DPRanks >= 1 && c.DPRanks <= 64 && (c.DPRanks == 1 || c.Kind == VLLM || c.Kind == SGLang), "dp_ranks: %d is not in 1..64, or not for %s", c.DPRanks, c.Kind)
	check(c.Leg == "" || (c.Leg == LegPrefill || c.Leg == LegDecode) && c.Kind == SGLang && c.Pairs != nil, "leg: %q is not prefill or decode of a sglang with pairs", c.Leg)
	check(c.MaxQueue >= 0 && c.MaxLoRAs >= 0 && c.MediaTokens >= 0, "max_queue, max_loras, media_tokens: negative")
	check(c.KeepAlive > 0, "keep_alive: %v is not positive", c.KeepAlive)
	check(c.MaxBodyBytes > 0 && c.RecordLimit > 0, "max_body_bytes, record_limit: not positive")
	return errors.Join(errs...)
}

// contextLen is the bound on prompt plus output of a sequence.
func (c Config) contextLen() int { return min(c.MaxModelLen, c.KVTokens) }

// slotTokens is a slot's part of the cache, as llama.cpp tells it. Here slots share
// the cache, so a prompt may be longer.
func (c Config) slotTokens() int { return max(1, c.KVTokens/c.MaxSeqs) }

func (c Config) timing() (Timing, error) {
	if c.Profile == "simple" {
		return SimpleTiming{PrefillTokensPerSecond: c.SimplePrefillTokensPerSecond, Base: c.SimpleBaseStep, PerStream: c.SimplePerStream}, nil
	}
	return NewTiming(c.Profile)
}

func (c Config) core(t Timing) CoreConfig {
	return CoreConfig{
		Blocks: c.KVTokens / c.BlockTokens, BlockTokens: c.BlockTokens, MaxBatchedTokens: c.MaxBatchedTokens,
		MaxSeqs: c.MaxSeqs, MaxAdapters: c.MaxLoRAs, AdapterLoad: c.AdapterLoad, Timing: t, Speed: c.Speed,
	}
}
