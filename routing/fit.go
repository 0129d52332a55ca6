package routing

import (
	"math"
	"time"
)

// fit estimates one pool's Params. Time to first token:
//
//	ttft = a + c*(queue+u)/max(0.3, 1-kappa*B) + q*u*prompt     ms, c = 1000/mu
//
// with a and c as logarithms, since a first guess may be off by a factor of ten.
// Inter-token time: itl = itl0 + (B-1)*perStream. Not safe for concurrent use.
type fit struct {
	ttft, itl filter
	uncached  float64
	samples   int
}

// Indices of the parameters in fit.ttft and fit.itl.
const (
	lnFixed, lnToken, kappa, quadratic = 0, 1, 2, 3
	itlAlone, itlStream                = 0, 1
)

// quadraticUnit scales q to the size of the other parameters.
const quadraticUnit = 1e-6

// newFit starts from the given parameters, of which it is unsure by a factor of e.
func newFit(p Params) fit {
	var f fit
	f.uncached = p.Uncached
	t := &f.ttft
	t.n = 4
	t.x = [maxStates]float64{math.Log(p.Fixed), math.Log(1000 / p.Rate), p.Slowdown, p.Quadratic / quadraticUnit}
	t.prior = [maxStates]float64{1, 1, 0.003 * 0.003, 1}
	t.wander = [maxStates]float64{1e-4, 1e-4, 1e-9, 1e-5}
	t.lo = [maxStates]float64{math.Log(minParams.Fixed), math.Log(1000 / maxParams.Rate), minParams.Slowdown, minParams.Quadratic / quadraticUnit}
	t.hi = [maxStates]float64{math.Log(maxParams.Fixed), math.Log(1000 / minParams.Rate), maxParams.Slowdown, maxParams.Quadratic / quadraticUnit}
	t.start()
	i := &f.itl
	i.n = 2
	i.x = [maxStates]float64{p.ITL, p.ITLPerStream}
	i.prior = [maxStates]float64{p.ITL * p.ITL, p.ITLPerStream*p.ITLPerStream + 1}
	i.wander = [maxStates]float64{1e-3, 1e-5}
	i.lo = [maxStates]float64{minParams.ITL, minParams.ITLPerStream}
	i.hi = [maxStates]float64{maxParams.ITL, maxParams.ITLPerStream}
	i.start()
	return f
}

// trust is how sure a fit is whose parameters rest on so many samples.
func (f *fit) trust(samples int) {
	f.samples = samples
	// Each sample adds information about as much as the prior holds; past some tens,
	// what the parameters wander by keeps it from getting surer.
	share := 1 / (1 + float64(min(samples, 50)))
	for _, k := range []*filter{&f.ttft, &f.itl} {
		for i := range k.n {
			k.p[i][i] *= share
		}
	}
}

// observeTTFT learns from one time to first token.
func (f *fit) observeTTFT(s *Sample) {
	y := float64(s.TTFT) / float64(time.Millisecond)
	guess, h := f.predict(s)
	f.ttft.observe(y, guess, h)
	f.uncached += 0.05 * (float64(max(0, s.UncachedTokens)) - f.uncached)
	f.samples++
}

// guessTTFT is the time to first token in ms that the parameters predict.
func (f *fit) guessTTFT(s *Sample) float64 {
	guess, _ := f.predict(s)
	return guess
}

// predict is a time to first token in ms, and its derivatives by the parameters.
func (f *fit) predict(s *Sample) (ms float64, h [maxStates]float64) {
	u, tokens := float64(max(0, s.UncachedTokens)), max(0, s.QueueTokens)+float64(max(0, s.UncachedTokens))
	t := &f.ttft
	a, c, k, q := math.Exp(t.x[lnFixed]), math.Exp(t.x[lnToken]), t.x[kappa], t.x[quadratic]
	share := 1 - k*s.Decode
	if share > minPrefillShare {
		h[kappa] = c * tokens * s.Decode / (share * share)
	} else {
		share = minPrefillShare
	}
	pairs := u * float64(s.PromptTokens) * quadraticUnit
	h[lnFixed], h[lnToken], h[quadratic] = a, c*tokens/share, pairs
	return a + c*tokens/share + q*pairs, h
}

// observeITL learns from one mean inter-token time.
func (f *fit) observeITL(s *Sample) {
	b := max(0, s.ITLBatch-1)
	var h [maxStates]float64
	h[itlAlone], h[itlStream] = 1, b
	f.itl.observe(float64(s.ITL)/float64(time.Millisecond), f.itl.x[itlAlone]+f.itl.x[itlStream]*b, h)
}

// params is what is believed now.
func (f *fit) params() Params {
	t := &f.ttft
	return Params{
		Fixed: math.Exp(t.x[lnFixed]), Rate: 1000 / math.Exp(t.x[lnToken]),
		Slowdown: t.x[kappa], Quadratic: t.x[quadratic] * quadraticUnit,
		ITL: f.itl.x[itlAlone], ITLPerStream: f.itl.x[itlStream],
		Uncached: max(minParams.Uncached, min(maxParams.Uncached, f.uncached)),
		Samples:  f.samples,
	}
}

// clamp brings parameters from elsewhere within bounds; it reports false for ones
// that are no numbers.
func clamp(p Params) (Params, bool) {
	ok := true
	in := func(v *float64, lo, hi float64) {
		if math.IsNaN(*v) {
			ok = false
			return
		}
		*v = max(lo, min(hi, *v))
	}
	in(&p.Rate, minParams.Rate, maxParams.Rate)
	in(&p.Fixed, minParams.Fixed, maxParams.Fixed)
	in(&p.Slowdown, minParams.Slowdown, maxParams.Slowdown)
	in(&p.Quadratic, minParams.Quadratic, maxParams.Quadratic)
	in(&p.ITL, minParams.ITL, maxParams.ITL)
	in(&p.ITLPerStream, minParams.ITLPerStream, maxParams.ITLPerStream)
	in(&p.Uncached, minParams.Uncached, maxParams.Uncached)
	return p, ok
}
