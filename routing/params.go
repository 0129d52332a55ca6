package routing

// Params is what calibration knows of one replica. Times are in milliseconds.
type Params struct {
	Rate         float64 // mu: prefill tokens/s without decode beside it
	Fixed        float64 // a: first-token time of an empty prompt on an idle replica
	Slowdown     float64 // kappa: share of Rate lost per decode stream
	Quadratic    float64 // q: per uncached token and prompt token
	ITL          float64 // inter-token time of a lone stream
	ITLPerStream float64 // dITL/dB: added by each further stream
	Uncached     float64 // mean uncached prompt tokens of a request
	Samples      int     // observations behind these figures; 0 = defaults
}

// minPrefillShare bounds how far decode can slow prefill down (ALGORITHMS 4).
const minPrefillShare = 0.3

// RateAt is the prefill rate in tokens/s beside b decode streams.
func (p *Params) RateAt(b float64) float64 {
	return p.Rate * max(minPrefillShare, 1-p.Slowdown*b)
}

// ITLAt is the inter-token time in ms in a batch of b streams.
func (p *Params) ITLAt(b float64) float64 { return p.ITL + p.ITLPerStream*max(0, b-1) }

// DefaultParams are used until something was observed. Source: Splitwise's
// measurements of Llama-2 70B on four H100 (the same file calibrates the simulated
// engines): prompts of 1k, 2k, 4k and 8k tokens take 106, 201, 466 and 943 ms, which
// is 7.7-10.8k tokens/s above some 25 ms; a decode step takes 29.4 ms at batch 1
// and 52.0 ms at 64, which is 0.36 ms a stream. Slowdown: a step that also decodes
// 64 streams takes those 23 ms longer, a tenth of a 2k-token chunk's time.
// Quadratic: the attention of 1 token to 1 earlier one, 2e-6 ms, halved since a
// prompt attends to itself from half its length on average.
func DefaultParams() Params {
	return Params{
		Rate: 9000, Fixed: 25, Slowdown: 0.0016, Quadratic: 1e-6,
		ITL: 29, ITLPerStream: 0.36, Uncached: 1000,
	}
}

// Bounds of what calibration may believe: from a laptop's CPU to an accelerator
// rack with a small model.
var (
	minParams = Params{Rate: 5, Fixed: 0.1, Slowdown: 0, Quadratic: 0, ITL: 0.1, ITLPerStream: 0, Uncached: 1}
	maxParams = Params{Rate: 1e6, Fixed: 5000, Slowdown: 0.05, Quadratic: 1e-4, ITL: 5000, ITLPerStream: 200, Uncached: 1e6}
)
