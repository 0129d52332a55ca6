package node

import (
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/state"
)

func TestScaleWarnings(t *testing.T) {
	now := time.Unix(1000, 0)
	f := func(r autoscale.Report, want ...string) {
		t.Helper()
		r.Key, r.Actuator = state.TargetKey{Pool: "chat", Role: state.RoleBoth}, "webhook"
		got := scaleWarning(&r, now)
		if len(got) != len(want) {
			t.Errorf("%q, want %q", got, want)
			return
		}
		for i := range want {
			if !strings.HasPrefix(got[i], "pool chat") || !strings.Contains(got[i], want[i]) {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
	f(autoscale.Report{Problem: "not ready yet"})
	f(autoscale.Report{Trouble: "refused", TroubleSince: now.Add(-troubleAfter + 1)})
	f(autoscale.Report{Trouble: "list replicas: refused", TroubleSince: now.Add(-troubleAfter)},
		"pool chat: actuator webhook does not answer or can't act: list replicas: refused")
	f(autoscale.Report{Trouble: "seen 9", TroubleSince: now, Fenced: true, Moved: "its url changed"},
		"is not scaled, its actuator webhook has seen later numbers than this leader's: seen 9; tried again every 30s", "pool chat: its url changed")
}

// Why a role's target lacks replicas is told once: by the console.
func TestScaleWarningsOfARoleThatLacksReplicas(t *testing.T) {
	now := time.Unix(1000, 0)
	r := autoscale.Report{Actuator: "kubernetes", Trouble: "forbidden", TroubleSince: now.Add(-time.Minute)}
	for _, role := range []state.Role{state.RoleBoth, state.RolePrefill, state.RoleDecode} {
		r.Key = state.TargetKey{Pool: "chat", Role: role}
		r.Seen.Present, r.Seen.Target = 1, 2
		if got := scaleWarning(&r, now); len(got) != 0 {
			t.Errorf("%s: %q", role, got)
		}
		r.Seen.Present = 2
		if got := scaleWarning(&r, now); len(got) != 1 || !strings.Contains(got[0], "actuator kubernetes does not answer or can't act: forbidden") {
			t.Errorf("%s: %q", role, got)
		}
	}
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
