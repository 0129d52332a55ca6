package balance

import (
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	trendEvery  = 2 * time.Second
	trendShort  = 30 * time.Second
	trendLong   = 3 * time.Minute
	trendPoints = int(trendLong / trendEvery)
	// trendLeast is the span that a slope has to rest on.
	trendLeast = 10 * time.Second
)

// trend remembers a pool's mean queue over the last minutes.
type trend struct {
	points    [trendPoints]queued // a ring
	next, n   int
	longSince time.Time // zero: the queue is not long
}

type queued struct {
	at      time.Time
	seconds float64
}

// trendOf is a pool's trend. The caller holds step.
func (l *Loop) trendOf(pool string) *trend {
	t := l.trends[pool]
	if t == nil {
		t = &trend{}
		l.trends[pool] = t
	}
	return t
}

// step takes the present queue of b and tells its trend.
func (t *trend) step(b *state.PoolBalance, slo time.Duration, now time.Time) {
	last := &t.points[(t.next+trendPoints-1)%trendPoints]
	if t.n == 0 || now.Sub(last.at) >= trendEvery {
		t.points[t.next] = queued{now, b.Queue}
		t.next, t.n = (t.next+1)%trendPoints, min(t.n+1, trendPoints)
	}
	b.TrendShort, b.TrendLong = t.slope(trendShort, now), t.slope(trendLong, now)
	switch {
	case b.Queue < LongQueue(slo):
		t.longSince = time.Time{}
	case t.longSince.IsZero():
		t.longSince = now
	default:
		b.LongFor = now.Sub(t.longSince)
	}
}

// slope is the least-squares slope of the points of the last d.
func (t *trend) slope(d time.Duration, now time.Time) float64 {
	var n, sx, sy, sxx, sxy, span float64
	for i := range t.n {
		p := &t.points[i]
		age := now.Sub(p.at)
		if age > d || age < 0 {
			continue
		}
		x := -age.Seconds()
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+p.seconds, sxx+x*x, sxy+x*p.seconds
		span = max(span, -x)
	}
	if div := n*sxx - sx*sx; span >= trendLeast.Seconds() && div > 0 {
		return (n*sxy - sx*sy) / div
	}
	return 0
}

// defaultTTFT is the objective of a pool that has none.
const defaultTTFT = 2 * time.Second

// LongQueue is the queue, in seconds, from which it counts as long: half of the pool's
// objective for the time to first token.
func LongQueue(slo time.Duration) float64 {
	if slo <= 0 {
		slo = defaultTTFT
	}
	return slo.Seconds() / 2
}

// queues are the mean and the longest queue of the replicas in traffic that prefill.
func queues(members []*member) (mean, longest float64) {
	n := 0.0
	for _, m := range members {
		if m.view.Draining || m.breaker.phase != closed || m.view.Role == state.RoleDecode {
			continue
		}
		mean += m.breaker.queue
		longest = max(longest, m.breaker.queue)
		n++
	}
	return mean / max(1, n), longest
}

// planPace compares the rates of replicas that stand in for each other.
func planPace(members []*member) {
	rates := make([]float64, len(members))
	for i, m := range members {
		rates[i] = m.rate
	}
	mid := median(rates)
	for _, m := range members {
		if m.pace = 0; mid > 0 && len(members) > 1 {
			m.pace = m.rate / mid
		}
	}
}

// median sorts and takes the middle, the mean of both where there are two; 0 of none.
func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	if n == 0 {
		return 0
	}
	return (list[(n-1)/2] + list[n/2]) / 2
}
