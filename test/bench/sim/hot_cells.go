package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
)

// sticky is prefix_hash without its bound: a prefix has one replica, whatever the load.
const sticky = "sticky"

// shortest joins the shortest queue, as the engines know it, whatever caches hold.
const shortest = "shortest"

// policyOf sets what a policy's name means here.
func policyOf(c *Config, name string) {
	c.Policy = name
	if name == sticky {
		c.Policy, c.Pick.HashBound = routing.PrefixHash, math.MaxFloat64
	}
	if name == shortest {
		c.Policy, c.Shortest = routing.LeastOutstanding, true
	}
}

// llmdRates are offered, in requests per second.
func llmdRates(pick picked) []float64 {
	return [][]float64{{10}, {3, 10, 20, 25, 30, 40, 50, 60}, {3, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60}}[pick(0, 1, 2)]
}

// llmdCells are the shape of llm-d's benchmark, for every policy.
func llmdCells(add adder, pick picked) {
	for _, work := range []string{"llmd-new", "llmd"} {
		for _, rate := range llmdRates(pick) {
			size := max(100, int(rate)*pick(5, 40, 40))
			for _, p := range routing.Policies() {
				for _, n := range []int{1, 4} {
					if n == 1 && p != routing.TTFT && pick(0, 1, 1) == 0 {
						continue
					}
					kind := "fresh"
					if work == "llmd" {
						kind = "repeated"
					}
					add(Cell{
						Group: "llmd", Name: fmt.Sprintf("%s, %g/s, %s, %s", kind, rate, onOff(n, false), p), Work: work, Size: size, Seeds: pick(1, 3, 3),
						Config: Config{Routers: n, Policy: p, KVTokens: llmdKV, Rate: rate, SLO: SLO{TTFT: time.Second, TPOT: 250 * time.Millisecond}},
					})
				}
			}
		}
	}
}

// hotCells are M10 and the cases K05, K07 and K12.
func hotCells(add adder, pick picked) {
	for _, x := range []struct {
		group, work string
		replicas    int
		rates       []float64
	}{
		{"hot", "hot", 8, []float64{10, 20, 40, 60, 80}},
		{"k07", "universal", 16, []float64{20, 40, 80, 120, 160}},
	} {
		for _, rate := range x.rates[:pick(2, 5, 5)] {
			for _, p := range []string{routing.TTFT, routing.PrefixHash, routing.Hybrid, routing.CacheAware, routing.LeastOutstanding, routing.PowerOfTwo, sticky, shortest} {
				c := Cell{
					Group: x.group, Name: fmt.Sprintf("%g/s, %s", rate, p), Work: x.work, Size: max(200, int(rate)*pick(20, 40, 100)), Seeds: pick(1, 3, 3),
					Config: Config{Routers: 4, Replicas: x.replicas, Rate: rate, Loads: true},
				}
				policyOf(&c.Config, p)
				add(c)
			}
		}
	}
	for _, p := range []string{routing.TTFT, routing.LeastOutstanding, routing.PowerOfTwo, routing.RoundRobin, routing.Random} {
		add(Cell{Group: "k05", Name: p, Work: "wave", Size: 800, Config: Config{Routers: 4, Policy: p}, Drive: driveWave})
	}
	for _, rate := range []float64{10, 20, 30} {
		for _, p := range []string{routing.TTFT, routing.LeastOutstanding, routing.RoundRobin} {
			for _, without := range []bool{false, true} {
				c := Cell{
					Group: "k12", Name: fmt.Sprintf("%g/s, %s", rate, p), Work: "unique", Size: pick(300, 1000, 3000), Seeds: pick(1, 3, 3),
					Config: Config{Routers: 3, Replicas: 8, SlowFirst: 4, Policy: p, Rate: rate, Loads: true}, Drive: driveSlow,
				}
				if without {
					c.Name += ", without it"
					c.Replicas, c.SlowFirst = 7, 1
				}
				add(c)
			}
		}
	}
}

// driveWave is case K05: how even the requests in flight are when the last has been
// sent, and how many each replica had at most.
func driveWave(c *Cluster) map[string]float64 {
	c.Run()
	last := time.Duration(0)
	for i := range c.Records {
		last = max(last, c.Records[i].Sent)
	}
	flying, got := make([]float64, len(c.Replicas)), make([]float64, len(c.Replicas))
	for i := range c.Records {
		r := &c.Records[i]
		got[r.Replica]++
		if r.Done > last {
			flying[r.Replica]++
		}
	}
	_, atEnd := evenness(flying, 1)
	_, inAll := evenness(got, 1)
	return map[string]float64{"in_flight_spread": atEnd, "requests_spread": inAll}
}

// driveSlow is case K12: what the first replica gets of a mean other one's requests.
func driveSlow(c *Cluster) map[string]float64 {
	c.Run()
	slow, fast := 0.0, 0.0
	for i := c.work.Warmup; i < len(c.Records); i++ {
		if c.Records[i].Replica == 0 {
			slow++
		} else {
			fast++
		}
	}
	return map[string]float64{"slow_share": slow / max(1, fast/float64(len(c.Replicas)-1))}
}
