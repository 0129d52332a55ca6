package replay_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hearsay-llm/hearsay/test/replay"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// A replay of the first ten requests of Mooncake's conversation trace, a thousand times faster than they came.
func Example() {
	router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"Hello"}}]}

data: {"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":512}}}

data: [DONE]

`)
	}))
	defer router.Close()

	trace, err := traces.Open(traces.MooncakeConversation, traces.OpenConfig{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer trace.Close()
	report, err := replay.Run(context.Background(), replay.Config{
		Targets: []string{router.URL},
		Model:   "llama-3.1-8b",
		Source:  traces.Head(trace, 10),
		Speed:   1000,
		SLO:     replay.SLO{TTFT: time.Hour},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d of %d ok, hit rate %.1f %%, %d within the SLO\n", report.OK, report.Sent, 100**report.HitRate, report.Goodput.Met)
	// Output: 10 of 10 ok, hit rate 51.2 %, 10 within the SLO
}
