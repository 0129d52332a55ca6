package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// figures are one value per seed.
type figures []float64

// String is the median, and the range where there is one.
func (f figures) String() string {
	if len(f) == 1 {
		return fmt.Sprintf("%.3f", f[0])
	}
	return fmt.Sprintf("%.3f (%.3f-%.3f)", table.Median(f), slices.Min(f), slices.Max(f))
}

// over is a figure of each of some runs.
func over[T any](runs []T, get func(T) float64) (f figures) {
	for _, r := range runs {
		f = append(f, get(r))
	}
	return f
}

// groupBy keeps the order in which keys come first.
func groupBy[T any, K comparable](runs []T, key func(T) K) (keys []K, groups map[K][]T) {
	groups = map[K][]T{}
	for _, r := range runs {
		k := key(r)
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], r)
	}
	return keys, groups
}

func (res *result) show(w io.Writer, o *options) {
	fmt.Fprintf(w, "%d groups of %d prompts, system %d tokens, question %d, answer %d; %d replicas of %d KV tokens (%.0f %% filled); %g requests/s, Poisson; seeds %v.\n",
		o.groups, promptsPer, o.system, o.question, o.output, o.replicas, res.KVTokens, 100*o.resident, o.rate, o.seeds)
	res.showCells(w)
	res.showRestarts(w)
	res.showJoins(w)
}

func (res *result) showCells(w io.Writer) {
	type key struct {
		mode, policy string
		routers      int
		sharing      bool
	}
	keys, groups := groupBy(res.Cells, func(c cell) key { return key{c.Mode, c.Policy, c.Routers, c.Sharing} })
	one := map[string]float64{} // hit rate of one router, by mode
	for _, k := range keys {
		if k.routers == 1 && k.policy != "round_robin" {
			one[k.mode] = table.Median(over(groups[k], func(c cell) float64 { return c.Hit }))
		}
	}
	var rows [][]string
	for _, k := range keys {
		g := groups[k]
		name := k.policy
		if !k.sharing {
			name += ", sharing off"
		}
		hit := over(g, func(c cell) float64 { return c.Hit })
		points := ""
		if base, ok := one[k.mode]; ok {
			points = fmt.Sprintf("%+.1f", 100*(table.Median(hit)-base))
		}
		mid := func(get func(cell) float64) float64 { return table.Median(over(g, get)) }
		failed := 0
		for _, c := range g {
			failed += c.Failed
		}
		rows = append(rows, []string{
			k.mode, name, fmt.Sprint(k.routers), hit.String(), table.Percent(mid(func(c cell) float64 { return c.Hit / c.Ideal })), points,
			table.Num(1e3 * mid(func(c cell) float64 { return c.TTFTMean })), table.Num(1e3 * mid(func(c cell) float64 { return c.TTFTP99 })),
			table.Percent(mid(func(c cell) float64 { return c.Error })), table.Percent(mid(func(c cell) float64 { return c.Bias })),
			fmt.Sprint(failed), table.Num(1e3 * mid(func(c cell) float64 { return c.Late })),
		})
	}
	if rows != nil {
		table.Print(w, "K01: cached over prompt tokens by number of routers", 2, []string{
			"prompts", "policy", "routers", "hit rate", "of the possible", "points to 1 router", "TTFT ms", "p99", "prediction error p50", "bias", "failed", "client late p99 ms",
		}, rows)
	}
}

func (res *result) showRestarts(w io.Writer) {
	type key struct {
		mode    string
		routers int
	}
	keys, groups := groupBy(res.Restarts, func(r restart) key { return key{r.Mode, r.Routers} })
	var rows [][]string
	for _, k := range keys {
		g := groups[k]
		hit := func(get func(restart) procs.Part) string {
			if get(g[0]).Requests == 0 {
				return "-"
			}
			return over(g, func(r restart) float64 { return get(r).Hit }).String()
		}
		lost, others := 0, 0
		for _, r := range g {
			lost += r.Next.Failed
			others += r.Others.Failed
		}
		rows = append(rows, []string{
			k.mode, fmt.Sprint(k.routers), over(g, func(r restart) float64 { return r.Ready }).String(),
			hit(func(r restart) procs.Part { return r.Before }), hit(func(r restart) procs.Part { return r.Second }), hit(func(r restart) procs.Part { return r.After }),
			table.Percent(table.Median(over(g, func(r restart) float64 { return r.After.Hit / max(1e-9, r.Before.Hit) }))),
			hit(func(r restart) procs.Part { return r.Next }), hit(func(r restart) procs.Part { return r.OthersB }), hit(func(r restart) procs.Part { return r.Others }), fmt.Sprint(others), fmt.Sprint(lost),
		})
	}
	if rows != nil {
		table.Print(w, "K02: a router killed and started again at once with its data directory; hit rates of the requests sent to it, in the 15 s before the kill, in its first second after ready, and in the 15 s after that", 1, []string{
			"prompts", "routers", "ready after s", "before", "first second", "later", "later of before", "next round, all", "others before", "others after", "others failed", "failed after ready",
		}, rows)
	}
}

func (res *result) showJoins(w io.Writer) {
	keys, groups := groupBy(res.Joins, func(j join) string { return j.Mode })
	var rows [][]string
	for _, k := range keys {
		g := groups[k]
		rows = append(rows, []string{
			k, fmt.Sprint(g[0].Routers), over(g, func(j join) float64 { return j.Ready }).String(),
			table.Percent(table.Median(over(g, func(j join) float64 { return j.EntriesReady / max(1, j.EntriesPeer) }))),
			over(g, func(j join) float64 { return j.Before.Hit }).String(), over(g, func(j join) float64 { return j.First.Hit }).String(),
			over(g, func(j join) float64 { return j.Rest.Hit }).String(),
			fmt.Sprintf("%+.1f", 100*table.Median(over(g, func(j join) float64 { return j.First.Hit - j.Before.Hit }))),
		})
	}
	if rows != nil {
		table.Print(w, "K03: an empty router joins a warm cluster and gets all traffic at once", 1, []string{
			"prompts", "routers", "ready after s", "entries when ready, of a peer's", "hit rate of the others before", "its first 100 requests", "the rest of its round", "points, first 100",
		}, rows)
	}
}
