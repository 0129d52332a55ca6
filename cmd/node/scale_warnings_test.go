package node

import (
	"testing"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/state"
)

// An actuator that fails is warned of also while nothing is to be done: once, with what
// is wrong.
func TestScaleWarning(t *testing.T) {
	r := autoscale.Report{Key: state.TargetKey{Pool: "chat", Role: state.RoleBoth}, Problem: "not ready yet"}
	r.Seen.Target, r.Seen.Present, r.Plan.From = 2, 2, 2
	f := func(want string) {
		t.Helper()
		if got := scaleWarning(&r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f("")
	r.Failing, r.Problem = true, "list replicas: refused with 401"
	f("pool chat can't be scaled: list replicas: refused with 401")
	r.Refusal = "actuator"
	f("pool chat can't be scaled: list replicas: refused with 401")
	r.Key.Role = state.RoleDecode
	f("pool chat (decode) can't be scaled: list replicas: refused with 401")
	r.Failing, r.Refusal = false, "readings"
	f("pool chat (decode) is held at 2 replicas: " + autoscale.Sentence("readings"))
}

// A pool's least size alone is enough: the greatest has its default.
func TestScaleMinAlone(t *testing.T) {
	f := func(scale string, least, most int) {
		t.Helper()
		c, err := load(t, "pools: [{name: c, model: m, scale: {"+scale+"}}]")
		if err != nil {
			t.Fatalf("%s: %v", scale, err)
		}
		if s := c.Pools[0].Scale; s.Min != least || s.Max != most {
			t.Errorf("%s: %d to %d, want %d to %d", scale, s.Min, s.Max, least, most)
		}
	}
	f("min: 2", 2, 8)
	f("max: 2", 0, 2)
	f("cooldown: 1s", 1, 8)
	if _, err := load(t, "pools: [{name: c, model: m, scale: {min: 9}}]"); err == nil {
		t.Error("a minimum above the maximum was taken")
	}
}
