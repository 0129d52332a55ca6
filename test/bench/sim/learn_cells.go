package sim

import (
	"fmt"
	"math"
	"time"
)

// learnSpans are the requests by number whose predictions are taken together. A
// prediction of the first span rests on nothing.
var learnSpans = []int{0, 5, 25, 50, 100, 200, 400}

// slowed is the request from which the first replica takes slowBy times as long.
const slowed, slowBy = 400, 4

// learnCells are engines of unknown speed: 3 times as fast as what routers begin with,
// as fast, and 3 times as slow, at one and the same utilisation.
func learnCells(add adder, pick picked) {
	for _, speed := range []float64{1. / 3, 1, 3} {
		for _, n := range []int{1, 4} {
			add(Cell{
				Group: "learn", Name: fmt.Sprintf("%.2gx as fast, %s", speed, onOff(n, false)), Work: "learn", Size: slowed + 400, Seeds: pick(1, 3, 3),
				Config: Config{Routers: n, Speed: speed, Rate: 10 * speed}, Drive: driveLearn,
			})
		}
	}
}

// driveLearn sums up |predicted - observed| / observed of times to first token, and how
// many times as slow as its neighbour the routers take the first replica to be 100
// requests after it is.
func driveLearn(c *Cluster) map[string]float64 {
	out := map[string]float64{}
	c.onDue = func(i int) {
		switch i {
		case slowed:
			c.Replicas[0].SetFactor(slowBy)
		case slowed + 100:
			out["slow_by"] = c.believed(0) / c.believed(1)
		}
	}
	c.Run()
	for i, from := range learnSpans[:len(learnSpans)-1] {
		to := learnSpans[i+1]
		out[fmt.Sprintf("err_%d", to)] = c.predictionError(from, to, -1)
	}
	for key, span := range map[string][2]int{"err_slowed_100": {slowed, slowed + 100}, "err_slowed_rest": {slowed + 100, len(c.Records)}} {
		if err := c.predictionError(span[0], span[1], 0); !math.IsNaN(err) { // else it gets no requests any more
			out[key] = err
		}
	}
	out["err_others_rest"] = c.predictionError(slowed+100, len(c.Records), -1)
	return out
}

// believed is what a prompt of 2,000 tokens takes at a replica that is idle, in ms, by what
// the routers know of it; their mean.
func (c *Cluster) believed(replica int) (ms float64) {
	routers := c.alive()
	for _, r := range routers {
		x := r.store.View().Replica(c.Replicas[replica].ID)
		p := r.cal.Params(x.Slot, Pool)
		ms += (p.Fixed + 2e6/p.Rate) / float64(len(routers))
	}
	return ms
}

// predictionError is the median over the requests of a span, of one replica or of all
// (-1); NaN without any.
func (c *Cluster) predictionError(from, to, replica int) float64 {
	var errs []float64
	for i := from; i < min(to, len(c.Records)); i++ {
		r := &c.Records[i]
		if r.Failed == "" && (replica < 0 || r.Replica == replica) {
			errs = append(errs, math.Abs(float64(r.PredictedTTFT-r.TTFT()))/float64(max(r.TTFT(), time.Millisecond)))
		}
	}
	if len(errs) == 0 {
		return math.NaN()
	}
	return quantile(errs, 0.5)
}
