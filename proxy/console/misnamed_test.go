package console

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestStatusNamesEnginesOfAnotherModel(t *testing.T) {
	f := newFake()
	url := start(t, f, "")
	now := time.Now()
	clock := state.NewClock(1, now)
	warns := func(models ...string) bool {
		t.Helper()
		now = now.Add(time.Second)
		f.store.ApplyReading(state.Reading{Replica: "127.0.0.1:8000", OK: true, Reader: "r1", At: clock.Stamp(now), Models: models})
		var st Status
		if _, body := do(t, "GET", url+"/admin/v1/status", ""); json.Unmarshal([]byte(body), &st) != nil {
			t.Fatal(body)
		}
		return slices.Contains(st.Warn, `engine 127.0.0.1:8000 does not serve "m", it serves llama-3.1-8b`)
	}
	if !warns("llama-3.1-8b") {
		t.Error("another model: no warning")
	}
	if warns() || warns("m") || warns("llama-3.1-8b", "m") {
		t.Error("warned without a reason")
	}
}
