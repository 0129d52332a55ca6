package observe

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

func TestReadingsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		e, s := newEngines(), store("r1", 1, "a", "b")
		e.dead["b"] = true
		l := New(Config{Self: "r1", Registerer: reg}, s, e, newCache(), func(state.Reading) {}, zerolog.Nop())
		l.Step(t.Context(), time.Now())
		l.wg.Wait()
		want := `
# HELP hearsay_engine_readings_total Readings of engine processes that this router took, by what came of them.
# TYPE hearsay_engine_readings_total counter
hearsay_engine_readings_total{result="disputed"} 0
hearsay_engine_readings_total{result="loading"} 0
hearsay_engine_readings_total{result="missed"} 0
hearsay_engine_readings_total{result="ok"} 1
hearsay_engine_readings_total{result="refused"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "hearsay_engine_readings_total"); err != nil {
			t.Error(err)
		}
	})
}
