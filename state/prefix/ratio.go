package prefix

import (
	"math"
	"sync"
	"sync/atomic"
)

const (
	startASCII = 4.0 // ASCII bytes per token before anything is learned (English text and code, GPT and Llama vocabularies)
	startWide  = 1.7 // bytes per token of other text: between 1 for scripts a vocabulary does not know and 3 for one token per CJK character

	minASCII, maxASCII = 1.0, 16.0
	minWide, maxWide   = 0.5, 12.0

	learnLeast   = 32   // samples of fewer predicted text tokens say more about templates than about text
	learnFastest = 0.25 // weight of the first samples
	learnSlowest = 0.02 // weight once settled: half of a change is followed within 35 samples
)

// Ratio estimates a prompt's tokens for one model: ASCII/a + Wide/w + Exact, where a and w are bytes per token learned
// from what engines report. The zero value is ready. All methods may be called from any goroutine and never block.
type Ratio struct {
	bytes   atomic.Uint64 // a and w as two float32; 0 = nothing learned
	samples atomic.Uint32
}

// Tokens is the estimated number of tokens of a prompt up to m, at least 1 for anything that is not empty.
func (r *Ratio) Tokens(m Mark) int {
	a, w := r.BytesPerToken()
	return int(math.Ceil(float64(m.ASCII)/a + float64(m.Wide)/w + float64(m.Exact)))
}

// BytesPerToken returns the present estimates for ASCII and for other bytes.
func (r *Ratio) BytesPerToken() (ascii, wide float64) { return unpack(r.bytes.Load()) }

// Learn takes a prompt's depth at its end and the number of tokens an engine reported for all of it. Each sample moves
// the estimates by a bounded step, so single odd ones do little harm; samples too small to say anything are ignored.
func (r *Ratio) Learn(m Mark, tokens int) {
	text := float64(tokens) - float64(m.Exact)
	for {
		old := r.bytes.Load()
		a, w := unpack(old)
		fromASCII, fromWide := float64(m.ASCII)/a, float64(m.Wide)/w
		predicted := fromASCII + fromWide
		if predicted < learnLeast || text <= 0 {
			return
		}
		weight := max(learnSlowest, learnFastest/(1+float64(r.samples.Load())/8))
		// The error is split by each class's share, in logarithms, so that both stay positive.
		err := math.Log(min(2, max(0.5, predicted/text))) * weight
		a = min(maxASCII, max(minASCII, a*math.Exp(err*fromASCII/predicted)))
		w = min(maxWide, max(minWide, w*math.Exp(err*fromWide/predicted)))
		if r.bytes.CompareAndSwap(old, pack(a, w)) {
			if n := r.samples.Load(); n < 1<<16 {
				r.samples.CompareAndSwap(n, n+1)
			}
			return
		}
	}
}

func pack(a, w float64) uint64 {
	return uint64(math.Float32bits(float32(a)))<<32 | uint64(math.Float32bits(float32(w)))
}

func unpack(v uint64) (a, w float64) {
	if v == 0 {
		return startASCII, startWide
	}
	return float64(math.Float32frombits(uint32(v >> 32))), float64(math.Float32frombits(uint32(v)))
}

// Ratios holds one Ratio per model, up to a bound. All methods may be called from any goroutine.
type Ratios struct {
	max int

	mu      sync.RWMutex // guards byModel
	byModel map[string]*Ratio

	others Ratio // shared by models beyond the bound
}

// NewRatios returns a map that keeps at most bound models apart; further ones share one Ratio.
func NewRatios(bound int) *Ratios {
	return &Ratios{max: bound, byModel: make(map[string]*Ratio)}
}

// For returns the model's Ratio, always the same one for the same model. It never returns nil.
func (r *Ratios) For(model string) *Ratio {
	r.mu.RLock()
	ratio := r.byModel[model]
	r.mu.RUnlock()
	if ratio != nil {
		return ratio
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ratio = r.byModel[model]; ratio != nil {
		return ratio
	}
	if len(r.byModel) >= r.max {
		return &r.others
	}
	ratio = new(Ratio)
	r.byModel[model] = ratio
	return ratio
}
