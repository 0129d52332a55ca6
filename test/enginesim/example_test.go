package enginesim_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
)

// A Core is driven by its own due times; no clock is involved.
func ExampleCore() {
	c := enginesim.NewCore(enginesim.CoreConfig{
		Blocks: 100, BlockTokens: 16, MaxBatchedTokens: 8192, MaxSeqs: 8, Speed: 1,
		Timing: enginesim.SimpleTiming{PrefillTokensPerSecond: 10_000, Base: 10 * time.Millisecond},
	})
	prompt := enginesim.AppendTokens(nil, strings.Repeat("one two three ", 20))
	for i := range 2 {
		s := &enginesim.Seq{ID: uint64(i), Prompt: prompt, MaxOutput: 1, Output: func(int) uint32 { return 7 }}
		if err := c.Add(time.Duration(i)*time.Second, s); err != nil {
			fmt.Println(err)
		}
	}
	for {
		at, ok := c.Next()
		if !ok {
			break
		}
		for _, ev := range c.Step(at) {
			fmt.Println(ev.Seq.ID, "at", ev.At, "cached", ev.Seq.CachedTokens(), "of", len(ev.Seq.Prompt))
		}
	}
	// Output:
	// 0 at 16.1ms cached 0 of 61
	// 1 at 1.0113s cached 48 of 61
}

// An engine refuses what vLLM refuses, in the same words and without Run.
func ExampleEngine() {
	cfg := enginesim.DefaultConfig()
	cfg.Model = "llama"
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"model":"gpt","prompt":"hi"}`))
	enginesim.New(cfg).Handler().ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
	// Output:
	// 404 {"error":{"message":"The model `gpt` does not exist.","type":"NotFoundError","param":"model","code":404}}
}
