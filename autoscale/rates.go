package autoscale

import (
	"math"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// steadyWindow is what arrivals are counted over; where those of rateWindow differ from
	// them by more than chance, these count. rateLeast is what a rate has to rest on: at
	// ten requests a second it is known to 3 % over two minutes, to 6 % over half a minute.
	steadyWindow = 2 * time.Minute
	rateWindow   = 30 * time.Second
	rateLeast    = 10 * time.Second
	// byChance is by how many roots of their number the requests of rateWindow may differ
	// by chance: 6 standard deviations of Poisson's arrivals, 2.3 of ServeGen's busiest
	// clients', whose variance is 6.7 times their mean.
	byChance = 6.0
	// sloWindow is what attainment is counted over.
	sloWindow = 2 * time.Minute
	// sampleEvery is the least time between two samples of the counters.
	sampleEvery = 900 * time.Millisecond
	// goneFor is after how long away a router's counts are taken anew: what it counted
	// meanwhile did not come just now.
	goneFor = 10 * time.Second
	// forgetAfter is when a router's counts are forgotten.
	forgetAfter = 10 * time.Minute
)

// rates makes rates of what the routers count of a pool.
type rates struct {
	last    map[state.RouterID]counted
	total   state.Traffic // since the watching began
	samples []sample      // oldest first
}

// counted is a router's counts as they were seen last.
type counted struct {
	boot    state.BootID
	at      time.Time
	traffic state.Traffic
}

type sample struct {
	at    time.Time
	total state.Traffic
}

// note takes the counters as they are. It does so at most once in sampleEvery.
func (r *rates) note(v *state.View, p *state.PoolView, now time.Time) {
	var before time.Time
	if n := len(r.samples); n > 0 {
		if before = r.samples[n-1].at; now.Sub(before) < sampleEvery {
			return
		}
	}
	if r.last == nil {
		r.last = map[state.RouterID]counted{}
	}
	take := func(id state.RouterID, boot state.BootID, t state.Traffic) {
		was, ok := r.last[id]
		// Counters of a new boot begin at nothing, some time ago: only what they gain
		// from here on is known to come now.
		if ok && was.boot == boot && (was.at.Equal(before) || now.Sub(was.at) <= goneFor) {
			r.total = r.total.Add(t.Since(was.traffic))
		}
		r.last[id] = counted{boot, now, t}
	}
	take(v.Self, 0, p.OwnTraffic())
	for i := range v.Routers {
		x := &v.Routers[i]
		if t, ok := x.Traffic(p.Spec.Name); ok {
			take(x.ID, x.Boot, t)
		}
	}
	for id, c := range r.last {
		if now.Sub(c.at) > forgetAfter {
			delete(r.last, id)
		}
	}
	r.samples = append(r.samples, sample{now, r.total})
	old := 0
	for old < len(r.samples)-1 && now.Sub(r.samples[old+1].at) >= sloWindow {
		old++
	}
	r.samples = append(r.samples[:0], r.samples[old:]...)
}

// window is what arrivals are to be counted over: steadyWindow, if what came last agrees
// with it.
func (r *rates) window() time.Duration {
	short, d, ok := r.over(rateWindow)
	long, ld, _ := r.over(steadyWindow)
	if !ok || ld <= d {
		return rateWindow
	}
	of := d.Seconds() / ld.Seconds()
	requests := of * float64(long.Requests)
	may := byChance * math.Sqrt(requests)
	if math.Abs(float64(short.Requests)-requests) > may {
		return rateWindow
	}
	// So may tokens, by as large a share.
	if tokens := of * float64(long.Uncached); math.Abs(float64(short.Uncached)-tokens)*requests > may*tokens {
		return rateWindow
	}
	return steadyWindow
}

// over is what was counted in the last window, and over how long; ok is false while too
// little was seen.
func (r *rates) over(window time.Duration) (t state.Traffic, d time.Duration, ok bool) {
	n := len(r.samples)
	if n == 0 {
		return t, 0, false
	}
	end := r.samples[n-1]
	first := n - 1
	for first > 0 && end.at.Sub(r.samples[first].at) < window {
		first--
	}
	d = end.at.Sub(r.samples[first].at)
	return end.total.Since(r.samples[first].total), d, d >= rateLeast
}
