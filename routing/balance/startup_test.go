package balance_test

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
)

func TestStartUpIsOfWhatWasStarted(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	f := &state.Facts{Decisions: []state.Decision{
		{Pool: "chat", From: 1, To: 2, Outcome: state.OutcomeDone, At: at, DoneAt: at.Add(90 * time.Second)},
		{Pool: "chat", From: 2, To: 1, Outcome: state.OutcomeDone, At: at, DoneAt: at.Add(time.Second)},
		{Pool: "other", From: 1, To: 2, Outcome: state.OutcomeDone, At: at, DoneAt: at.Add(3 * time.Second)},
	}}
	for actuator, want := range map[string]time.Duration{"process": 90 * time.Second, state.DryRun: balance.DefaultStartUp, "": balance.DefaultStartUp} {
		if got := balance.StartUp(f, &state.PoolSpec{Name: "chat", ScaleActuator: actuator}); got != want {
			t.Errorf("actuator %q: %v, want %v", actuator, got, want)
		}
	}
	if got := balance.StartUp(&state.Facts{}, &state.PoolSpec{Name: "chat", ScaleActuator: "process"}); got != balance.DefaultStartUp {
		t.Errorf("nothing was started: %v", got)
	}
}
