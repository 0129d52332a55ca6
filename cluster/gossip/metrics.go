package gossip

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state/wire"
)

// kinds of messages, those that came with wire version 2 last.
var kinds = [...]wire.Kind{
	wire.KindRows, wire.KindReadings, wire.KindOps, wire.KindResume, wire.KindSnapshotChunk, wire.KindSnapshotEnd,
	wire.KindBeacon, wire.KindBeaconReply, wire.KindLessons, wire.KindStreamRows, wire.KindStreamOps,
}

type metrics struct {
	bytes    *prometheus.CounterVec
	delay    prometheus.Histogram
	dropped  *prometheus.CounterVec
	refused  *prometheus.CounterVec
	ops      *prometheus.CounterVec
	lessons  *prometheus.CounterVec
	members  *prometheus.GaugeVec
	degraded *prometheus.GaugeVec

	out, in [256]prometheus.Counter // by kind
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_gossip_bytes_total", Help: "Payload bytes told to and heard from other routers, by kind of message.",
		}, []string{"direction", "kind"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "hearsay_gossip_delay_seconds",
			Help:    "Time until another router has applied a message: half of a beacon's round trip through both queues.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_gossip_dropped_total", Help: "Messages given up, by reason.",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_gossip_refused_total", Help: "Membership traffic and members refused, by reason.",
		}, []string{"reason"}),
		ops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_gossip_ops_total", Help: "Sketch ops heard from other routers, by whether they were news.",
		}, []string{"result"}),
		lessons: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_gossip_lessons_total", Help: "Lessons of requests heard from other routers, by whether they were news.",
		}, []string{"result"}),
		members: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_members", Help: "Routers known to membership, this one included, by state.",
		}, []string{"state"}),
		degraded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hearsay_gossip_degraded_peers", Help: "Routers with which something does not pass, by reason.",
		}, []string{"reason"}),
	}
	for _, k := range kinds {
		m.out[k] = m.bytes.WithLabelValues("out", k.String())
		m.in[k] = m.bytes.WithLabelValues("in", k.String())
	}
	for _, r := range []string{"queue", "inbox", "malformed", "unknown_op", "old_boot", "members", "lessons", "out_of_step"} {
		m.dropped.WithLabelValues(r)
	}
	for _, r := range []string{"secret", "cluster", "scheme", "version", "malformed"} {
		m.refused.WithLabelValues(r)
	}
	for _, r := range []string{"news", "repeated"} {
		m.ops.WithLabelValues(r)
		m.lessons.WithLabelValues(r)
	}
	for _, s := range []MemberState{Alive, Dead, Left} {
		m.members.WithLabelValues(string(s))
	}
	for _, r := range degradedReasons {
		m.degraded.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(m.bytes, m.delay, m.dropped, m.refused, m.ops, m.lessons, m.members, m.degraded)
	}
	return m
}

func (m *metrics) drop(reason string) { m.dropped.WithLabelValues(reason).Inc() }
