package routing

import (
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
	if output <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.pools.Load()
	var c *outputClasses
	if old != nil {
		c = (*old)[pool]
	}
	if c == nil {
		m := map[string]*outputClasses{}
		if old != nil {
			if len(*old) >= maxOutputPools {
				return
			}
			for k, v := range *old {
				m[k] = v
			}
		}
		c = &outputClasses{}
		m[pool] = c
		o.pools.Store(&m)
	}
	cell := &c[outputClass(maxTokens)]
	mean := float64(output)
	if bits := cell.Load(); bits != 0 {
		mean = math.Float64frombits(bits)
		mean += outputWeight * (float64(output) - mean)
	}
	cell.Store(math.Float64bits(mean))
}
