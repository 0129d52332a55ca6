package traces

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
)

// zipf draws ranks in [0, n) with a share proportional to 1/(rank+1)^s, for any s >= 0 (the standard library's needs s > 1).
type zipf struct {
	cumulative []float64 // len = n, last is 1
}

const maxZipf = 1 << 20

func newZipf(n int, s float64) (*zipf, error) {
	if n < 1 || n > maxZipf {
		return nil, fmt.Errorf("%d ranks, want 1 to %d", n, maxZipf)
	}
	if !(s >= 0) || math.IsInf(s, 0) {
		return nil, fmt.Errorf("exponent is %v, want 0 or above", s)
	}
	z := &zipf{cumulative: make([]float64, n)}
	sum := 0.0
	for i := range z.cumulative {
		sum += math.Pow(float64(i+1), -s)
		z.cumulative[i] = sum
	}
	for i := range z.cumulative {
		z.cumulative[i] /= sum
	}
	z.cumulative[n-1] = 1
	return z, nil
}

func (z *zipf) draw(rng *rand.Rand) int {
	return sort.SearchFloat64s(z.cumulative, rng.Float64())
}
