package sim

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/test/bench/chart"
)

// Plot draws what the results have curves for: SVG files in dir, made if needed.
func Plot(dir string, results []Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	hit := func(r *Result) float64 { return r.Figures.HitRate }
	ttft := func(r *Result) float64 { return r.Figures.TTFTMean }
	const hits, seconds = "cached tokens / prompt tokens", "TTFT (s)"
	var regrets []chart.Line
	for _, r := range results {
		if r.Group == "m3" && r.Seed == 1 {
			regrets = append(regrets, chart.Line{Name: r.Name, Points: cdfOf(r.Figures.Regrets)})
		}
	}
	for _, c := range []struct {
		file, title, x, y string
		lines             []chart.Line
	}{
		{"sim-hit-agents.svg", "Cache hits of follow-up turns, agents' chats", "routers", hits, byRouters(results, "m1-agents", "", func(r *Result) float64 { return r.Figures.FollowUpHit })},
		{"sim-ttft-agents.svg", "Mean time to first token, agents' chats", "routers", seconds, byRouters(results, "m1-agents", "", ttft)},
		{"sim-hit-mooncake.svg", "Cache hits, Mooncake conversation", "routers", hits, byRouters(results, "m1-mooncake", "", hit)},
		{"sim-ttft-mooncake.svg", "Mean time to first token, Mooncake conversation", "routers", seconds, byRouters(results, "m1-mooncake", "", ttft)},
		{"sim-hit-groups.svg", "Cache hits, prompts below shared prefixes (K01)", "routers", hits, append(byRouters(results, "k01", "repeated", hit), byRouters(results, "k01", "fresh", hit)...)},
		{"sim-policies-conversation.svg", "Mean TTFT by policy, Mooncake conversation, 8 routers, 8 replicas", "rate / the trace's own", seconds, byRate(results, "policies", "conversation, KV 400k, 8 x 8", ", %s", ttft)},
		{"sim-policies-synthetic.svg", "Mean TTFT by policy, Mooncake synthetic, 8 routers, 8 replicas", "rate / the trace's own", seconds, byRate(results, "policies", "synthetic, KV 400k, 8 x 8", ", %s", ttft)},
		{"sim-policies-azure.svg", "Mean TTFT by policy, Azure's lengths with Zipf prefixes, 8 routers, 8 replicas", "rate / the trace's own", seconds, byRate(results, "policies", "azure, KV 400k, 8 x 8", ", %s", ttft)},
		{"sim-llmd.svg", "TTFT p90 by policy, llm-d's shape, fresh questions, 4 routers", "requests/s", seconds, byRate(results, "llmd", "fresh", "4 routers, %s", func(r *Result) float64 { return r.Figures.TTFTP90 })},
		{"sim-llmd-1.svg", "TTFT p90 by policy, llm-d's shape, fresh questions, 1 router", "requests/s", seconds, byRate(results, "llmd", "fresh", "1 router, %s", func(r *Result) float64 { return r.Figures.TTFTP90 })},
		{"sim-llmd-repeated.svg", "TTFT p90 by policy, llm-d's shape, repeated questions, 4 routers", "requests/s", seconds, byRate(results, "llmd", "repeated", "4 routers, %s", func(r *Result) float64 { return r.Figures.TTFTP90 })},
		{"sim-bytes.svg", "What a router sends to the others", "routers", "sent (kB/s)", byReplicas(results)},
		{"sim-regret.svg", "Regret of a pick: true score less the best one's", "regret (ms)", "share of picks", regrets},
		{"sim-prediction.svg", "Predicted against reported cached tokens", "cache of a replica / the workload's middle size", "p90 of error / prompt tokens", errorByCache(results)},
	} {
		picture := chart.Chart{Title: c.title, X: c.x, Y: c.y, Log2: c.x == "routers", Lines: c.lines}
		if err := picture.Save(filepath.Join(dir, c.file)); err != nil {
			return err
		}
	}
	return nil
}

// byRouters are two curves over the number of routers: with and without sharing.
func byRouters(results []Result, group, prefix string, get func(*Result) float64) (out []chart.Line) {
	for _, sharing := range []bool{true, false} {
		c := chart.Line{Name: "sharing", Dashed: !sharing, Dots: true}
		if !sharing {
			c.Name = "sharing off"
		}
		if prefix != "" {
			c.Name = prefix + ", " + c.Name
		}
		by := map[int][]Result{}
		for _, r := range results {
			if r.Group == group && strings.HasPrefix(r.Name, prefix) && !strings.Contains(r.Name, "true caches") && (r.Sharing == sharing || r.Routers == 1) {
				by[r.Routers] = append(by[r.Routers], r)
			}
		}
		c.Points = spreads(by, get)
		out = append(out, c)
	}
	return out
}

// byReplicas are curves over the number of routers, one per number of replicas.
func byReplicas(results []Result) (out []chart.Line) {
	by := map[int]map[int][]Result{}
	for _, r := range results {
		if r.Group == "scale" {
			if by[r.Replicas] == nil {
				by[r.Replicas] = map[int][]Result{}
			}
			by[r.Replicas][r.Routers] = append(by[r.Replicas][r.Routers], r)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(by)) {
		c := chart.Line{Name: fmt.Sprintf("%d replicas", n), Dots: true}
		c.Points = spreads(by[n], func(r *Result) float64 { return r.Figures.BytesOut / 1e3 })
		out = append(out, c)
	}
	return out
}

// errorByCache are curves over the cache's size, one per workload.
func errorByCache(results []Result) (out []chart.Line) {
	for _, w := range []struct {
		name   string
		middle int
	}{{"agents", AgentsKV}, {"mooncake", 400_000}} {
		by := map[int][]Result{}
		for _, r := range results {
			if r.Group == "m3" && r.Workload == w.name && !strings.Contains(r.Name, "said to be") {
				by[100*r.KVTokens/w.middle] = append(by[100*r.KVTokens/w.middle], r)
			}
		}
		c := chart.Line{Name: w.name, Dots: true}
		c.Points = spreads(by, func(r *Result) float64 { return r.Figures.PredictErr90 })
		for i := range c.Points {
			c.Points[i].X /= 100
		}
		out = append(out, c)
	}
	return out
}

// spreads are the medians of a figure with their ranges over seeds, by what the
// results are sorted by.
func spreads(by map[int][]Result, get func(*Result) float64) (points []chart.Point) {
	for _, n := range slices.Sorted(maps.Keys(by)) {
		lo, mid, hi := spread(by[n], get)
		points = append(points, chart.Point{X: float64(n), Y: mid, Low: lo, High: hi})
	}
	return points
}

func cdfOf(quantiles []float64) (points []chart.Point) {
	for i, v := range quantiles {
		points = append(points, chart.Point{X: v, Y: float64(i) / float64(len(quantiles)-1)})
	}
	return points
}
