package routing_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// eight is a pool of equal engines of which samples are taken at random.
type eight struct {
	cal *routing.Calibration
	e   engine
}

func newEight(seed uint64) *eight {
	p := routing.DefaultParams()
	p.Rate, p.Fixed, p.ITL, p.ITLPerStream = p.Rate/3, 3*p.Fixed, 3*p.ITL, 3*p.ITLPerStream
	return &eight{routing.NewCalibration(), engine{p, rand.New(rand.NewPCG(seed, 8)), 0.1}}
}

// sample is a time to first token of a replica that takes so many times as long.
func (x *eight) sample(replica int, times float64) routing.Sample {
	s := x.e.sample()
	s.Replica, s.Slot = state.ReplicaID(fmt.Sprint("r", replica)), state.Slot(replica)
	s.TTFT, s.ITL = time.Duration(times*float64(s.TTFT)), time.Duration(times*float64(s.ITL))
	return s
}

// off is how far the replica's learned time for a prompt of 2,000 tokens is from the
// truth.
func (x *eight) off(replica int, times float64) float64 {
	p := x.cal.Params(state.Slot(replica), "chat")
	learned, truth := p.Fixed+2e6/p.Rate, times*(x.e.Fixed+2e6/x.e.Rate)
	return math.Abs(learned-truth) / truth
}

// A replica that has become four times as slow, or is itself again, is known for it
// after a dozen of its own requests.
func TestAReplicaThatChangesIsKnownSoon(t *testing.T) {
	for seed := range uint64(5) {
		x := newEight(seed)
		for range 200 {
			x.cal.Observe(x.sample(x.e.rnd.IntN(8), 1))
		}
		for _, times := range []float64{4, 1} {
			own := 0
			for own < 12 {
				r := x.e.rnd.IntN(8)
				k := 1.0
				if r == 0 {
					own++
					k = times
				}
				x.cal.Observe(x.sample(r, k))
			}
			if off := x.off(0, times); off > 0.25 {
				t.Errorf("seed %d: %.0f %% off after 12 requests of its own at %gx", seed, 100*off, times)
			}
			if off := x.off(1, 1); off > 0.25 {
				t.Errorf("seed %d: another one is %.0f %% off when the first takes %gx", seed, 100*off, times)
			}
		}
	}
}

// Outliers are no change: equals stay equal.
func TestOutliersAreNoChange(t *testing.T) {
	for seed := range uint64(5) {
		x := newEight(seed)
		for range 800 {
			k := 1.0
			if x.e.rnd.IntN(10) == 0 {
				k = 4
			}
			x.cal.Observe(x.sample(x.e.rnd.IntN(8), k))
		}
		for r := range 8 {
			if off := x.off(r, 1); off > 0.25 {
				t.Errorf("seed %d: replica %d is %.0f %% off", seed, r, 100*off)
			}
		}
	}
}

// Nor is noise with heavy tails: of 200,000 samples, spread as Student's t with two
// degrees of freedom or with one, few are taken for a change, and none is for long.
func TestHeavyTailsAreNoChange(t *testing.T) {
	for _, freedom := range []int{2, 1} {
		x := newEight(uint64(freedom))
		bad, n := 0, 0
		for i := range 200_000 {
			x.cal.Observe(x.sample(x.e.rnd.IntN(8), math.Exp(0.15*student(x.e.rnd, freedom))))
			if i < 1000 || i%10 != 0 {
				continue
			}
			for r := range 8 {
				if n++; x.off(r, 1) > 0.5 {
					bad++
				}
			}
		}
		t.Logf("%d degrees of freedom: %.4f %% of the time some half off", freedom, 100*float64(bad)/float64(n))
		if float64(bad) > 1e-3*float64(n) {
			t.Errorf("%d degrees of freedom: %d of %d times a replica is more than half off", freedom, bad, n)
		}
	}
}

// student draws from Student's t.
func student(rnd *rand.Rand, freedom int) float64 {
	sum := 0.0
	for range freedom {
		z := rnd.NormFloat64()
		sum += z * z
	}
	return rnd.NormFloat64() / math.Sqrt(sum/float64(freedom))
}
