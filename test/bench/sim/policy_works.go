package sim

import (
	"math/rand/v2"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// traceWork is the first n requests of a recorded trace at its own rate; a fifth of
// them warm the caches. Azure's lengths come with made-up prefixes.
func traceWork(name, trace string) func(uint64, int) (*Workload, error) {
	return func(seed uint64, n int) (*Workload, error) {
		t, err := traces.Open(trace, traces.OpenConfig{
			Seed: seed, Azure: traces.AzureConfig{Prefixes: 1000, PrefixTokens: 1024, ZipfExponent: 1.1},
		})
		if err != nil {
			return nil, err
		}
		defer func() { _ = t.Close() }()
		return NewWorkload(name, traces.Head(t, n), n/5)
	}
}

// The shape of llm-d's shared-prefix benchmark.
const (
	llmdGroups, llmdPrompts             = 150, 5
	llmdSystem, llmdQuestion            = 6000, 1200
	llmdOutput                          = 1000
	llmdKV                              = 307_328 // of each of 8 engines
	llmdWarmRate, warmOutput            = 10, 16  // requests a second, tokens
	settle                              = 10 * time.Second
	llmdSystemID, llmdQuestionID uint64 = 1 << 42, 1 << 43
)

// llmdWork is n requests, one a second by Poisson, after one that warms every group's
// prefix, or every prompt where prompts are repeated.
func llmdWork(fresh bool) func(uint64, int) (*Workload, error) {
	return func(seed uint64, n int) (*Workload, error) {
		rng := rand.New(rand.NewPCG(seed, 0x6c6c6d64))
		var list []*traces.Request
		ask := func(at time.Duration, prompt, question, output int) {
			list = append(list, twoParts(at, llmdSystemID+uint64(prompt/llmdPrompts), llmdSystem, llmdQuestionID+uint64(question), llmdQuestion, output))
		}
		step := 1
		if fresh {
			step = llmdPrompts
		}
		at := time.Duration(0)
		for _, k := range rng.Perm(llmdGroups * llmdPrompts / step) {
			at += time.Second / llmdWarmRate
			ask(at, k*step, k*step, warmOutput)
		}
		warm := len(list)
		at += settle
		for i := range n {
			at += time.Duration(rng.ExpFloat64() * float64(time.Second))
			prompt := rng.IntN(llmdGroups * llmdPrompts)
			question := prompt
			if fresh {
				question += (i + 1) << 20
			}
			ask(at, prompt, question, llmdOutput)
		}
		w, err := NewWorkload("llmd", traces.Slice(list...), warm)
		if err == nil {
			w.OwnWarmup = true
		}
		return w, err
	}
}

// twoParts is a request of a system prompt and a question.
func twoParts(at time.Duration, system uint64, systemTokens int, question uint64, questionTokens, output int) *traces.Request {
	return &traces.Request{
		At: at, InputTokens: systemTokens + questionTokens, OutputTokens: output,
		Messages: []traces.Message{
			{Role: "system", Parts: []traces.Part{{ID: system, Tokens: systemTokens}}},
			{Role: "user", Parts: []traces.Part{{ID: question, Tokens: questionTokens}}},
		},
	}
}

// hotWork is n requests, one a second by Poisson, of which a share begins with one
// prefix and the others with one of 64; half of them spread it as far as the load asks for.
func hotWork(name string, share float64, prefix int) func(uint64, int) (*Workload, error) {
	return func(seed uint64, n int) (*Workload, error) {
		src, err := traces.HotPrefix(traces.HotPrefixConfig{
			Seed: seed, Requests: n, Rate: 1, Share: share, Cold: 64, PrefixTokens: prefix, QuestionTokens: 128, OutputTokens: 128,
		})
		if err != nil {
			return nil, err
		}
		return NewWorkload(name, src, n/2)
	}
}

// waveWork is case K05: n short requests within 100 ms.
func waveWork(seed uint64, n int) (*Workload, error) {
	src, err := traces.Unique(traces.UniqueConfig{
		Seed: seed, Requests: n, Rate: float64(n) / 0.1, InputTokens: traces.Range{Min: 32, Max: 128}, OutputTokens: 64,
	})
	if err != nil {
		return nil, err
	}
	return NewWorkload("wave", src, 0)
}

// uniqueWork is n requests that share nothing, one a second by Poisson; a quarter
// teaches the routers how fast the engines are.
func uniqueWork(seed uint64, n int) (*Workload, error) {
	src, err := traces.Unique(traces.UniqueConfig{
		Seed: seed, Requests: n, Rate: 1, InputTokens: traces.Range{Min: 200, Max: 4000}, OutputTokens: 100,
	})
	if err != nil {
		return nil, err
	}
	return NewWorkload("unique", src, n/4)
}
