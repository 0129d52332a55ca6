package autoscale

import (
	"math"
	"time"
)

// aim is the utilisation to aim at for a load that would keep so many replicas wholly
// busy. The room beside it is for what varies: Headroom times the square root of how many
// requests replicas have at a time (square-root staffing: Halfin and Whitt, 1981), so it
// is a smaller share of a large pool. Where growth, the share by which what came has
// lately exceeded what was foreseen of it, is more than that, it counts. Never more than
// Utilisation leaves, nor less than Busiest does.
func (lim *Limits) aim(load float64, c *Capacity, growth float64) float64 {
	room, most := lim.widest(), lim.widest()
	if n := load * c.Requests; n > 0 {
		room = max(growth, lim.Headroom/math.Sqrt(n))
	}
	least := 1/max(lim.Utilisation, lim.Busiest) - 1
	return 1 / (1 + min(most, max(least, room)))
}

// widest is the room of a small pool, as a share of its load.
func (lim *Limits) widest() float64 { return 1/lim.Utilisation - 1 }

// margin is the share below the wanted utilisation that a step down needs: DownMargin in
// a small pool, and as much less in one with less room.
func (lim *Limits) margin(n need) float64 {
	if w := lim.widest(); w > 0 {
		return lim.DownMargin * (1/n.aim - 1) / w
	}
	return lim.DownMargin
}

// fitting is the least size that the load, forecast and correction included, fits by the
// margin; 1 at least.
func fitting(o *Observation, lim *Limits) int {
	n := lim.need(o)
	return int(math.Floor(n.replicas/(1-lim.margin(n)))) + 1
}

// stepDown is how many replicas go at once, when one may: as many as the whole window
// could have done without, at most DownShare of them.
func stepDown(o *Observation, lim *Limits) int {
	spare := o.Target - max(o.Fits, fitting(o, lim), o.Min)
	if o.Fits == 0 {
		spare = 1
	}
	return max(1, min(spare, int(lim.DownShare*float64(o.Target))))
}

// hasten is how many to ask for when so many are needed: Rush more for each that is short,
// while more comes in a second than those that serve could do, wholly busy. What waits then
// grows until new ones serve. Of more, whose starts take differently long, as many as are
// needed serve sooner; the others are called off. That takes a cooldown, so where a start
// is shorter than that all would have come by then.
func hasten(o *Observation, n int, lim *Limits) int {
	short := n - o.Serving
	if short <= 0 || o.Serving == 0 || o.StartUp < o.Cooldown {
		return n
	}
	comes := Demand{PrefillRate: o.PrefillRate, OutputRate: o.OutputRate}
	if loadOf(o, &comes).replicas > float64(o.Serving) {
		n += int(math.Ceil(lim.Rush * float64(short)))
	}
	return n
}

// outgrown reports whether what comes has grown since the last step up so far that more
// replicas are needed beside those that are coming, and how many that are together. Only
// rates count, and only their growth: what waits is the work of those that are coming, and
// what engines in distress teach of their capacity is not believed.
func outgrown(o *Observation, lim *Limits) (to int, ok bool) {
	if !o.Last.Up || o.Last.Needed <= 0 || o.Pending == 0 {
		return 0, false
	}
	later := o.asked().most(o.Ahead)
	growth := 0.0
	for _, r := range []resource{byPrefill, byOutput} {
		if was := o.Last.Came.figures()[r]; was > 0 && r.servedBy(o.Key.Role) {
			growth = max(growth, later.figures()[r]/was)
		}
	}
	to = int(math.Ceil(o.Last.Needed * growth))
	return to, growth >= 1+lim.Regrow && to > o.Target
}

// enough reports whether those that serve have been enough for a cooldown, while the last
// step up is still being carried out: what has not come by now need not come. It says how
// many are to stay: never fewer than before that step.
func enough(o *Observation) (stay int, ok bool) {
	if !o.Open || !o.OpenUp || o.FitsLately == 0 || o.FitsLately > o.Serving {
		return 0, false
	}
	stay = max(o.Serving, o.OpenFrom, o.Min)
	return stay, stay < o.Target
}

// sizes remembers which sizes would have fitted, for as long as asked for.
type sizes struct {
	since time.Time // of the first one, those forgotten included
	list  []sized   // oldest first
}

type sized struct {
	at time.Time
	n  int
}

func (s *sizes) note(n int, keep time.Duration, now time.Time) {
	if len(s.list) == 0 {
		s.since = now
	}
	s.list = append(s.list, sized{now, n})
	old := 0
	for old < len(s.list)-1 && now.Sub(s.list[old].at) > keep {
		old++
	}
	s.list = append(s.list[:0], s.list[old:]...)
}

// most is the greatest size of a window until now; 0 if not all of that was seen.
func (s *sizes) most(window time.Duration, now time.Time) (n int) {
	if len(s.list) == 0 || now.Sub(s.since) < window {
		return 0
	}
	for i := len(s.list) - 1; i >= 0 && now.Sub(s.list[i].at) <= window; i-- {
		n = max(n, s.list[i].n)
	}
	return n
}
