package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// Routers ask each other where they would send a prompt. Those that share think
// alike, and the metric says so; those that do not share don't, and it says that,
// too.
func TestRoutersThinkAlikeBecauseTheyShare(t *testing.T) {
	t.Parallel()
	run := func(name string, mute bool) (asked uint64, regret time.Duration) {
		t.Run(name, func(t *testing.T) {
			cfg := harness.BubbleConfig{Routers: 3, Engines: 4, Delay: time.Millisecond, NoSharing: mute}
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				chats(t, b, 1, 24, 4)
				var sum float64
				for _, r := range b.Routers() {
					n, s := regrets(t, r)
					asked, sum = asked+n, sum+s
				}
				if asked > 0 {
					regret = time.Duration(sum / float64(asked) * float64(time.Second))
				}
				t.Logf("%d picks judged, mean regret %v", asked, regret)
			})
		})
		return asked, regret
	}
	asked, shared := run("sharing", false)
	if asked < 10 {
		t.Fatalf("only %d picks were judged", asked)
	}
	_, mute := run("not sharing", true)
	if shared > 10*time.Millisecond {
		t.Errorf("mean regret %v between routers that share", shared)
	}
	if mute < 3*shared || mute < 20*time.Millisecond {
		t.Errorf("mean regret %v without sharing, %v with it: the metric shows nothing", mute, shared)
	}
}

// regrets reads the count and the sum of a router's hearsay_pick_regret_seconds.
func regrets(t testing.TB, r *harness.Router) (n uint64, sum float64) {
	t.Helper()
	var text string
	if _, err := r.Admin("GET", "/metrics", nil, &text); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	f := families["hearsay_pick_regret_seconds"]
	if f == nil {
		t.Fatal("no hearsay_pick_regret_seconds")
	}
	h := f.GetMetric()[0].GetHistogram()
	return h.GetSampleCount(), h.GetSampleSum()
}
