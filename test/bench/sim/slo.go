package sim

import (
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/whatif"
)

// SLO is what a good request meets.
type SLO = whatif.SLO

// DefaultSLO is that of docs/benchmarks.md: prompts of up to 123k tokens take ten
// seconds on an idle replica.
var DefaultSLO = SLO{TTFT: 10 * time.Second, TPOT: 250 * time.Millisecond}

// meets reports whether request i met the SLO.
func (c *Cluster) meets(i int) bool {
	r := &c.Records[i]
	if r.Failed != "" || r.TTFT() > c.cfg.SLO.TTFT {
		return false
	}
	k := c.work.Items[i].Answer.Tokens() - 1
	return k <= 0 || (r.Done-r.First)/time.Duration(k) <= c.cfg.SLO.TPOT
}

// sloFigures are goodput and output rate, over the time in which the measured
// requests came.
func (c *Cluster) sloFigures(f *Figures) {
	met, output := 0.0, 0.0
	from, to := time.Duration(1<<62), time.Duration(0)
	for i := c.work.Warmup; i < len(c.Records); i++ {
		from, to = min(from, c.Records[i].Sent), max(to, c.Records[i].Sent)
		if c.meets(i) {
			met++
		}
	}
	last := time.Duration(0)
	for i := c.work.Warmup; i < len(c.Records); i++ {
		if c.Records[i].Failed == "" {
			output += float64(c.work.Items[i].Answer.Tokens())
			last = max(last, c.Records[i].Done)
		}
	}
	f.MetSLO = met / float64(max(1, f.Requests))
	f.Goodput = met / max(1e-9, (to-from).Seconds())
	f.OutputRate = output / max(1e-9, (last-from).Seconds())
}

// loads is what replicas were busy with, summed over samples.
type loads struct {
	samples         int
	inFlight, queue []float64 // by replica; queue in uncached tokens
	longest         float64   // queue of each sample
}

// loadsEvery is how often loads are sampled.
const loadsEvery = 100 * time.Millisecond

// sampleLoads samples from the first measured request's time until the last was
// sent. The function it returns waits for the sampler to end.
func (c *Cluster) sampleLoads() (wait func()) {
	due := func(i int) time.Time { return c.began.Add(c.due(i)) }
	done := make(chan struct{})
	c.loads = loads{inFlight: make([]float64, len(c.Replicas)), queue: make([]float64, len(c.Replicas))}
	go func() {
		defer close(done)
		time.Sleep(time.Until(due(c.work.Warmup)))
		for end := due(len(c.work.Items) - 1); time.Now().Before(end); time.Sleep(loadsEvery) {
			c.loads.samples++
			longest := 0
			for i, r := range c.Replicas {
				l := r.Load()
				c.loads.inFlight[i] += float64(l.Running + l.Waiting)
				c.loads.queue[i] += float64(queued(l))
				longest = max(longest, queued(l))
			}
			c.loads.longest += float64(longest)
		}
	}()
	return func() { <-done }
}

// queued is the uncached prompt tokens before a new request.
func queued(l enginesim.Load) int { return l.WaitingUncachedTokens + l.RunningPrefillTokens }

// loadFigures says how evenly the replicas were loaded.
func (c *Cluster) loadFigures(f *Figures) {
	if c.loads.samples == 0 {
		return
	}
	n := float64(c.loads.samples)
	f.InFlight, f.InFlightSpread = evenness(c.loads.inFlight, n)
	f.Queue, f.QueueSpread = evenness(c.loads.queue, n)
	f.QueueNow = c.loads.longest / n / max(1e-9, f.Queue)
}

// evenness is the mean over replicas and samples, and the greatest replica's over it.
func evenness(sums []float64, samples float64) (mean, spread float64) {
	most := 0.0
	for _, v := range sums {
		mean += v / samples / float64(len(sums))
		most = max(most, v/samples)
	}
	return mean, most / max(1e-9, mean)
}
