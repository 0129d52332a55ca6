package node

import "github.com/prometheus/client_golang/prometheus"

// newConfigMetrics registers what is known of the configuration.
func newConfigMetrics(reg prometheus.Registerer, n *Node) {
	n.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hearsay_config_reloads_total", Help: "Reloads of the configuration, by what came of them.",
	}, []string{"result"})
	for _, r := range []string{"done", "refused"} {
		n.reloads.WithLabelValues(r)
	}
	reg.MustRegister(n.reloads,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hearsay_config_revision", Help: "Revision of the pools' configuration that this router runs; 0: not the one that the routers have agreed on.",
		}, func() float64 {
			if n.raft == nil {
				return 0
			}
			return float64(n.mark(n.digests()).Revision)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hearsay_config_differing_routers", Help: "Live routers that run other pools than this one.",
		}, func() float64 { return float64(len(n.agreed.others(n.digests()))) }),
	)
}
