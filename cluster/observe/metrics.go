package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state"
)

// metrics counts what this router read.
type metrics struct {
	readings *prometheus.CounterVec
	seconds  prometheus.Histogram
	cleared  *prometheus.CounterVec
}

// What came of a reading.
const (
	resultOK       = "ok"
	resultLoading  = "loading"
	resultRefused  = "refused"
	resultMissed   = "missed"   // nothing in time, or nothing readable
	resultDisputed = "disputed" // failed here while another router's succeeded
)

// newMetrics registers them, unless reg is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		readings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_engine_readings_total", Help: "Readings of engine processes that this router took, by what came of them.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hearsay_engine_reading_seconds", Help: "Time a reading took, failed ones included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5},
		}),
		cleared: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_replica_cache_cleared_total", Help: "Times readings, own and others', said that a replica's cache was lost, by reason.",
		}, []string{"reason"}),
	}
	for _, r := range []string{resultOK, resultLoading, resultRefused, resultMissed, resultDisputed} {
		m.readings.WithLabelValues(r)
	}
	for _, r := range []string{reasonRestart, reasonCounters, reasonCleared, reasonBack} {
		m.cleared.WithLabelValues(label(r))
	}
	if reg != nil {
		reg.MustRegister(m.readings, m.seconds, m.cleared)
	}
	return m
}

// label is a reason as metrics have it.
func label(reason string) string {
	switch reason {
	case reasonRestart:
		return "restarted"
	case reasonCounters:
		return "counters_back"
	case reasonCleared:
		return "cache_counters_back"
	}
	return "back_again"
}

// result says what came of a reading.
func result(list []state.Reading, disputed bool) string {
	switch r := &list[0]; {
	case disputed:
		return resultDisputed
	case r.Loading:
		return resultLoading
	case r.OK:
		return resultOK
	case r.Refused:
		return resultRefused
	}
	return resultMissed
}
