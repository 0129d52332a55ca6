package routing

import "math"

// maxStates is the most parameters a filter estimates.
const maxStates = 4

// filter is an extended Kalman filter of a few slowly wandering parameters and one
// scalar observation: least squares that forgets. It is robust in three ways: an
// innovation counts for at most huber standard deviations, so an outlier moves
// little and a real change still gets through; the covariance is capped by its
// prior, so that directions in which nothing is observed don't wind up; and every
// parameter stays within bounds.
type filter struct {
	n      int
	x      [maxStates]float64            // parameters
	p      [maxStates][maxStates]float64 // their covariance
	wander [maxStates]float64            // variance added per observation
	prior  [maxStates]float64            // initial and greatest variance
	lo, hi [maxStates]float64            // bounds of x
	noise  float64                       // relative error of an observation, learned
}

const (
	huber    = 2.5
	minNoise = 0.03
	maxNoise = 0.5
	// absNoise is the error of any observation in ms beside the relative one:
	// scheduling, an engine's step.
	absNoise = 1.0
)

// start sets the covariance to its prior.
func (f *filter) start() {
	f.noise = 0.15
	for i := range f.n {
		f.p[i][i] = f.prior[i]
	}
}

// observe takes an observation y, of which the parameters predict guess and whose
// derivatives by them are h.
func (f *filter) observe(y, guess float64, h [maxStates]float64) {
	for i := range f.n {
		f.p[i][i] += f.wander[i]
		if f.p[i][i] > f.prior[i] {
			f.shrink(i, math.Sqrt(f.prior[i]/f.p[i][i]))
		}
	}
	var ph [maxStates]float64 // P h
	s := f.variance(guess)
	known := s
	for i := range f.n {
		for j := range f.n {
			ph[i] += f.p[i][j] * h[j]
		}
		s += h[i] * ph[i]
	}
	e := y - guess
	limit := huber * math.Sqrt(s)
	e = max(-limit, min(limit, e))
	for i := range f.n {
		f.x[i] = max(f.lo[i], min(f.hi[i], f.x[i]+ph[i]/s*e))
	}
	for i := range f.n {
		for j := range f.n {
			f.p[i][j] -= ph[i] * ph[j] / s
		}
	}
	// The spread of what the parameters can't explain: mean absolute residual, to a
	// standard deviation.
	if guess > 0 {
		r := min(huber*math.Sqrt(known), math.Abs(e)) / max(guess, absNoise)
		f.noise = max(minNoise, min(maxNoise, f.noise+0.02*(1.25*r-f.noise)))
	}
}

// variance is that of an observation around guess.
func (f *filter) variance(guess float64) float64 {
	rel := f.noise * guess
	return rel*rel + absNoise*absNoise
}

// shrink scales row and column i of the covariance.
func (f *filter) shrink(i int, by float64) {
	for j := range f.n {
		f.p[i][j] *= by
		f.p[j][i] *= by
	}
}
