package sim

import (
	"math"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/test/whatif"
)

// What --what-if says agrees with whole routers: mean TTFT within 15 %, hit rate within
// 0.03.
func TestWhatIfAgreesWithWholeRouters(t *testing.T) {
	t.Parallel()
	w, err := works["conversation"](1, 200)
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{routing.TTFT, routing.RoundRobin} {
		r, err := runCell(t, Cell{Group: "law", Name: "whole routers, " + policy, Config: Config{Routers: 3, Policy: policy, Link: lan}}, 1, w)
		if err != nil {
			t.Fatal(err)
		}
		cfg := whatif.DefaultConfig()
		cfg.Policy, cfg.SLO = policy, DefaultSLO
		got, err := whatif.Run(t.Context(), cfg, w)
		if err != nil {
			t.Fatal(err)
		}
		want := r.Figures
		mean := time.Duration(want.TTFTMean * float64(time.Second))
		t.Logf("%s: mean TTFT %v and %v, hit rate %.3f and %.3f, met SLO %.3f and %.3f", policy, mean, got.TTFTMean, want.HitRate, got.HitRate, want.MetSLO, got.MetSLO)
		if math.Abs(float64(got.TTFTMean-mean)) > 0.15*float64(mean) || math.Abs(got.HitRate-want.HitRate) > 0.03 {
			t.Errorf("%s: mean TTFT %v with whole routers and %v, hit rate %.3f and %.3f", policy, mean, got.TTFTMean, want.HitRate, got.HitRate)
		}
	}
}
