package scenario

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// words is text of about n tokens, the same for the same seed and not shared from
// the first word on with that of another seed.
func words(seed string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < 4*n; i++ {
		fmt.Fprintf(&b, "%s-%d says %d. ", seed, i, (i*7919)%997)
	}
	return b.String()
}

// chat is a short question behind a long system prompt.
func chat(system, question string, maxTokens int) harness.Chat {
	return harness.Chat{
		Messages:  []harness.Message{{Role: "system", Content: system}, {Role: "user", Content: question}},
		MaxTokens: maxTokens,
	}
}

func streamed(c harness.Chat) harness.Chat {
	c.Stream, c.Usage = true, true
	return c
}

func ok(t testing.TB, r *harness.Reply) *harness.Reply {
	t.Helper()
	if !r.OK() {
		t.Fatalf("request failed: %v", r)
	}
	return r
}

// each joins what f objects to over the routers that run.
func each(b *harness.Bubble, f func(r *harness.Router) error) error {
	var errs []error
	for _, r := range b.Alive() {
		if err := f(r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}
