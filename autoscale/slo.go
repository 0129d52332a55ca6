package autoscale

const (
	// sloLeast is how many requests an attainment has to rest on.
	sloLeast = 20
	// sloGain is by how much a plan's round corrects per unit that attainment is short of
	// its goal, and sloBack how much slower it takes that back: half of the objectives
	// missed adds 4 % a round, some ten rounds being a replica's start.
	sloGain = 0.1
	sloBack = 0.25
	// sloMost bounds the correction.
	sloMost = 0.5
	// sloUseful is the share of the needed load below which a target's misses are not for
	// want of replicas: long prompts to idle ones.
	sloUseful = 0.5
	// sloFade is what is left of a correction after a round in which nothing is known.
	sloFade = 0.98
)

// correct is the next round's correction of the need: the integral of what attainment is
// short of its goal. It does not grow where more would not help or is on its way already
// (anti-windup).
func correct(c float64, o *Observation, lim *Limits) float64 {
	if o.Judged < sloLeast {
		return c * sloFade
	}
	short := lim.Attainment - o.Attained
	if short <= 0 {
		return max(0, c+sloBack*sloGain*short)
	}
	n := needOf(o, 1)
	switch {
	case o.Open, o.Pending > 0, o.Decided && o.LastAge < o.StartUp+o.Cooldown: // its effect is to come
	case o.Target >= o.Max, o.Target == 0, o.Skew > lim.SkewLimit: // it would have none
	case n.replicas/(1+o.Correction) < sloUseful*float64(o.Target):
	default:
		c += sloGain * short
	}
	return min(c, sloMost)
}
