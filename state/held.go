package state

import (
	"math"
	"sync"
	"time"
)

// Upper is how many bands have another one behind them: those of rank 0 to Upper-1.
const Upper = Bands - 1

// heldOver is the time over which what a band asks for at a time is averaged: after three
// of it next to nothing is left.
const heldOver = 30 * time.Second

// Holds is how many requests bands have at a time, by rank.
type Holds struct {
	Running [Upper]int64   // sent to a replica now
	Asked   [Upper]float64 // running and waiting, lately, on average
}

// holding is what a Counter knows of it.
type holding struct {
	mu      sync.Mutex
	running [Upper]int64   // guarded by mu
	asked   [Upper]int64   // guarded by mu; running and waiting now
	spent   [Upper]float64 // guarded by mu; request-seconds so far
	mean    [Upper]float64 // guarded by mu; of asked
	at      time.Time      // guarded by mu; until when spent and mean go
}

// pass carries the averages on to now. The caller holds mu.
func (h *holding) pass(now time.Time) {
	d := now.Sub(h.at).Seconds()
	if h.at.IsZero() || d <= 0 {
		if h.at.IsZero() {
			h.at = now
		}
		return
	}
	keep := kept(d)
	for i, n := range h.asked {
		h.spent[i] += d * float64(n)
		h.mean[i] = float64(n) + (h.mean[i]-float64(n))*keep
	}
	h.at = now
}

// kept is how much of an average is left after so many seconds.
func kept(seconds float64) float64 { return math.Exp(-seconds / heldOver.Seconds()) }

// Asks counts a request of a band in from its arrival on (1) and out at its end (-1).
// Those of the last band are not counted: nobody is behind them.
func (c *Counter) Asks(band Band, n int64, now time.Time) { c.hold(band, n, 0, now) }

// Runs counts a request of a band in from when it is sent to a replica on (1) and out at
// its end (-1).
func (c *Counter) Runs(band Band, n int64, now time.Time) { c.hold(band, 0, n, now) }

func (c *Counter) hold(band Band, asked, running int64, now time.Time) {
	rank := band.Rank()
	if c == nil || rank >= Upper {
		return
	}
	h := &c.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pass(now)
	h.asked[rank] += asked
	h.running[rank] += running
}

// Holds is what bands have at this router.
func (c *Counter) Holds(now time.Time) (out Holds) {
	if c == nil {
		return out
	}
	h := &c.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pass(now)
	out.Running, out.Asked = h.running, h.mean
	return out
}

// held fills in what travels of it: milliseconds, as of the latest change.
func (t *Traffic) held(c *Counter) {
	h := &c.held
	h.mu.Lock()
	defer h.mu.Unlock()
	t.HighTime, t.NormalTime = int64(1000*h.spent[0]), int64(1000*h.spent[1])
}

// averaged is t, told at now, with what its router's bands asked for lately, by what it
// told before.
func (t Traffic) averaged(was Traffic, now time.Time) Traffic {
	t.asked, t.at = was.asked, now
	d := now.Sub(was.at).Seconds()
	if was.at.IsZero() || d <= 0 {
		return t
	}
	keep := kept(d)
	for i, ms := range [Upper]int64{t.HighTime - was.HighTime, t.NormalTime - was.NormalTime} {
		n := max(0, float64(ms)) / 1000 / d
		t.asked[i] = n + (t.asked[i]-n)*keep
	}
	return t
}

// Asked is how many requests of a pool each band of rank 0 to Upper-1 has at a time,
// running and waiting, lately and on average, at all routers.
func (v *View) Asked(p *PoolView, own *Holds) (sum [Upper]float64) {
	sum = own.Asked
	for i := range v.Routers {
		if t, ok := v.Routers[i].Traffic(p.Spec.Name); ok {
			for k, n := range t.asked {
				sum[k] += n
			}
		}
	}
	return sum
}
