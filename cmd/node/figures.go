package node

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

const (
	// figuresEvery is the time between two looks at the counters, and figuresFor how
	// far back sums and rates reach: minutes, since what a cache held is not seen in
	// seconds.
	figuresEvery = 15 * time.Second
	figuresFor   = 5 * time.Minute
)

// figureSource adds figures that are no metrics.
type figureSource interface {
	Figures(f *console.Figures)
}

// meter makes the figures of `hearsay status` from this node's own metrics: what
// their counters have gained since a few minutes ago. Safe for concurrent use.
type meter struct {
	metrics prometheus.Gatherer
	sources []figureSource

	mu    sync.Mutex
	looks []look // guarded by mu; oldest first, at most figuresFor old
}

// look is the counters at one time.
type look struct {
	at      time.Time
	sums    map[string]float64   // by metric, and label value where one matters
	buckets map[string][]float64 // cumulative, by metric
	bounds  map[string][]float64
	drops   map[string]float64 // by reason
}

// Run looks at the counters now and then until ctx ends.
func (m *meter) Run(ctx context.Context) error {
	t := time.NewTicker(figuresEvery)
	defer t.Stop()
	for {
		m.note(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// note remembers the counters as they are.
func (m *meter) note(now time.Time) {
	l := m.look(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks = append(m.looks, l)
	m.looks = slices.DeleteFunc(m.looks, func(o look) bool { return now.Sub(o.at) > figuresFor })
}

// look reads the metrics that the figures are made of. A family that can't be
// gathered is left out.
func (m *meter) look(now time.Time) look {
	l := look{at: now, sums: map[string]float64{}, buckets: map[string][]float64{}, bounds: map[string][]float64{}, drops: map[string]float64{}}
	families, _ := m.metrics.Gather()
	for _, f := range families {
		name := f.GetName()
		for _, x := range f.GetMetric() {
			switch name {
			case metricPredicted, metricReported:
				l.sums[name] += x.GetCounter().GetValue()
			case metricMeshBytes:
				l.sums[name+label(x, "direction")] += x.GetCounter().GetValue()
			case metricGossipDropped, metricMeshDropped:
				l.drops[label(x, "reason")] += x.GetCounter().GetValue()
			case metricViewAge:
				l.sums[name+label(x, "signal")] = x.GetGauge().GetValue()
			case metricSketchEntries, metricSketchBytes:
				l.sums[name] = x.GetGauge().GetValue()
			case metricDelay, metricTTFTError:
				for _, b := range x.GetHistogram().GetBucket() {
					l.buckets[name] = append(l.buckets[name], float64(b.GetCumulativeCount()))
					l.bounds[name] = append(l.bounds[name], b.GetUpperBound())
				}
				l.buckets[name] = append(l.buckets[name], float64(x.GetHistogram().GetSampleCount()))
			}
		}
	}
	return l
}

// The metrics that figures are made of.
const (
	metricPredicted     = "hearsay_predicted_cached_tokens_total"
	metricReported      = "hearsay_reported_cached_tokens_total"
	metricTTFTError     = "hearsay_ttft_prediction_error_seconds"
	metricMeshBytes     = "hearsay_mesh_bytes_total"
	metricMeshDropped   = "hearsay_mesh_dropped_total"
	metricGossipDropped = "hearsay_gossip_dropped_total"
	metricDelay         = "hearsay_gossip_delay_seconds"
	metricViewAge       = "hearsay_view_age_seconds"
	metricSketchEntries = "hearsay_sketch_entries"
	metricSketchBytes   = "hearsay_sketch_bytes"
)

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Figures compares the counters now with those of figuresFor ago, or of the start.
func (m *meter) Figures(now time.Time) console.Figures {
	l := m.look(now)
	m.mu.Lock()
	var was look
	if len(m.looks) > 0 {
		was = m.looks[0]
	}
	m.mu.Unlock()
	f := console.Figures{
		Ratio: -1, TTFTErrorP50MS: -1, TTFTErrorP99MS: -1, DelayP50MS: -1, DelayP99MS: -1,
		BytesInPerSec: -1, BytesOutPerSec: -1, Dropped: map[string]float64{},
		ReadingAgeMS: 1e3 * l.sums[metricViewAge+"reading"], RowsAgeMS: 1e3 * l.sums[metricViewAge+"rows"],
		SketchEntries: l.sums[metricSketchEntries], SketchBytes: l.sums[metricSketchBytes],
	}
	gained := func(key string) float64 { return l.sums[key] - was.sums[key] }
	f.Predicted, f.Reported = gained(metricPredicted), gained(metricReported)
	if f.Predicted > 0 {
		f.Ratio = f.Reported / f.Predicted
	}
	if !was.at.IsZero() && now.After(was.at) {
		f.WindowS = now.Sub(was.at).Seconds()
		f.BytesInPerSec, f.BytesOutPerSec = gained(metricMeshBytes+"in")/f.WindowS, gained(metricMeshBytes+"out")/f.WindowS
	}
	f.DelayP50MS, f.DelayP99MS = l.quantile(&was, metricDelay, .5), l.quantile(&was, metricDelay, .99)
	f.TTFTErrorP50MS, f.TTFTErrorP99MS = l.quantile(&was, metricTTFTError, .5), l.quantile(&was, metricTTFTError, .99)
	for _, reason := range slices.Sorted(maps.Keys(l.drops)) {
		if n := l.drops[reason] - was.drops[reason]; n > 0 {
			f.Dropped[reason] = n
		}
	}
	for _, s := range m.sources {
		s.Figures(&f)
	}
	return f
}

// quantile estimates one of what a histogram of seconds has counted since, in
// milliseconds: evenly spread within its bucket, the last bound for what is beyond.
// Negative when nothing was counted.
func (l *look) quantile(was *look, name string, q float64) float64 {
	counts, bounds := slices.Clone(l.buckets[name]), l.bounds[name]
	if before := was.buckets[name]; len(before) == len(counts) {
		for i := range counts {
			counts[i] -= before[i]
		}
	}
	if len(bounds) == 0 || counts[len(counts)-1] <= 0 {
		return -1
	}
	want := q * counts[len(counts)-1]
	low, below := 0.0, 0.0
	for i, b := range bounds {
		if counts[i] >= want {
			return 1e3 * (low + (b-low)*(want-below)/max(counts[i]-below, 1))
		}
		low, below = b, counts[i]
	}
	return 1e3 * low
}
