package node

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

type someBytes float64

func (b someBytes) Figures(f *console.Figures) { f.SketchBytes = float64(b) }

// Figures are of the last minutes, not of all time.
func TestFiguresAreOfTheLastMinutes(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	predicted := prometheus.NewCounter(prometheus.CounterOpts{Name: metricPredicted, Help: "x"})
	reported := prometheus.NewCounter(prometheus.CounterOpts{Name: metricReported, Help: "x"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricMeshBytes, Help: "x"}, []string{"direction"})
	drops := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricGossipDropped, Help: "x"}, []string{"reason"})
	delay := prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricDelay, Help: "x", Buckets: []float64{.001, .01, .1}})
	age := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricViewAge, Help: "x"}, []string{"signal"})
	entries := prometheus.NewGauge(prometheus.GaugeOpts{Name: metricSketchEntries, Help: "x"})
	reg.MustRegister(predicted, reported, bytes, drops, delay, age, entries)
	m := &meter{metrics: reg, sources: []figureSource{someBytes(4096)}}
	now := time.Unix(1000, 0)

	if f := m.Figures(now); f.Ratio != -1 || f.DelayP50MS != -1 || f.BytesInPerSec != -1 || f.SketchBytes != 4096 {
		t.Errorf("nothing known yet: %+v", f)
	}
	predicted.Add(1e6)
	reported.Add(1)
	drops.WithLabelValues("queue").Add(5)
	drops.WithLabelValues("inbox").Add(0)
	for range 100 {
		delay.Observe(5)
	}
	for range 2 * figuresFor / figuresEvery { // what happened before is out of sight
		m.note(now)
		now = now.Add(figuresEvery)
	}
	if n := len(m.looks); n > int(figuresFor/figuresEvery)+1 {
		t.Errorf("%d looks are kept", n)
	}
	predicted.Add(1000)
	reported.Add(900)
	bytes.WithLabelValues("in").Add(3000)
	drops.WithLabelValues("queue").Add(2)
	for range 98 {
		delay.Observe(.005)
	}
	delay.Observe(.05)
	delay.Observe(.05)
	age.WithLabelValues("reading").Set(.25)
	entries.Set(7)

	f := m.Figures(now)
	if f.Predicted != 1000 || f.Reported != 900 || f.Ratio != .9 || f.WindowS != (figuresFor+figuresEvery).Seconds() {
		t.Errorf("tokens: %+v", f)
	}
	if f.BytesInPerSec != 3000/f.WindowS || f.BytesOutPerSec != 0 || f.Dropped["queue"] != 2 || len(f.Dropped) != 1 {
		t.Errorf("traffic: %+v", f)
	}
	if f.ReadingAgeMS != 250 || f.SketchEntries != 7 {
		t.Errorf("gauges: %+v", f)
	}
	if f.DelayP50MS < 1 || f.DelayP50MS > 10 || f.DelayP99MS < 10 || f.DelayP99MS > 100 || math.Abs(f.DelayP50MS-5.6) > .1 {
		t.Errorf("delay: %v, %v", f.DelayP50MS, f.DelayP99MS)
	}
	// Beyond the last bound there is no better word than that bound.
	for range 1000 {
		delay.Observe(9)
	}
	if f := m.Figures(now); f.DelayP99MS != 100 {
		t.Errorf("beyond the last bound: %v", f.DelayP99MS)
	}
}
