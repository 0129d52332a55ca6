package prefix

import "math"

// Estimate returns the present estimates in bytes per token and the samples behind
// them; with 0 samples they are the start values.
func (r *Ratio) Estimate() (ascii, wide float64, samples int) {
	ascii, wide = r.BytesPerToken()
	return ascii, wide, int(r.samples.Load())
}

// Seed takes estimates from elsewhere that rest on more samples than its own. It reports false when it knows better, or
// when they are no numbers.
func (r *Ratio) Seed(ascii, wide float64, samples int) bool {
	if math.IsNaN(ascii) || math.IsNaN(wide) || samples <= 0 {
		return false
	}
	samples = min(samples, maxSamples)
	for {
		have := r.samples.Load()
		if int(have) >= samples {
			return false
		}
		if r.samples.CompareAndSwap(have, uint32(samples)) {
			r.bytes.Store(pack(min(maxASCII, max(minASCII, ascii)), min(maxWide, max(minWide, wide))))
			return true
		}
	}
}

// maxSamples is where counting stops.
const maxSamples = 1 << 16

// Each gives the models kept apart and their ratios, in no order, until yield returns false.
func (r *Ratios) Each(yield func(model string, ratio *Ratio) bool) {
	r.mu.RLock()
	list := make(map[string]*Ratio, len(r.byModel))
	for m, x := range r.byModel {
		list[m] = x
	}
	r.mu.RUnlock()
	for m, x := range list {
		if !yield(m, x) {
			return
		}
	}
}
