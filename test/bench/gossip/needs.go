package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// term is a part of a linear formula.
type term struct {
	name string
	of   func(*figures) float64
}

var (
	// cpuTerms make a router's use of processors in a second: its own clocks, its
	// clients' requests, asking engines, what it tells (and is told, which is as much),
	// and waking up, which what comes within the same few milliseconds shares.
	cpuTerms = []term{
		{"a router that does nothing", func(*figures) float64 { return 1 }},
		{"a request of its clients", func(f *figures) float64 { return f.Requests }},
		{"a reading that it takes", (*figures).readings},
		{"a kB that it sends to others", (*figures).kilobytes},
		{"a turn (a 300th of a second in which there is something to do; a 100th without requests)", (*figures).turns},
	}
	// memoryTerms make its heap and stacks.
	memoryTerms = []term{
		{"a router", func(*figures) float64 { return 1 }},
		{"a replica", func(f *figures) float64 { return float64(f.Replicas) }},
	}
)

// readings is how many it is predicted to take in a second.
func (f *figures) readings() float64 {
	s := f.size(f.Requests)
	return s.Readings()
}

// kilobytes is how many it is predicted to send in a second.
func (f *figures) kilobytes() float64 {
	p := f.predicted()
	return p.Total() / 1e3
}

const (
	turns     = 300 // a second, at most
	idleTurns = 100 // without requests: what else is told is gathered for 10 ms
	ownTimes  = 3   // of a request at its own router: begin, first token, end
)

// turns are the parts of a second in which there is something to do, if what there is
// (its own requests' events, readings, records of the others) comes at random.
func (f *figures) turns() float64 {
	p := f.predicted()
	events := ownTimes*f.Requests + f.readings() + p.Seals/seal
	most := float64(turns)
	if f.Requests == 0 {
		most = idleTurns
	}
	return most * -math.Expm1(-events/most)
}

// fit finds the least squares of relative errors over the cells for fitting.
func fit(list []figures, terms []term, get func(*figures) float64) ([]float64, error) {
	var a, b []float64
	for i := range list {
		f := &list[i]
		if f.Set != fitSet {
			continue
		}
		y := get(f)
		for _, t := range terms {
			a = append(a, t.of(f)/y)
		}
		b = append(b, 1)
	}
	if len(b) < len(terms) {
		return nil, fmt.Errorf("%d cells for %d terms", len(b), len(terms))
	}
	var x mat.Dense
	if err := x.Solve(mat.NewDense(len(b), len(terms), a), mat.NewDense(len(b), 1, b)); err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	return mat.Col(nil, 0, &x), nil
}

// showLinear tells how a linear formula fits.
func showLinear(w io.Writer, title, what, unit string, per float64, list []figures, terms []term, get func(*figures) float64) error {
	x, err := fit(list, terms, get)
	if err != nil {
		return err
	}
	predict := func(f *figures) (sum float64) {
		for i, t := range terms {
			sum += x[i] * t.of(f)
		}
		return sum
	}
	var rows [][]string
	for i := range list {
		f := &list[i]
		m, p := get(f), predict(f)
		rows = append(rows, append(f.names(), table.Num(m/per), table.Num(p/per), fmt.Sprintf("%.2f", m/p)))
	}
	table.Print(w, title, 1, append(slices.Clone(names), unit, "predicted", "measured / predicted"), rows)
	fmt.Fprintln(w)
	for i, t := range terms {
		fmt.Fprintf(w, "- %s: %s %s\n", t.name, table.Num(x[i]/per), unit)
	}
	showErrors(w, what, list, func(f *figures) (float64, float64) { return get(f), predict(f) })
	return nil
}
