package autoscale

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	target    *prometheus.GaugeVec
	actual    *prometheus.GaugeVec
	decisions *prometheus.CounterVec
	refusals  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		target: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_scale_target", Help: "Replicas wanted; on the leader only.",
		}, []string{"pool", "role"}),
		actual: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_scale_actual", Help: "Replicas that answer and take work; on the leader only.",
		}, []string{"pool", "role"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_scale_decisions_total", Help: "Targets this router changed as the leader.",
		}, []string{"pool", "direction", "reason"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_scale_refusals_total", Help: "Plans to change a target that were not carried out.",
		}, []string{"reason"}),
	}
	for _, r := range refusals {
		m.refusals.WithLabelValues(r)
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.target), reg.Register(m.actual), reg.Register(m.decisions), reg.Register(m.refusals))
}

// know makes the series of a pool before its first decision: without them a rate
// over the first one would be missing.
func (m *metrics) know(pool string) {
	for _, l := range [][2]string{{"up", reasonLoad}, {"up", reasonMinimum}, {"down", reasonIdle}, {"down", reasonMaximum}} {
		m.decisions.WithLabelValues(pool, l[0], l[1])
	}
}
