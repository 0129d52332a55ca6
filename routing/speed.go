package routing

import "math"

// speed is how many times as long a replica takes as its pool, as a logarithm: a
// scalar filter around zero. The zero value is a replica like the others.
type speed struct {
	x, p float64 // estimate and variance; p = 0: nothing observed

	slower, faster run // observations that say so
}

const (
	// priorSpeedVar lets a replica be twice as slow as others within its first
	// samples.
	priorSpeedVar = 0.5
	// speedWander is the variance added per sample: half of a change is followed
	// within some twenty samples.
	speedWander = 4e-4
	minSpeedVar = 1e-3
	// speedReturn draws a replica back to its pool, since only differences from the
	// others can be told from a change of all.
	speedReturn = 0.999
	// alike is the difference, as a logarithm, below which replicas are taken for
	// equal: a pick should not prefer one for ever by what is chance.
	alike = 0.15
	// drift and changed are CUSUM's (Page, Continuous inspection schemes): a run grows by
	// what an observation is off beyond drift, in standard deviations, of which huber count,
	// and is a change from changed on: three that are far off, or some more that are less so.
	// Normal noise comes to that once in some 70,000. Without it a replica that takes four
	// times as long is known for that after some thirty of its own requests.
	drift, changed = 1.25, 3.75
	// maxSpeed bounds the factor: a hundred times.
	maxSpeed = 4.6
)

func (s *speed) set(x float64) { s.x = max(-maxSpeed, min(maxSpeed, x)) }

// observe takes a time of which the pool's parameters would predict guess, in ms, with a
// relative error of noise.
func (s *speed) observe(y, guess, noise float64) {
	if s.p == 0 {
		s.p = priorSpeedVar
	}
	s.p = min(priorSpeedVar, s.p+speedWander)
	rel := noise + absNoise/max(guess, absNoise)
	v := s.p + rel*rel
	e := math.Log(max(y, 1e-3)/max(guess, 1e-3)) - s.x
	limit := huber * math.Sqrt(v)
	z := e / math.Sqrt(v)
	for _, r := range []*run{s.slower.add(z, s.x+e), s.faster.add(-z, s.x+e)} {
		if r.sum >= changed {
			s.set(r.median())
			s.p, s.slower, s.faster = rel*rel/3, run{}, run{}
			return
		}
	}
	k := s.p / v
	s.set((s.x + k*max(-limit, min(limit, e))) * speedReturn)
	s.p *= 1 - k
}

// run is observations that are off on one side.
type run struct {
	sum  float64
	says [3]float64 // what the last of those beyond drift say speed.x is; a run has at least three
	n    int
}

// add takes an observation that is off by so many standard deviations to this side.
func (r *run) add(off, says float64) *run {
	if r.sum += min(huber, off) - drift; r.sum <= 0 {
		*r = run{}
	} else if off > drift {
		r.says[r.n%len(r.says)] = says
		r.n++
	}
	return r
}

// median is what the last of them say: neither a mild one nor an outlier decides.
func (r *run) median() float64 {
	a, b, c := r.says[0], r.says[1], r.says[2]
	return max(min(a, b), min(max(a, b), c))
}

// factor is what the pool's times are multiplied with: 1 unless the difference
// stands out from chance.
func (s *speed) factor() float64 {
	if s.x == 0 {
		return 1
	}
	d := s.x * s.x
	return math.Exp(s.x * d / (d + 4*s.p + alike*alike))
}
