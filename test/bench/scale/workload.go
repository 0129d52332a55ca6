package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// workload is what comes, and what goes wrong.
type workload struct {
	name, about string
	length      int                 // s
	rate        func(t int) float64 // requests/s
	look        int                 // s, between looks of hearsay's loop: 5, for speed
	startMin    int                 // s; start-up times are uniform from here
	startMax    int                 // to here
	blind       func(t int) bool    // the rules see nothing; nil: never
	flaps       func(t int) bool    // replicas' readiness flaps; nil: never
}

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
)

// Start-up times, s: from a warm image with the weights on a local disk to pulling both.
const (
	startMin = 2 * minute
	startMax = 7 * minute
)

// thinning is how many of ServeGen's requests come: one in so many, or the pool would
// have hundreds of replicas.
const thinning = 4

// dispersion is the variance of a second's count of requests over its mean. The median
// window of ServeGen's 26 busiest m-large clients has 6.7 (their rates times their
// squared coefficients of variation); thinned by four that is 1+5.7/4.
const dispersion = 2.4

// steady is a workload without faults.
func steady(name, about string, length int, rate func(int) float64) *workload {
	return &workload{name: name, about: about, length: length, rate: rate, look: 5, startMin: startMin, startMax: startMax}
}

// path is a rate that goes straight from point to point; times in minutes.
func path(points ...[2]float64) func(int) float64 {
	return func(t int) float64 {
		m := float64(t) / minute
		for i := 1; i < len(points); i++ {
			a, b := points[i-1], points[i]
			if m < b[0] {
				return a[1] + (b[1]-a[1])*(m-a[0])/(b[0]-a[0])
			}
		}
		return points[len(points)-1][1]
	}
}

func workloads() ([]*workload, error) {
	servegen, err := servegen()
	if err != nil {
		return nil, err
	}
	daily := steady("daily", "15 to 75 requests/s, a sine of a day", 3*day, func(t int) float64 {
		return 45 - 30*math.Cos(2*math.Pi*float64(t)/day)
	})
	stairs := path([2]float64{0, 20}, [2]float64{60, 20}, [2]float64{60.01, 50}, [2]float64{240, 50}, [2]float64{240.01, 20}, [2]float64{360, 20})
	slow := steady("slow-start", "the step, every replica taking 7 min to start", 6*hour, stairs)
	slow.startMin = startMax
	flapping := steady("flapping", "40 requests/s; for 3 of 6 hours each replica is unready 30 s of every 5 min or so", 6*hour, func(int) float64 { return 40 })
	flapping.flaps = func(t int) bool { return t >= hour && t < 4*hour }
	outage := steady("outage", "the ramp; from its middle on no rule sees anything for 20 min", 6*hour, ramp)
	outage.blind = func(t int) bool { return t >= 90*minute && t < 110*minute }
	return []*workload{
		servegen,
		steady("constant", "40 requests/s", 6*hour, func(int) float64 { return 40 }),
		steady("step", "20 requests/s, 50 from 1 h to 4 h", 6*hour, stairs),
		steady("spike", "30 requests/s, 75 for 3 min every 75 min", 6*hour, spikes),
		steady("ramp", "20 to 70 requests/s within an hour, and back within another", 6*hour, ramp),
		daily, slow, flapping, outage,
	}, nil
}

func ramp(t int) float64 {
	return path([2]float64{0, 20}, [2]float64{60, 20}, [2]float64{120, 70}, [2]float64{180, 70}, [2]float64{240, 20}, [2]float64{360, 20})(t)
}

func spikes(t int) float64 {
	if at := t % (75 * minute); at >= 60*minute && at < 63*minute {
		return 75
	}
	return 30
}

// servegen is the trace's total rate, thinned; between the middles of its windows it
// goes straight.
func servegen() (*workload, error) {
	rates, err := traces.ServeGenRate()
	if err != nil {
		return nil, err
	}
	window := traces.ServeGenWindow.Seconds()
	about := fmt.Sprintf("ServeGen m-large's total rate over 14 days, one request in %d", thinning)
	return steady("servegen", about, int(window)*len(rates), func(t int) float64 {
		x := min(max(0, float64(t)/window-0.5), float64(len(rates)-1)-1e-9)
		return between(rates, x) / thinning
	}), nil
}

// second is what comes in one second.
type second struct{ requests, tokens float32 }

// arrivals draws what comes: whole requests, as many as a normal law of the rate and
// the dispersion gives, of lengths that add up as those of the engine's requests do.
func (w *workload) arrivals(e *engine, seed uint64) []second {
	rng := rand.New(rand.NewPCG(seed, 1))
	list := make([]second, w.length)
	for t := range list {
		mean := w.rate(t)
		n := math.Round(mean + math.Sqrt(mean*dispersion)*rng.NormFloat64())
		if n <= 0 {
			continue
		}
		tokens := n*e.prompt + math.Sqrt(n)*e.spread*rng.NormFloat64()
		list[t] = second{float32(n), float32(max(n*e.prompt/4, tokens))}
	}
	return list
}

// start is the start-up time of the replica launched as the id-th, s: the same under
// every rule.
func (w *workload) start(seed uint64, id int) int {
	rng := rand.New(rand.NewPCG(seed, 1000+uint64(id)))
	return w.startMin + rng.IntN(w.startMax-w.startMin+1)
}

// unready reports whether a replica fails its readiness probe.
func (w *workload) unready(seed uint64, id, t int) bool {
	if w.flaps == nil || !w.flaps(t) {
		return false
	}
	const each = 30
	rng := rand.New(rand.NewPCG(seed+uint64(id)*1_000_003, 2_000_000+uint64(t/each)))
	return rng.IntN(10) == 0
}

func (w *workload) sees(t int) bool { return w.blind == nil || !w.blind(t) }

func sqrt(x float64) float64 { return math.Sqrt(x) }

// at is a second of the model as a moment.
func at(t int) time.Time { return time.Unix(1_000_000+int64(t), 0) }
