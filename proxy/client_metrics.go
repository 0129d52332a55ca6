package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/proxy/gateway"
)

// limitParallel is the kind of the limit of a key's requests under way.
const limitParallel = "parallel"

// inflightByKey tells how many requests of each key are under way.
type inflightByKey struct{ gate *gateway.Gate }

var keyInflight = prometheus.NewDesc("hearsay_key_inflight", "Requests of a key under way at this router, by the key's name.", []string{"key"}, nil)

const (
	// maxKeySeries bounds the keys with a series of their own, the first by name; what
	// runs of further ones is summed up as otherKeys.
	maxKeySeries = 100
	otherKeys    = "other"
)

// Describe is prometheus.Collector's.
func (inflightByKey) Describe(to chan<- *prometheus.Desc) { to <- keyInflight }

// Collect is prometheus.Collector's.
func (c inflightByKey) Collect(to chan<- prometheus.Metric) {
	rest, seen, last := int64(0), 0, ""
	clients := c.gate.Clients()
	for _, k := range clients {
		if k.Name == last { // two keys of one name have one count
			continue
		}
		last = k.Name
		if seen++; seen > maxKeySeries {
			rest += k.Running()
			continue
		}
		to <- prometheus.MustNewConstMetric(keyInflight, prometheus.GaugeValue, float64(k.Running()), k.Name)
	}
	if seen > maxKeySeries {
		to <- prometheus.MustNewConstMetric(keyInflight, prometheus.GaugeValue, float64(rest), otherKeys)
	}
}
