package autoscale

import (
	"math"
	"slices"
	"time"
)

const (
	// trendPoints is what a trend rests on, one every 15 s: five minutes. trendLeast is how
	// many of them there must be.
	trendPoints = 20
	trendLeast  = 8
	// lowSlope is which of the slopes of all pairs counts, from the flattest up. The median
	// (Theil and Sen's) is not moved by a burst, nor by a step but for a moment when half of
	// the points are behind it; the quantile below it is not moved then either.
	lowSlope = 0.4
	// damping is what is left of a slope after each step ahead: two thirds of the growth of
	// the next two minutes are foreseen, four tenths of that of the next ten.
	damping = 0.97
	// stands is how much a forecast must be above the present to count, as a share of it,
	// and missed how many mean misses for one step ahead; further ahead noise adds up as
	// the root of the steps. In 40,000 steps of noise it came to 1.3.
	stands = 0.05
	missed = 1.6
)

// trend forecasts one figure: a damped trend with a slope that bursts and steps do not
// move. Points are equally far apart.
type trend struct {
	points []float64 // oldest first, at most trendPoints
}

// note takes the next step's figure.
func (t *trend) note(x float64) {
	if len(t.points) == trendPoints {
		copy(t.points, t.points[1:])
		t.points = t.points[:trendPoints-1]
	}
	t.points = append(t.points, x)
}

// ahead is the figure that many steps from the last one, where it will stand out above
// it; else 0.
func (t *trend) ahead(steps float64) float64 {
	n := len(t.points)
	if n < trendLeast || steps <= 0 {
		return 0
	}
	slope, miss := t.slope()
	// The sum of damping^i for i from 1 to steps, and the limit between whole ones.
	rise := slope * damping * (1 - math.Pow(damping, steps)) / (1 - damping)
	last := t.points[n-1]
	if rise <= max(stands*last, missed*miss*math.Sqrt(steps)) {
		return 0
	}
	return last + rise
}

// slope is the growth by the step, and the usual miss of a single point.
func (t *trend) slope() (slope, miss float64) {
	n := len(t.points)
	pairs := make([]float64, 0, n*(n-1)/2)
	for i := range n {
		for j := i + 1; j < n; j++ {
			pairs = append(pairs, (t.points[j]-t.points[i])/float64(j-i))
		}
	}
	slices.Sort(pairs)
	slope = pairs[int(lowSlope*float64(len(pairs)-1))]
	off := make([]float64, 0, n-1)
	for i := 1; i < n; i++ {
		off = append(off, math.Abs(t.points[i]-t.points[i-1]-slope))
	}
	return slope, median(off) / math.Sqrt2
}

const (
	dayParts = 96 // of a quarter of an hour
	dayPart  = 24 * time.Hour / dayParts
	// dayGain is the weight of a new day, dayMost bounds how much more than now a
	// profile may foretell.
	dayGain = 0.3
	dayMost = 3.0
)

// profile is how one figure goes over the day, by the wall clock's UTC.
type profile struct {
	mean [dayParts]float64
	days [dayParts]int // that were seen whole
	part int
	sum  float64 // of the part that goes on
	n    float64
}

// note takes a figure.
func (p *profile) note(x float64, now time.Time) {
	part := partOf(now)
	if part != p.part && p.n > 0 {
		avg := p.sum / p.n
		if m := &p.mean[p.part]; p.days[p.part] == 0 {
			*m = avg
		} else {
			*m += dayGain * (avg - *m)
		}
		p.days[p.part]++
		p.sum, p.n = 0, 0
	}
	p.part = part
	p.sum += x
	p.n++
}

func partOf(t time.Time) int { return int(t.Unix() % 86400 / int64(dayPart/time.Second)) }

// at is the profile at a time, between the middles of its parts; ok is false where it
// has not been seen.
func (p *profile) at(t time.Time) (x float64, ok bool) {
	pos := float64(t.Unix()%86400)/dayPart.Seconds() - 0.5
	a := int(math.Floor(pos))
	share := pos - float64(a)
	a = (a + dayParts) % dayParts
	b := (a + 1) % dayParts
	if p.days[a] == 0 || p.days[b] == 0 {
		return 0, false
	}
	return p.mean[a]*(1-share) + p.mean[b]*share, true
}

// ahead is what the day foretells, d from now, of a figure that is x now; 0: nothing.
func (p *profile) ahead(x float64, d time.Duration, now time.Time) float64 {
	is, ok := p.at(now)
	will, ok2 := p.at(now.Add(d))
	switch {
	case !ok || !ok2:
		return 0
	case is <= 0:
		return will
	}
	if f := x * min(dayMost, will/is); f > (1+stands)*x {
		return f
	}
	return 0
}
