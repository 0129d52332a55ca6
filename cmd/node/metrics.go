package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stateMetrics are figures of what the node knows, read when scraped.
type stateMetrics struct {
	n *Node

	inFlight, tokens, capacity, rho *prometheus.Desc // by replica
	entries, bytes, budget          *prometheus.Desc
	dropped                         *prometheus.Desc
	age                             *prometheus.Desc
}

func newStateMetrics(reg prometheus.Registerer, n *Node) {
	replica := []string{"pool", "replica"}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	reg.MustRegister(&stateMetrics{
		n:        n,
		inFlight: desc("hearsay_replica_inflight", "Requests at a replica, all routers' rows summed.", replica...),
		tokens:   desc("hearsay_replica_sketch_tokens", "Prompt tokens a replica's cache is believed to hold.", replica...),
		capacity: desc("hearsay_replica_cache_capacity_tokens", "Tokens a replica's cache is taken to hold (C_eff), corrected by what engines report.", replica...),
		rho:      desc("hearsay_replica_reported_over_predicted_ratio", "Cached tokens reported by a replica's engine over those predicted, smoothed (rho).", replica...),
		entries:  desc("hearsay_sketch_entries", "Prefix marks kept, over all replicas."),
		bytes:    desc("hearsay_sketch_bytes", "Memory of the sketches and of their journal, estimated."),
		budget:   desc("hearsay_sketch_budget_bytes", "Bound of hearsay_sketch_bytes."),
		dropped:  desc("hearsay_sketch_dropped_total", "What bounds took from the sketches, by what and why; evicted_live means that they are too small.", "reason"),
		age:      desc("hearsay_view_age_seconds", "Age of the oldest signal in the view, by kind.", "signal"),
	})
}

// Describe names the metrics.
func (m *stateMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.inFlight, m.tokens, m.capacity, m.rho, m.entries, m.bytes, m.budget, m.dropped, m.age} {
		ch <- d
	}
}

// Collect reads the view and the sketches.
func (m *stateMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	v, now := m.n.store.View(), time.Now()
	oldestReading, oldestRows := now, now
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			s := m.n.index.Stats(r.ID)
			gauge(m.inFlight, float64(r.Load().InFlight), r.Pool, string(r.ID))
			gauge(m.tokens, min(float64(s.Tokens), s.CEff), r.Pool, string(r.ID))
			gauge(m.capacity, s.CEff, r.Pool, string(r.ID))
			gauge(m.rho, s.Rho, r.Pool, string(r.ID))
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
	gauge(m.age, now.Sub(oldestReading).Seconds(), "reading")
	gauge(m.age, now.Sub(oldestRows).Seconds(), "rows")

	t := m.n.index.Totals()
	gauge(m.entries, float64(t.Entries))
	gauge(m.bytes, float64(t.Bytes))
	gauge(m.budget, float64(t.Budget))
	for reason, n := range map[string]uint64{
		"no_room": t.EntriesDropped, "evicted_live": t.EvictedLive, "evicted_old": t.EvictedOld, "evicted_bytes": t.EvictedBytes,
		"evicted_entries": t.EvictedEntries, "replicas": t.ReplicasDropped, "placements": t.PlacementsDropped,
		"placements_expired": t.PlacementsExpired, "origins": t.OriginsDropped, "journal": t.JournalDropped,
	} {
		ch <- prometheus.MustNewConstMetric(m.dropped, prometheus.CounterValue, float64(n), reason)
	}
}
