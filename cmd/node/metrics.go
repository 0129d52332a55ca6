package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stateMetrics are gauges over what the node knows, read when scraped.
type stateMetrics struct {
	n        *Node
	inFlight *prometheus.Desc
	tokens   *prometheus.Desc
	entries  *prometheus.Desc
	age      *prometheus.Desc
}

func newStateMetrics(reg prometheus.Registerer, n *Node) {
	reg.MustRegister(&stateMetrics{
		n:        n,
		inFlight: prometheus.NewDesc("hearsay_replica_inflight", "Requests at a replica, all routers' rows summed.", []string{"pool", "replica"}, nil),
		tokens:   prometheus.NewDesc("hearsay_replica_sketch_tokens", "Prompt tokens a replica's cache is believed to hold.", []string{"pool", "replica"}, nil),
		entries:  prometheus.NewDesc("hearsay_sketch_entries", "Prefix marks kept, over all replicas.", nil, nil),
		age:      prometheus.NewDesc("hearsay_view_age_seconds", "Age of the oldest signal in the view, by kind.", []string{"signal"}, nil),
	})
}

// Describe names the metrics.
func (m *stateMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.inFlight
	ch <- m.tokens
	ch <- m.entries
	ch <- m.age
}

// Collect reads the view.
func (m *stateMetrics) Collect(ch chan<- prometheus.Metric) {
	v, now := m.n.store.View(), time.Now()
	oldestReading, oldestRows := now, now
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			ch <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(r.Load().InFlight), r.Pool, string(r.ID))
			s := m.n.index.Stats(r.ID)
			ch <- prometheus.MustNewConstMetric(m.tokens, prometheus.GaugeValue, min(float64(s.Tokens), s.CEff), r.Pool, string(r.ID))
			at := r.ReadingAt
			if at.IsZero() {
				at = r.AddedAt
			}
			if at.Before(oldestReading) {
				oldestReading = at
			}
		}
	}
	for i := range v.Routers {
		if v.Routers[i].RowsAt.Before(oldestRows) {
			oldestRows = v.Routers[i].RowsAt
		}
	}
	ch <- prometheus.MustNewConstMetric(m.entries, prometheus.GaugeValue, float64(m.n.index.Totals().Entries))
	ch <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue, now.Sub(oldestReading).Seconds(), "reading")
	ch <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue, now.Sub(oldestRows).Seconds(), "rows")
}
