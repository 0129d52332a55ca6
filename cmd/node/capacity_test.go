package node

import (
	"math"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// A lone stream takes 20 ms a token, each further one 0.5 ms more: within 50 ms 61 run. Of
// those 50 ms 30 are left for prompts: 6000 of 10,000 tokens/s.
func TestWhatAReplicaCarriesByHand(t *testing.T) {
	p := routing.Params{Rate: 10000, Slowdown: 0.005, ITL: 20, ITLPerStream: 0.5, Samples: 100}
	f := func(name string, role state.Role, limit float64, change func(p *routing.Params, s *state.PoolSpec), want autoscale.Capacity) {
		t.Helper()
		q, s := p, state.PoolSpec{SLOTTFT: time.Second, SLOITL: 50 * time.Millisecond}
		if change != nil {
			change(&q, &s)
		}
		got, ok := CapacityOf(&q, &s, role, limit)
		if !ok {
			t.Errorf("%s: not known", name)
		}
		for i, d := range []float64{
			got.Requests - want.Requests, got.PrefillTokens - want.PrefillTokens, got.PrefillRate - want.PrefillRate, got.OutputRate - want.OutputRate, got.KVTokens,
		} {
			if math.Abs(d) > 0.5 {
				t.Errorf("%s: figure %d of %+v, want %+v", name, i, got, want)
			}
		}
	}
	f("both", state.RoleBoth, 0, nil, autoscale.Capacity{Requests: 61, PrefillRate: 6000, PrefillTokens: 6000, OutputRate: 1220})
	f("decode", state.RoleDecode, 0, nil, autoscale.Capacity{Requests: 61, PrefillRate: 6000, PrefillTokens: 6000, OutputRate: 1220})
	f("prefill has no streams beside it", state.RolePrefill, 0, nil, autoscale.Capacity{PrefillRate: 10000, PrefillTokens: 10000})
	f("an engine that runs 21", state.RoleBoth, 21, nil, autoscale.Capacity{Requests: 21, PrefillRate: 6000, PrefillTokens: 6000, OutputRate: 700})
	f("an objective out of reach", state.RoleBoth, 0, func(p *routing.Params, _ *state.PoolSpec) { p.ITL = 80 },
		autoscale.Capacity{Requests: 16, PrefillRate: 3000, PrefillTokens: 3000, OutputRate: 182.9})
	f("an engine that runs 4", state.RoleBoth, 4, nil, autoscale.Capacity{Requests: 4, PrefillRate: 6000, PrefillTokens: 6000, OutputRate: 186})
	f("streams that cost nothing", state.RoleBoth, 0, func(p *routing.Params, _ *state.PoolSpec) { p.ITLPerStream = 0 },
		autoscale.Capacity{Requests: 1024, PrefillRate: 6000, PrefillTokens: 6000, OutputRate: 51200})
	f("no objectives: 2 s and 100 ms", state.RoleBoth, 0, func(_ *routing.Params, s *state.PoolSpec) { s.SLOTTFT, s.SLOITL = 0, 0 },
		autoscale.Capacity{Requests: 161, PrefillRate: 8000, PrefillTokens: 16000, OutputRate: 1610})
	p.Samples = leastSamples - 1
	if c, ok := CapacityOf(&p, &state.PoolSpec{}, state.RoleBoth, 0); ok {
		t.Errorf("by %v samples: %+v", p.Samples, c)
	}
}
