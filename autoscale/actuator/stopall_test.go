package actuator

import (
	"context"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// A cluster that goes away as a whole leaves nothing, also of engines that ignore
// being asked.
func TestStopAllLeavesNothing(t *testing.T) {
	for _, mode := range []string{"", "stubborn"} {
		m := onMachine(t)
		p := m.actuator(mode)
		d := state.Desired{Epoch: 1, Decision: 1, ID: "d", Target: chat, Want: 2, Grace: time.Minute}
		m.reach(p, d, "two ready", func(a state.Actual) bool {
			return len(a.Instances) == 2 && a.Instances[0].Ready && a.Instances[1].Ready
		})
		old := m.records()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := p.StopAll(ctx, 200*time.Millisecond); err != nil {
			t.Error(err)
		}
		cancel()
		for _, r := range old {
			if r.PID == 0 || r.alive() {
				t.Errorf("mode %q: process %d of %s lives", mode, r.PID, r.ID)
			}
		}
		if n := len(m.records()); n != 0 {
			t.Errorf("mode %q: %d records are left", mode, n)
		}
	}
}
