package gossip

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// maxDelay bounds what is taken for a delay: more is news that waited for a stream,
// not news on its way.
const maxDelay = time.Minute

// lateness is how long ago a stamp was by this router's clock, less the fastest
// delivery seen from its origin; ok is false when that is not known.
func (g *Gossip) lateness(s state.Stamp, now time.Time) (d time.Duration, ok bool) {
	at, ok := g.clock.Place(s, now, 0)
	d = g.clock.Since(now) - at
	return d, ok && d >= 0 && d < maxDelay
}

// appliedRows notes that a message of rows was applied.
func (g *Gossip) appliedRows(m *wire.Rows, news bool) {
	if !news {
		g.metrics.rows.add(0, 1)
		return
	}
	g.metrics.rows.add(1, 0)
	now := time.Now()
	d, ok := g.lateness(state.Stamp{Boot: m.Boot, At: m.Sent}, now)
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.heard[m.Router]
	h.rowsAt = now
	if ok {
		g.metrics.rowsDelay.Observe(d.Seconds())
		if h.delay == 0 {
			h.delay = d
		}
		h.delay += (d - h.delay) / 8
	}
	g.heard[m.Router] = h
}

// appliedOps notes that a message of ops was applied; oldest is the stamp of the
// first that was news.
func (g *Gossip) appliedOps(oldest state.Stamp) {
	if d, ok := g.lateness(oldest, time.Now()); ok {
		g.metrics.opsDelay.Observe(d.Seconds())
	}
}

// Status is how well sharing works as a whole, for people.
type Status struct {
	Streams int
	// OldestRows is the age of the rows of the alive router from which none came for
	// longest; zero when there is none.
	OldestRows time.Duration
	Behind     uint64  // most journal positions that any peer was not told of yet
	RowsNews   float64 // share of messages of rows heard that were news, 0..1; -1: none heard
	OpsNews    float64 // likewise of sketch ops
	Degraded   map[string]int
}

// Status sums up. It is consistent in itself only as far as Members is.
func (g *Gossip) Status() Status {
	s := Status{Degraded: map[string]int{}}
	now := time.Now()
	for _, m := range g.Members() {
		if m.Self || m.State != Alive {
			continue
		}
		if m.Stream {
			s.Streams++
		}
		if !m.RowsAt.IsZero() {
			s.OldestRows = max(s.OldestRows, now.Sub(m.RowsAt))
		}
		s.Behind = max(s.Behind, m.Behind)
		if m.Degraded != "" {
			s.Degraded[m.Degraded]++
		}
	}
	s.RowsNews, s.OpsNews = g.metrics.rows.ratio(), g.metrics.ops.ratio()
	return s
}

// maxPeerSeries bounds the values of the peer label.
const maxPeerSeries = 128

// collector gives what is known per peer when it is asked.
type collector struct {
	g                *Gossip
	rowsAge, lag, up *prometheus.Desc
}

func newCollector(g *Gossip) *collector {
	d := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, []string{"peer"}, nil) }
	return &collector{
		g:       g,
		rowsAge: d("hearsay_gossip_rows_age_seconds", "Time since rows of an alive router came, by router; at most 128 of them."),
		lag:     d("hearsay_gossip_journal_lag", "Sketch ops that a peer with a stream was not told of yet, by peer; at most 128 of them."),
		up:      d("hearsay_gossip_peer_delay_seconds", "Smoothed time from sending to application of a router's rows here, by router; at most 128 of them."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.rowsAge
	ch <- c.lag
	ch <- c.up
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	now, n := time.Now(), 0
	for _, m := range c.g.Members() {
		if m.Self || m.State != Alive {
			continue
		}
		if n++; n > maxPeerSeries {
			return
		}
		if !m.RowsAt.IsZero() {
			ch <- prometheus.MustNewConstMetric(c.rowsAge, prometheus.GaugeValue, now.Sub(m.RowsAt).Seconds(), string(m.ID))
			ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, m.Delay.Seconds(), string(m.ID))
		}
		if m.Stream {
			ch <- prometheus.MustNewConstMetric(c.lag, prometheus.GaugeValue, float64(m.Behind), string(m.ID))
		}
	}
}
