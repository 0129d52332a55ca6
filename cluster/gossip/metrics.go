package gossip

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state/wire"
)

// kinds of messages, those that came with wire version 2 last.
var kinds = [...]wire.Kind{
	wire.KindRows, wire.KindReadings, wire.KindOps, wire.KindResume, wire.KindSnapshotChunk, wire.KindSnapshotEnd,
	wire.KindBeacon, wire.KindBeaconReply, wire.KindLessons, wire.KindStreamRows, wire.KindStreamOps,
}

type metrics struct {
	bytes               *prometheus.CounterVec
	delay               prometheus.Histogram
	dropped             *prometheus.CounterVec
	refused             *prometheus.CounterVec
	ops                 newsCounter
	rows                newsCounter
	lessons             newsCounter
	unsent              *prometheus.CounterVec
	news                *prometheus.HistogramVec
	rowsDelay, opsDelay prometheus.Observer // of news
	members             *prometheus.GaugeVec
	degraded            *prometheus.GaugeVec

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
		ops:  newNewsCounter("hearsay_gossip_ops_total", "Sketch ops heard from other routers, by whether they were news."),
		rows: newNewsCounter("hearsay_gossip_rows_total", "Messages of load rows heard from other routers, by whether they were news."),
		unsent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_gossip_unsent_total", Help: "Messages that a peer's full queue, or its missing stream, did not take, by kind.",
		}, []string{"kind"}),
		news: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "hearsay_gossip_news_seconds",
			Help:    "Time from an origin's stamp to application here, less the fastest delivery seen from there: load rows since they were sent, sketch ops since they arose.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10},
		}, []string{"kind"}),
		lessons: newNewsCounter("hearsay_gossip_lessons_total", "Lessons of requests heard from other routers, by whether they were news."),
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
		m.unsent.WithLabelValues(k.String())
	}
	for _, r := range []string{"queue", "inbox", "malformed", "unknown_op", "old_boot", "members", "lessons", "out_of_step"} {
		m.dropped.WithLabelValues(r)
	}
	for _, r := range []string{"secret", "cluster", "scheme", "version", "malformed"} {
		m.refused.WithLabelValues(r)
	}
	m.rowsDelay, m.opsDelay = m.news.WithLabelValues("rows"), m.news.WithLabelValues("ops")
	for _, s := range []MemberState{Alive, Dead, Left} {
		m.members.WithLabelValues(string(s))
	}
	for _, r := range degradedReasons {
		m.degraded.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(m.bytes, m.delay, m.dropped, m.refused, m.ops, m.rows, m.lessons, m.unsent, m.news, m.members, m.degraded)
	}
	return m
}

// newsCounter counts what was heard by whether it was news.
type newsCounter struct {
	*prometheus.CounterVec
	news, repeated *atomic.Uint64 // the same, to be read
}

func newNewsCounter(name, help string) newsCounter {
	c := newsCounter{
		CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"}),
		news:       new(atomic.Uint64), repeated: new(atomic.Uint64),
	}
	c.add(0, 0)
	return c
}

func (c newsCounter) add(news, repeated int) {
	c.news.Add(uint64(news))
	c.repeated.Add(uint64(repeated))
	c.WithLabelValues("news").Add(float64(news))
	c.WithLabelValues("repeated").Add(float64(repeated))
}

// ratio is the share that was news; -1: nothing was heard.
func (c newsCounter) ratio() float64 {
	news, repeated := float64(c.news.Load()), float64(c.repeated.Load())
	if news+repeated == 0 {
		return -1
	}
	return news / (news + repeated)
}

func (m *metrics) drop(reason string) { m.dropped.WithLabelValues(reason).Inc() }
