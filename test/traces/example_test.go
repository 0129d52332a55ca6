package traces_test

import (
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// The conversation trace at three times its rate, from its tenth minute on.
func ExampleOpen() {
	trace, err := traces.Open(traces.MooncakeConversation, traces.OpenConfig{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer trace.Close()
	src := traces.Scale(traces.Window(trace, 10*time.Minute, 20*time.Minute), 3)
	stats, err := traces.Summarize(src)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d requests at %.1f/s\n", stats.Requests, stats.Rate())
	// Output: 1900 requests at 9.5/s
}
