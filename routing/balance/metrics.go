package balance

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state"
)

// metrics shows what the loop owns.
type metrics struct {
	skew    *prometheus.GaugeVec
	sharing *prometheus.GaugeVec
	hot     *prometheus.GaugeVec
	state   *prometheus.GaugeVec

	replicas map[state.ReplicaID]struct{} // with series
	pools    map[string]struct{}          // with series
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		skew: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_skew_ratio",
			Help: "Longest over mean estimated queue of the pool's replicas, in seconds and smoothed over 5 s; 1 is even, or a mean below 5 ms; 0 unknown.",
		}, []string{"pool"}),
		sharing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_sharing_ratio",
			Help: "Share of prompt tokens that some replica already held when this router picked, smoothed with a half-life of 30 s; 0 before the first pick.",
		}, []string{"pool"}),
		hot: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_hot_prefix_share",
			Help: "Share of this router's requests of the last minute that begin with the pool's hottest prefix; 0 if none has a twentieth.",
		}, []string{"pool"}),
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_replica_state",
			Help: "1 for the state that the replica is in, as this router sees it, else 0: " + strings.Join(stateNames(), ", ") + ".",
		}, []string{"replica", "state"}),
		replicas: map[state.ReplicaID]struct{}{},
		pools:    map[string]struct{}{},
	}
	if reg != nil {
		reg.MustRegister(m.skew, m.sharing, m.hot, m.state)
	}
	return m
}

func stateNames() (names []string) {
	for _, c := range state.Conditions() {
		names = append(names, string(c))
	}
	return names
}

// show sets every gauge and deletes those of what is gone. Called by one step at a
// time.
func (m *metrics) show(v *state.View, w *state.Weights, now time.Time) {
	all := state.Conditions()
	for _, p := range v.Pools {
		m.pools[p.Spec.Name] = struct{}{}
		b := w.Pools[p.Spec.Name]
		m.skew.WithLabelValues(p.Spec.Name).Set(b.Skew)
		m.sharing.WithLabelValues(p.Spec.Name).Set(b.Sharing)
		m.hot.WithLabelValues(p.Spec.Name).Set(b.HotShare())
		for _, r := range p.Replicas {
			m.replicas[r.ID] = struct{}{}
			is := r.Condition(&p.Spec, w.Of(r.ID), now)
			for _, s := range all {
				on := 0.0
				if s == is {
					on = 1
				}
				m.state.WithLabelValues(string(r.ID), string(s)).Set(on)
			}
		}
	}
	for name := range m.pools {
		if !hasPool(v, name) {
			m.skew.DeleteLabelValues(name)
			m.sharing.DeleteLabelValues(name)
			m.hot.DeleteLabelValues(name)
			delete(m.pools, name)
		}
	}
	for id := range m.replicas {
		if v.Replica(id) == nil {
			m.state.DeletePartialMatch(prometheus.Labels{"replica": string(id)})
			delete(m.replicas, id)
		}
	}
}
