package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// row shows a rule's runs with all seeds: median (min-max).
func row(workload, rule string, runs, oracle []outcome) []string {
	over := func(get func(outcome) float64, format string) string {
		var v []float64
		for _, o := range runs {
			v = append(v, get(o))
		}
		low, high := fmt.Sprintf(format, slices.Min(v)), fmt.Sprintf(format, slices.Max(v))
		if mid := fmt.Sprintf(format, table.Median(v)); low != high {
			return fmt.Sprintf("%s (%s-%s)", mid, low, high)
		}
		return low
	}
	base := map[uint64]float64{}
	for _, o := range oracle {
		base[o.Seed] = o.Hours
	}
	return []string{
		workload, rule, runs[0].Setting,
		over(func(o outcome) float64 { return o.Violated }, "%.0f"),
		over(func(o outcome) float64 { return o.Hours }, "%.0f"),
		over(func(o outcome) float64 { return o.Hours / base[o.Seed] }, "%.2f"),
		over(func(o outcome) float64 { return o.Longest }, "%.0f"),
		over(func(o outcome) float64 { return o.Resizes }, "%.0f"),
		over(func(o outcome) float64 { return o.FlipsHour }, "%.2f"),
		over(func(o outcome) float64 { return 100 * o.Late }, "%.2f"),
		over(func(o outcome) float64 { return 100 * o.Refused }, "%.2f"),
	}
}

func (s *study) show(w io.Writer) {
	var rows [][]string
	for _, c := range s.cells {
		rows = append(rows, row(c.w.name, "oracle", c.oracle, c.oracle), row(c.w.name, "**hearsay**", c.hearsay, c.oracle))
		for _, f := range s.families {
			rows = append(rows, row(c.w.name, f.name+", best here", c.best[f.name], c.oracle))
		}
		for _, f := range s.families {
			rows = append(rows, row(c.w.name, f.name+", best overall", c.overall[f.name], c.oracle))
		}
	}
	table.Print(w, fmt.Sprintf("%d seeds, median (min-max)", s.seeds), 3, []string{
		"workload", "rule", "setting", "violated min", "replica-hours", "x oracle", "longest min", "resizes", "turns/h", "late %", "refused %",
	}, rows)

	rows = nil
	for _, c := range s.cells {
		h := c.hearsay[0]
		for _, f := range s.families {
			r := []string{c.w.name, f.name, fmt.Sprint(len(c.sweep[f.name])), fmt.Sprint(dominating(c.sweep[f.name], h)), "none", ""}
			if o := asGood(c.sweep[f.name], h.Violated); o != nil {
				r[4], r[5] = fmt.Sprintf("%.2f", o.Hours/h.Hours), fmt.Sprintf("%s (%.0f min)", o.Setting, o.Violated)
			}
			rows = append(rows, r)
		}
	}
	table.Print(w, "What a rival needs to violate no more minutes than hearsay, first seed", 2, []string{
		"workload", "rule", "settings", "of those better in both", "hours / hearsay's", "cheapest setting that is as good",
	}, rows)
	s.showFront(w)
}

// dominating counts the settings that violate no more and cost no more, one of them less.
func dominating(list []outcome, than outcome) (n int) {
	for _, o := range list {
		if o.Violated <= than.Violated && o.Hours <= than.Hours && (o.Violated < than.Violated || o.Hours < than.Hours) {
			n++
		}
	}
	return n
}

// showFront shows hearsay's variants.
func (s *study) showFront(w io.Writer) {
	var rows [][]string
	for _, c := range s.cells {
		for _, runs := range c.front {
			rows = append(rows, row(c.w.name, "hearsay", runs, c.oracle))
		}
	}
	if len(rows) == 0 {
		return
	}
	for i := range rows {
		rows[i] = slices.Delete(rows[i], 1, 2)
	}
	table.Print(w, fmt.Sprintf("hearsay with other constants, %d seeds", s.seeds), 2, []string{
		"workload", "setting", "violated min", "replica-hours", "x oracle", "longest min", "resizes", "turns/h", "late %", "refused %",
	}, rows)
}
