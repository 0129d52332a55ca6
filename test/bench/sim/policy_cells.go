package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/routing"
)

// shared is a workload on which all policies are compared.
type shared struct {
	work string
	kv   []int // tokens of each engine: the middle one is the main table's
	// knee is the rate with each kv, as a factor on the workload's own, at which 90 % of
	// requests still meet DefaultSLO with one router and 8 engines. Group knee finds it;
	// the knee of n engines is taken to be n/8 of it.
	knee []float64
	size func(picked) int // requests of 8 engines
}

var workloads = []shared{
	{
		"conversation",
		[]int{200_000, 400_000, 800_000},
		[]float64{0.8125, 1.125, 1.25},
		func(p picked) int { return p(100, 500, 2000) },
	},
	{
		"synthetic",
		[]int{200_000, 400_000, 800_000},
		[]float64{1.0, 1.125, 1.125},
		func(p picked) int { return p(100, 500, 2000) },
	},
	{
		"azure",
		[]int{200_000, 400_000, 800_000},
		[]float64{20, 20, 20},
		func(p picked) int { return p(200, 2500, 10_000) },
	},
}

// kneeCells find the knees that policyCells go by.
func kneeCells(add adder, pick picked) {
	for _, w := range workloads {
		for i, kv := range w.kv {
			if pick(0, 1, 1) == 0 && (i != 1 || w.work != "conversation") {
				continue
			}
			add(Cell{
				Group: "knee", Name: fmt.Sprintf("%s, KV %dk", w.work, kv/1000), Work: w.work, Size: w.size(pick), Seeds: pick(1, 1, 3),
				Config: Config{Routers: 1, KVTokens: kv, Rate: w.knee[i]}, Bisect: true,
			})
		}
	}
}

// policyCells are all policies in the same cells, beside one router that knows
// everything.
func policyCells(add adder, pick picked) {
	shares := []float64{0.5, 0.7, 0.9}
	for _, w := range workloads {
		for i := range w.kv {
			for _, share := range shares {
				seeds := pick(1, 3, 3)
				if i != 1 || w.work != "conversation" {
					seeds = pick(0, 1, 3)
				}
				if seeds == 0 || i != 1 && share != 0.7 && pick(0, 0, 1) == 0 {
					continue
				}
				comparePolicies(add, w, i, 8, 8, share, w.size(pick), seeds)
			}
		}
		if share := 0.7; pick(0, 1, 1) == 1 && (w.work == "conversation" || pick(0, 0, 1) == 1) {
			comparePolicies(add, w, 1, 64, 16, share, 3*w.size(pick), pick(1, 1, 3))
		}
	}
}

func comparePolicies(add adder, w shared, i, replicas, routers int, share float64, size, seeds int) {
	c := Cell{
		Group: "policies", Work: w.work, Size: size, Seeds: seeds,
		Config: Config{Replicas: replicas, KVTokens: w.kv[i], Rate: share * w.knee[i] * float64(replicas) / 8},
	}
	at := fmt.Sprintf("%s, KV %dk, %d x %d, %g of knee", w.work, w.kv[i]/1000, replicas, routers, share)
	c.Name, c.Routers = at+", "+oneRouter, 1
	add(c)
	for _, p := range routing.Policies() {
		c.Name, c.Routers, c.Policy = at+", "+p, routers, p
		add(c)
	}
}

// oneRouter stands for a policy's name where one router knows everything.
const oneRouter = "one router"

// splitName parts a cell's name from its last word, the policy.
func splitName(name string) (at, policy string) {
	i := strings.LastIndex(name, ", ")
	return name[:max(0, i)], name[i+len(", "):]
}

// compare gives results whose cells differ by policy alone their ratios to the best
// policy and to one router, seed by seed.
func compare(results []Result) {
	type key struct {
		at   string
		seed uint64
	}
	by := map[key][]*Result{}
	for i := range results {
		if r := &results[i]; r.Group == "policies" {
			at, _ := splitName(r.Name)
			by[key{at, r.Seed}] = append(by[key{at, r.Seed}], r)
		}
	}
	for _, list := range by {
		var best, one Figures
		for _, r := range list {
			f := &r.Figures
			if _, p := splitName(r.Name); p == oneRouter {
				one = *f
				continue
			}
			if best.Requests == 0 {
				best = *f
				continue
			}
			best.TTFTMean, best.TPOTP99 = min(best.TTFTMean, f.TTFTMean), min(best.TPOTP99, f.TPOTP99)
			best.Goodput = max(best.Goodput, f.Goodput)
		}
		for _, r := range list {
			f := &r.Figures
			r.Extra = map[string]float64{}
			for _, x := range []struct {
				name string
				v    float64
				of   float64
			}{
				{"of_best", f.TTFTMean, best.TTFTMean},
				{"of_one", f.TTFTMean, one.TTFTMean},
				{"tpot_of_best", f.TPOTP99, best.TPOTP99},
				{"goodput_of_best", f.Goodput, best.Goodput},
			} {
				if x.of > 0 {
					r.Extra[x.name] = x.v / x.of
				}
			}
		}
	}
}

// kneeShare is the share of requests that meet the SLO up to the knee.
const kneeShare = 0.9

// findKnee finds the highest rate at which the cell's SLO is met: it doubles or halves
// the cell's own until it has a bracket, and halves that down to a sixteenth.
func findKnee(t *testing.T, cell Cell, seed uint64, w *Workload) (r Result, err error) {
	runs := map[float64]Result{}
	meets := func(rate float64) bool {
		if err != nil {
			return false
		}
		cell.Rate = rate
		var x Result
		if x, err = runCell(t, cell, seed, w); err != nil {
			return false
		}
		runs[rate] = x
		return x.Figures.MetSLO >= kneeShare
	}
	first := cell.Rate
	lo, hi := first, 2*first
	if meets(lo) {
		for ; meets(hi) && hi < 16*first; hi *= 2 {
			lo = hi
		}
	} else {
		for hi, lo = lo, lo/2; !meets(lo) && lo > first/16; lo /= 2 {
			hi = lo
		}
	}
	for range 3 {
		if mid := (lo + hi) / 2; meets(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	if err != nil {
		return r, err
	}
	r = runs[lo]
	r.Extra = map[string]float64{"knee": lo, "knee_rps": float64(len(w.Items)) / (w.Items[len(w.Items)-1].At.Seconds() / lo), "runs": float64(len(runs))}
	return r, nil
}

// policiesOf lists the policies that results are about, in routing's order.
func policiesOf(results []Result) (names []string) {
	for _, p := range routing.Policies() {
		if slices.ContainsFunc(results, func(r Result) bool { return r.Policy == p }) {
			names = append(names, p)
		}
	}
	return names
}
