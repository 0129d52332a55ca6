package autoscale

import (
	"math"
	"time"
)

// growth learns how far what comes exceeds what was foreseen of it a start and a cooldown
// before, as a share: a maximum that fades. New replicas serve no sooner than that, so it
// is the room that those which serve must have. Until something was seen it is as much as
// the room of a small pool.
type growth struct {
	share    float64
	foreseen []Demand  // at the last steps, oldest first
	at       time.Time // of the last step
}

// growthSteps bounds how far back it looks, in steps: eleven minutes at one every 15 s,
// the longest start that is believed and a cooldown.
const growthSteps = 44

// note takes a step: what is foreseen now for a horizon ahead, and what came.
func (g *growth) note(foreseen, came Demand, horizon time.Duration, cfg *Config, now time.Time) {
	most := 1/cfg.Utilisation - 1
	switch gap := now.Sub(g.at); {
	case g.at.IsZero():
		g.share = most
	case gap > 4*cfg.Interval:
		g.foreseen = g.foreseen[:0] // it was not looked at for a while
	default:
		g.share *= halved(gap, cfg.Fade)
	}
	g.at = now
	back := len(g.foreseen) - max(1, int(horizon/cfg.Interval))
	if back >= 0 {
		g.share = max(g.share, min(most, came.exceeds(&g.foreseen[back])))
	}
	if len(g.foreseen) == growthSteps {
		copy(g.foreseen, g.foreseen[1:])
		g.foreseen = g.foreseen[:growthSteps-1]
	}
	g.foreseen = append(g.foreseen, foreseen)
}

// exceeds is by what share rates are above those that were foreseen, the greatest of
// them; 0 where nothing was.
func (d Demand) exceeds(foreseen *Demand) (share float64) {
	is, was := d.figures(), foreseen.figures()
	for _, r := range []resource{byPrefill, byOutput} {
		if was[r] > 0 {
			share = max(share, is[r]/was[r]-1)
		}
	}
	return share
}

// halved is what is left after a while of what falls by half in another.
func halved(after, half time.Duration) float64 { return math.Exp2(-float64(after) / float64(half)) }
