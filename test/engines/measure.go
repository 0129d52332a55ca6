package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
	"github.com/hearsay-llm/hearsay/test/replay"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// part is the times to first token of some requests.
type part struct {
	Requests int     `json:"requests"`
	P50      float64 `json:"ttft_p50_ms"`
	Mean     float64 `json:"ttft_mean_ms"`
}

// figure is what one engine and policy came to.
type figure struct {
	Engine    string  `json:"engine"`
	Version   string  `json:"version"`
	Policy    string  `json:"policy"`
	Requests  int     `json:"requests"`
	Failed    int     `json:"failed"`
	Prompt    float64 `json:"prompt_tokens_mean"`
	All       part    `json:"all"`
	Warm      part    `json:"warm"`                  // more than half of the prompt was expected to be cached
	Cold      part    `json:"cold"`                  // all others
	Predicted float64 `json:"predicted"`             // share of prompt tokens expected to be cached
	Reported  float64 `json:"reported"`              // as the engine reports it; -1 = it does not
	Prefilled float64 `json:"prefilled_tokens_mean"` // of a prompt, those that no cache held; -1 = not known
	ErrorP50  float64 `json:"prediction_error_p50"`
	ErrorP90  float64 `json:"prediction_error_p90"` // of |predicted - reported| / prompt
	Bias      float64 `json:"prediction_bias"`      // mean of (predicted - reported) / prompt
	WallS     float64 `json:"wall_s"`

	Errors   map[string]string `json:"errors,omitempty"`
	Replicas []console.Replica `json:"replicas"` // as a router sees them after the run
}

// workload is chats with agents of six kinds, each with a system prompt of its own. The answers that
// the model gave are in the later prompts.
func (o *options) workload() traces.AgentsConfig {
	return traces.AgentsConfig{
		Seed: o.seed, Sessions: o.chats, Rate: 0.5, Kinds: 6, SystemTokens: 500,
		Turns: traces.Range{Min: o.turns, Max: o.turns}, UserTokens: traces.Range{Min: 60, Max: 160},
		OutputTokens: traces.Range{Min: 16, Max: 32}, Think: 2 * time.Second, RealAnswers: true,
	}
}

// measure plays the chats. Two requests at a time are in flight, which is what two cores
// can serve; times are from the moment a request was sent.
func measure(ctx context.Context, o *options, k *kind, policy string, cluster *procs.Cluster) (f figure, err error) {
	src, err := traces.Agents(o.workload())
	if err != nil {
		return f, err
	}
	r, err := procs.Replay(ctx, replay.Config{
		Targets: cluster.APIs(), Model: k.model, Source: src, Seed: o.seed, Debug: true, IgnoreEOS: true,
		Concurrency: 2, Timeout: 5 * time.Minute, Progress: os.Stderr,
	})
	if err != nil {
		return f, err
	}
	list, err := procs.Samples(r)
	if err != nil {
		return f, err
	}
	f = sum(list)
	f.Engine, f.Policy, f.WallS = k.title, policy, r.WallDuration
	if r.CachedReports == 0 {
		f.Reported, f.Prefilled, f.ErrorP50, f.ErrorP90, f.Bias = -1, -1, -1, -1, 0
	}
	for kind, message := range r.ErrorExamples {
		if f.Errors == nil {
			f.Errors = map[string]string{}
		}
		f.Errors[string(kind)] = message
	}
	if err := cluster.Routers[0].GetAdmin(ctx, "replicas", &f.Replicas); err != nil {
		return f, err
	}
	return f, nil
}

// sum sums up a run's requests.
func sum(list []procs.Sample) (f figure) {
	var all, warm, cold, errors, bias []float64
	prompt, predicted, cached := 0, 0, 0
	for _, s := range list {
		f.Requests++
		if !s.OK {
			f.Failed++
			continue
		}
		ms := float64(s.TTFT) / float64(time.Millisecond)
		all = append(all, ms)
		if 2*s.Predicted > s.Prompt {
			warm = append(warm, ms)
		} else {
			cold = append(cold, ms)
		}
		prompt, predicted, cached = prompt+s.Prompt, predicted+s.Predicted, cached+s.Cached
		e := float64(s.Predicted-s.Cached) / float64(max(1, s.Prompt))
		errors, bias = append(errors, max(e, -e)), append(bias, e)
	}
	slices.Sort(errors)
	f.All, f.Warm, f.Cold = newPart(all), newPart(warm), newPart(cold)
	f.Prompt = float64(prompt) / float64(max(1, len(all)))
	f.Predicted, f.Reported = float64(predicted)/float64(max(1, prompt)), float64(cached)/float64(max(1, prompt))
	f.Prefilled = float64(prompt-cached) / float64(max(1, len(all)))
	f.ErrorP50, f.ErrorP90, f.Bias = table.Quantile(errors, 0.5), table.Quantile(errors, 0.9), table.Mean(bias)
	return f
}

func newPart(ms []float64) part { return part{len(ms), table.Median(ms), table.Mean(ms)} }

// print writes the figures and the checks, and is an error when a check failed.
func (res *result) print(w io.Writer) error {
	var rows [][]string
	share := func(v float64) string {
		if v < 0 {
			return "-"
		}
		return table.Percent(v)
	}
	for _, f := range res.Runs {
		rows = append(rows, []string{
			f.Engine, f.Policy, fmt.Sprint(f.Requests), fmt.Sprint(f.Failed), table.Num(f.Prompt), table.Num(f.Prefilled),
			table.Num(f.All.P50), table.Num(f.All.Mean),
			fmt.Sprint(f.Warm.Requests), table.Num(f.Warm.P50), table.Num(f.Warm.Mean), fmt.Sprint(f.Cold.Requests), table.Num(f.Cold.P50), table.Num(f.Cold.Mean),
			share(f.Predicted), share(f.Reported), share(f.ErrorP50), share(f.ErrorP90), table.Percent(f.Bias),
		})
	}
	table.Print(w, "Chats on real engines, times to first token in ms ("+res.Machine+")", 2, []string{
		"engine", "policy", "requests", "failed", "prompt tokens", "prefilled", "p50", "mean",
		"warm", "p50", "mean", "cold", "p50", "mean", "predicted", "reported", "error p50", "p90", "bias",
	}, rows)
	rows = nil
	failed := 0
	for _, c := range res.Checks {
		if c.Error != "" {
			failed++
		}
		rows = append(rows, []string{c.Engine, c.Name, c.result()})
	}
	table.Print(w, "Checks", 3, []string{"engine", "check", "result"}, rows)
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(res.Checks))
	}
	return nil
}

// machine names the processor and how many of it there are.
func machine() string {
	name := "unknown processor"
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			name = strings.TrimSpace(v)
			break
		}
	}
	return fmt.Sprintf("%d cores, %s", runtime.NumCPU(), name)
}
