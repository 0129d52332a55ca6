package balance

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state"
)

// States of a replica as the metric shows them; one of them is 1.
var replicaStates = [...]string{"up", "slow_start", "busy", "half_open", "ejected", "draining", "loading", "unreachable"}

// metrics shows what the loop owns.
type metrics struct {
	skew  *prometheus.GaugeVec
	state *prometheus.GaugeVec

	replicas map[state.ReplicaID]struct{} // with series
	pools    map[string]struct{}          // with series
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		skew: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_skew_ratio",
			Help: "Longest over mean estimated queue of the pool's replicas; 1 is even, 0 unknown.",
		}, []string{"pool"}),
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_replica_state",
			Help: "1 for the state that the replica is in, as this router sees it.",
		}, []string{"replica", "state"}),
		replicas: map[state.ReplicaID]struct{}{},
		pools:    map[string]struct{}{},
	}
	if reg != nil {
		reg.MustRegister(m.skew, m.state)
	}
	return m
}

// show sets every gauge and deletes those of what is gone. Called by one step at a
// time.
func (m *metrics) show(v *state.View, w *state.Weights, now time.Time) {
	for _, p := range v.Pools {
		m.pools[p.Spec.Name] = struct{}{}
		m.skew.WithLabelValues(p.Spec.Name).Set(w.Pools[p.Spec.Name].Skew)
		for _, r := range p.Replicas {
			m.replicas[r.ID] = struct{}{}
			is := stateOf(r, w.Of(r.ID), now)
			for _, s := range replicaStates {
				on := 0.0
				if s == is {
					on = 1
				}
				m.state.WithLabelValues(string(r.ID), s).Set(on)
			}
		}
	}
	for name := range m.pools {
		if !hasPool(v, name) {
			m.skew.DeleteLabelValues(name)
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

// stateOf is the one state that says most about a replica.
func stateOf(r *state.ReplicaView, w state.Weight, now time.Time) string {
	switch {
	case r.Draining:
		return "draining"
	case w.Trial:
		return "half_open"
	case w.Ejected:
		return "ejected"
	case r.Reading.Loading:
		return "loading"
	case !r.DownSince.IsZero() && !r.Cell.LastFirstToken().After(r.DownSince):
		return "unreachable"
	case w.BusyUntil.After(now):
		return "busy"
	case w.Slow < 1:
		return "slow_start"
	}
	return "up"
}
