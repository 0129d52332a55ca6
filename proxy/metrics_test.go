package proxy

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hearsay-llm/hearsay/state"
)

// A pool's counters are there, at zero, before anything has happened, and go with it.
func TestSeriesOfAPoolAreThereBeforeTheyCount(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(reg)
	series := func(name string) int {
		n, err := testutil.GatherAndCount(reg, name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := series("hearsay_shed_total") // what is no pool's
	m.know(&state.PoolSpec{Name: "chat", Fallback: []string{"other"}})
	for name, want := range map[string]int{
		"hearsay_shed_total": before + len(shedReasons), "hearsay_retries_total": len(retryReasons), "hearsay_picks_total": len(pickReasons),
		"hearsay_tokens_total": len(tokenTypes), "hearsay_requests_total": 1, "hearsay_time_to_first_token_seconds": 1,
		"hearsay_fallbacks_total": len(fallbackReasons),
	} {
		if n := series(name); n != want {
			t.Errorf("%s: %d series, want %d", name, n, want)
		}
	}
	m.shed.WithLabelValues("chat", "no_replicas").Inc()
	m.know(&state.PoolSpec{Name: "chat", Fallback: []string{"other"}})
	if v := testutil.ToFloat64(m.shed.WithLabelValues("chat", "no_replicas")); v != 1 {
		t.Errorf("known again, a counter is %v", v)
	}
	m.forget("chat")
	if n := series("hearsay_shed_total"); n != before {
		t.Errorf("%d series of a pool that is gone", n-before)
	}
}
