package routing

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
)

const (
	// defaultOutput is the expected output before any was seen, tokens. Median of
	// Azure's 2023 conversation trace: 129; its mean: 211.
	defaultOutput = 200
	// outputWeight is the weight of a new output in the running mean.
	outputWeight = 0.02
	// maxOutputPools bounds the pools of which outputs are remembered.
	maxOutputPools = 4096
)

// outputs learns how many tokens answers have, by pool and by the class of the
// client's bound. Reads take no lock and allocate nothing.
type outputs struct {
	mu    sync.Mutex
	pools atomic.Pointer[map[string]*outputClasses] // replaced under mu
}

// outputClasses: no bound, then bounds up to 16, 128, 1024, and above.
type outputClasses [5]atomic.Uint64 // bits of a float64; 0 = none seen

func outputClass(maxTokens int) int {
	switch {
	case maxTokens <= 0:
		return 0
	case maxTokens <= 16:
		return 1
	case maxTokens <= 128:
		return 2
	case maxTokens <= 1024:
		return 3
	}
	return 4
}

func (o *outputs) get(pool string, maxTokens int) int {
	mean := float64(defaultOutput)
	if m := o.pools.Load(); m != nil {
		if c := (*m)[pool]; c != nil {
			if bits := c[outputClass(maxTokens)].Load(); bits != 0 {
				mean = math.Float64frombits(bits)
			} else if bits := c[0].Load(); bits != 0 {
				mean = math.Float64frombits(bits)
			}
		}
	}
	n := max(1, int(math.Round(mean)))
	if maxTokens > 0 {
		n = min(n, maxTokens)
	}
	return n
}

func (o *outputs) observe(pool string, maxTokens, output int) {
	if output <= 0 || output > maxOutput {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.of(pool)
	if c == nil {
		return
	}
	cell := &c[outputClass(maxTokens)]
	mean := float64(output)
	if bits := cell.Load(); bits != 0 {
		mean = math.Float64frombits(bits)
		mean += outputWeight * (float64(output) - mean)
	}
	cell.Store(math.Float64bits(mean))
}

// of returns a pool's means, made on first use; nil when there are too many pools.
// The caller holds mu.
func (o *outputs) of(pool string) *outputClasses {
	old := o.pools.Load()
	if old == nil {
		old = &map[string]*outputClasses{}
	}
	if c := (*old)[pool]; c != nil {
		return c
	}
	if len(*old) >= maxOutputPools {
		return nil
	}
	next := maps.Clone(*old)
	next[pool] = &outputClasses{}
	o.pools.Store(&next)
	return next[pool]
}

// OutputClasses is the number of classes of bounds by which outputs are learned.
const OutputClasses = len(outputClasses{})

// EachOutput gives the mean output tokens learned of every pool, by class of the
// client's bound; 0 = none seen.
func (c *Calibration) EachOutput(yield func(pool string, means [OutputClasses]float64) bool) {
	m := c.outputs.pools.Load()
	if m == nil {
		return
	}
	for pool, cells := range *m {
		var means [OutputClasses]float64
		for i := range cells {
			means[i] = math.Float64frombits(cells[i].Load())
		}
		if !yield(pool, means) {
			return
		}
	}
}

// SeedOutput takes another router's means for the classes of which none was seen
// here.
func (c *Calibration) SeedOutput(pool string, means [OutputClasses]float64) {
	c.outputs.mu.Lock()
	defer c.outputs.mu.Unlock()
	cells := c.outputs.of(pool)
	if cells == nil {
		return
	}
	for i, mean := range means {
		if mean >= 1 && mean <= maxOutput && cells[i].Load() == 0 {
			cells[i].Store(math.Float64bits(mean))
		}
	}
}

// maxOutput bounds what is believed of answers, tokens.
const maxOutput = 1 << 24
