package discovery

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of all pools of a router.
type Metrics struct {
	changes                          *prometheus.CounterVec
	replicas, refused, age, failures *prometheus.Desc

	mu    sync.Mutex
	pools map[string]*Pool // guarded by mu; by name
}

// NewMetrics registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	labels := []string{"pool", "source"}
	m := &Metrics{
		pools: map[string]*Pool{},
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_discovery_changes_total", Help: "Replicas that discovery added, drained, took back and removed.",
		}, []string{"pool", "change"}),
		replicas: prometheus.NewDesc("hearsay_discovery_replicas", "Replicas that a source lists, those it is still believed for included.", labels, nil),
		refused:  prometheus.NewDesc("hearsay_discovery_refused", "Replicas that a source lists and that are not let in.", labels, nil),
		age:      prometheus.NewDesc("hearsay_discovery_age_seconds", "Time since a source's last good answer, or since the start; grows while it fails.", labels, nil),
		failures: prometheus.NewDesc("hearsay_discovery_failures_total", "Looks that a source failed at.", labels, nil),
	}
	reg.MustRegister(m.changes, m)
	return m
}

// Changes of a pool's list.
var changes = []string{"added", "left", "returned", "removed"}

func (m *Metrics) add(p *Pool) {
	if m == nil {
		return
	}
	for _, c := range changes {
		m.changes.WithLabelValues(p.cfg.Name, c)
	}
	m.mu.Lock()
	m.pools[p.cfg.Name] = p // in the place of one that it succeeds
	m.mu.Unlock()
}

// remove takes a pool's series out, unless another one stands for them.
func (m *Metrics) remove(p *Pool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools[p.cfg.Name] == p {
		delete(m.pools, p.cfg.Name)
		m.changes.DeletePartialMatch(prometheus.Labels{"pool": p.cfg.Name})
	}
}

func (m *Metrics) count(pool, change string) {
	if m != nil {
		m.changes.WithLabelValues(pool, change).Inc()
	}
}

// Describe names the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.replicas, m.refused, m.age, m.failures} {
		ch <- d
	}
}

// Collect asks the pools.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	pools := slices.Collect(maps.Values(m.pools))
	m.mu.Unlock()
	now := time.Now()
	for _, p := range pools {
		for _, s := range p.Status() {
			put := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
				ch <- prometheus.MustNewConstMetric(d, t, v, p.cfg.Name, s.Kind)
			}
			at := s.At
			if at.IsZero() {
				at = p.started
			}
			put(m.replicas, prometheus.GaugeValue, float64(s.Replicas))
			put(m.refused, prometheus.GaugeValue, float64(len(s.Refused)))
			put(m.age, prometheus.GaugeValue, now.Sub(at).Seconds())
			put(m.failures, prometheus.CounterValue, float64(s.Failures))
		}
	}
}
