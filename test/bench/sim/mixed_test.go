package sim

import (
	"testing"
	"time"
)

// M11, in small: beside twice what can be served in the normal band and in the low one
// nothing of the high band is refused or waits for long, the low one gets something, and
// tenants share by weight what is not enough for them.
func TestBandsAndTenantsUnderOverload(t *testing.T) {
	t.Parallel()
	m := mixed{capacity: 27_000, normal: 2, low: 2, warm: 8 * time.Second, last: 28 * time.Second}
	r, err := m.run(t, Cell{Group: "law", Name: "mixed"}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := r.Extra
	t.Logf("%.3v", x)
	if x["high_p50"] > 0.5 || x["high_p99"] > 3 || x["high_refused"] > 0 || x["normal_p50"] < 2*x["high_p99"] {
		t.Errorf("high band's p50 %.2f s, p99 %.2f s, %.2f of it refused; the normal band's p50 %.2f s", x["high_p50"], x["high_p99"], x["high_refused"], x["normal_p50"])
	}
	if x["unfair"] > 0.15 {
		t.Errorf("a tenant is off its fair share by %.2f", x["unfair"])
	}
	if x["low_share"] < 0.05 {
		t.Errorf("the low band gets %.3f of all tokens", x["low_share"])
	}
}
