package main

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/test/bench/chart"
)

// plot draws every router's resident memory, and the heap of the first, over time.
func (run *uniqueRun) plot(file string) error {
	line := func(name string, get func(sample) float64) chart.Line {
		l := chart.Line{Name: name}
		for _, s := range run.Samples {
			l.Points = append(l.Points, chart.Point{X: s.At, Y: get(s) / 1e6})
		}
		return l
	}
	c := chart.Chart{
		Title: fmt.Sprintf("Memory of %d routers over %d unique prompts", run.Routers, run.Prompts),
		X:     "time (s): load, idle, replicas removed", Y: "memory (MB)",
	}
	for i := range run.Routers {
		c.Lines = append(c.Lines, line(fmt.Sprintf("RSS, router %d", i+1), func(s sample) float64 { return s.Routers[i].RSS }))
	}
	c.Lines = append(c.Lines, line("heap, router 1", func(s sample) float64 { return s.Routers[0].Heap }))
	return c.Save(file)
}
