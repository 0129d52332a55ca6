package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hearsay-llm/hearsay/test/bench/chart"
)

// plot draws, per workload, violated minutes over replica-hours for all settings, and
// the sizes over time.
func (s *study) plot(dir string) error {
	for _, c := range s.cells {
		if err := c.plotFront(filepath.Join(dir, "scale-front-"+c.w.name+".svg")); err != nil {
			return err
		}
		if err := c.plotSizes(filepath.Join(dir, "scale-sizes-"+c.w.name+".svg")); err != nil {
			return err
		}
	}
	return nil
}

// plotFront draws the settings that no other of the same rule beats in both.
func (c *cell) plotFront(file string) error {
	base := c.oracle[0].Hours
	line := func(name string, list []outcome) chart.Line {
		l := chart.Line{Name: name, Dots: true}
		for _, o := range list {
			if dominating(list, o) == 0 && o.Hours < 3*base {
				l.Points = append(l.Points, chart.Point{X: o.Hours / base, Y: o.Violated})
			}
		}
		slices.SortFunc(l.Points, func(a, b chart.Point) int {
			switch {
			case a.X < b.X:
				return -1
			case a.X > b.X:
				return 1
			}
			return 0
		})
		return l
	}
	x := chart.Chart{
		Title: fmt.Sprintf("Minutes out of the objective, %s (first seed; best settings of each rule)", c.w.name),
		X:     "replica-hours, as a multiple of the oracle's", Y: "violated minutes",
		Lines: []chart.Line{line("hearsay, defaults", c.hearsay[:1])},
	}
	for _, name := range []string{"HPA", "KPA"} {
		x.Lines = append(x.Lines, line(name, c.sweep[name]))
	}
	if len(c.front) > 0 {
		var front []outcome
		for _, runs := range c.front {
			front = append(front, runs[0])
		}
		x.Lines = append(x.Lines, line("hearsay, other constants", front))
	}
	x.Lines = append(x.Lines, line("oracle", c.oracle[:1]))
	return x.Save(file)
}

// plotSizes draws how many replicas there are; long runs by their days' third.
func (c *cell) plotSizes(file string) error {
	x := chart.Chart{Title: fmt.Sprintf("Replicas that serve, %s (first seed)", c.w.name), X: "time (h)", Y: "replicas"}
	add := func(name string, o outcome) {
		l := chart.Line{Name: name}
		every := max(1, len(o.Series)/700)
		for i := 0; i < min(len(o.Series), 3*24*60); i += every {
			l.Points = append(l.Points, chart.Point{X: float64(i) / 60, Y: o.Series[i].Serving})
		}
		x.Lines = append(x.Lines, l)
	}
	add("hearsay", c.hearsay[0])
	for _, name := range []string{"HPA", "KPA"} {
		if runs := c.best[name]; len(runs) > 0 {
			add(name+", best here", runs[0])
		}
	}
	add("oracle", c.oracle[0])
	return x.Save(file)
}
