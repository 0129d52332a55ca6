package autoscale

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state"
)

type metrics struct {
	target, actual, needed *prometheus.GaugeVec
	pending, startUp       *prometheus.GaugeVec
	demand, capacity       *prometheus.GaugeVec // by resource
	attained               *prometheus.GaugeVec
	decisions              *prometheus.CounterVec
	refusals               *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"pool", "role"}, more...))
	}
	m := &metrics{
		target:   gauge("hearsay_scale_target", "Replicas wanted; on the leader only."),
		actual:   gauge("hearsay_scale_actual", "Replicas that answer and take work; on the leader only."),
		needed:   gauge("hearsay_scale_needed", "Replicas that the demand, the forecast and the objectives need, at least the minimum, whatever the maximum; on the leader only."),
		pending:  gauge("hearsay_scale_pending", "Replicas wanted that do not serve yet; on the leader only."),
		startUp:  gauge("hearsay_scale_start_up_seconds", "Time from a decision until its replicas serve, as learned; on the leader only."),
		demand:   gauge("hearsay_scale_demand", "What is asked of all replicas together, by resource: requests at once, prefill and output tokens/s, kv tokens; on the leader only.", "resource"),
		capacity: gauge("hearsay_scale_capacity", "What one replica carries of a resource, as learned; 0 unknown; on the leader only.", "resource"),
		attained: gauge("hearsay_scale_slo_attained_ratio", "Share of the requests of the last two minutes that met the pool's objectives, on all routers; on the leader only."),
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
	errs := []error{reg.Register(m.decisions), reg.Register(m.refusals)}
	for _, g := range m.gauges() {
		errs = append(errs, reg.Register(g))
	}
	return m, errors.Join(errs...)
}

// gauges are what only a leader shows.
func (m *metrics) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.target, m.actual, m.needed, m.pending, m.startUp, m.demand, m.capacity, m.attained}
}

// show sets a target's gauges.
func (m *metrics) show(o *Observation, lim *Limits) {
	pool, role := o.Key.Pool, string(o.Key.Role)
	m.target.WithLabelValues(pool, role).Set(float64(o.Target))
	m.actual.WithLabelValues(pool, role).Set(float64(o.Serving))
	n := needed(lim.need(o))
	if o.Target == 0 && !o.idle() {
		n = max(1, n)
	}
	m.needed.WithLabelValues(pool, role).Set(float64(max(n, o.Min)))
	m.pending.WithLabelValues(pool, role).Set(float64(o.Pending))
	m.startUp.WithLabelValues(pool, role).Set(o.StartUp.Seconds())
	d := o.asked()
	for i, x := range d.figures() {
		if resource(i).servedBy(o.Key.Role) {
			m.demand.WithLabelValues(pool, role, resourceNames[i]).Set(x)
			m.capacity.WithLabelValues(pool, role, resourceNames[i]).Set(o.Capacity.figures()[i])
		}
	}
	if o.Judged >= sloLeast {
		m.attained.WithLabelValues(pool, role).Set(o.Attained)
	} else {
		m.attained.DeleteLabelValues(pool, role)
	}
}

// forget drops the gauges of a target that is none any more.
func (m *metrics) forget(k state.TargetKey) {
	for _, g := range m.gauges() {
		g.DeletePartialMatch(prometheus.Labels{"pool": k.Pool, "role": string(k.Role)})
	}
}

// end drops what only a leader may say.
func (m *metrics) end() {
	for _, g := range m.gauges() {
		g.Reset()
	}
}

// know makes the series of a pool before its first decision: without them a rate
// over the first one would be missing.
func (m *metrics) know(pool string) {
	for _, l := range [][2]string{
		{"up", reasonLoad},
		{"up", reasonMinimum},
		{"up", reasonWake},
		{"up", reasonUndo},
		{"down", reasonIdle},
		{"down", reasonEnough},
		{"down", reasonMaximum},
		{"down", reasonBudget},
		{"down", reasonTrade},
		{"down", reasonUndo},
	} {
		m.decisions.WithLabelValues(pool, l[0], l[1])
	}
}
