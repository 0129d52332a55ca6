package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// cell is all that was played of one workload.
type cell struct {
	w       *workload
	oracle  []outcome // by seed
	hearsay []outcome
	front   [][]outcome          // hearsay's variants, by seed
	sweep   map[string][]outcome // by family: every setting, first seed
	best    map[string][]outcome // by family: the best setting for this workload, by seed
	overall map[string][]outcome // the best one over all workloads
}

// study plays every workload.
type study struct {
	e        *engine
	seeds    int
	variants []variant
	families []family
	looks    string // directory
	progress io.Writer
	cells    []*cell
}

func (s *study) run(list []*workload) error {
	for _, w := range list {
		began := time.Now()
		c, err := s.sweep(w)
		if err != nil {
			return err
		}
		s.cells = append(s.cells, c)
		fmt.Fprintf(s.progress, "%s: %.0f s\n", w.name, time.Since(began).Seconds())
	}
	s.repeat()
	return nil
}

// sweep plays all settings with the first seed.
func (s *study) sweep(w *workload) (*cell, error) {
	t := newTrial(s.e, w, 1)
	c := &cell{w: w, sweep: map[string][]outcome{}, best: map[string][]outcome{}, overall: map[string][]outcome{}}
	if err := s.own(c); err != nil {
		return nil, err
	}
	for _, f := range s.families {
		list := make([]outcome, len(f.rules))
		together(len(list), func(i int) { list[i] = t.play(f.rules[i]()) })
		c.sweep[f.name] = list
	}
	return c, nil
}

// own plays the oracle, and hearsay with its defaults and in all variants, with all seeds.
func (s *study) own(c *cell) error {
	list := append([]variant{{}}, s.variants...)
	runs := make([][]outcome, len(list)+1) // the last of the oracle
	for i := range runs {
		runs[i] = make([]outcome, s.seeds)
	}
	errs := make([]error, len(runs)*s.seeds)
	together(len(errs), func(i int) {
		at, seed := i/s.seeds, i%s.seeds
		t := newTrial(s.e, c.w, uint64(seed+1))
		t.looks = s.looks
		if at == len(list) {
			runs[at][seed] = t.oracle()
			return
		}
		runs[at][seed], errs[i] = t.hearsay(list[at])
	})
	c.hearsay, c.front, c.oracle = runs[0], runs[1:len(list)], runs[len(list)]
	return errors.Join(errs...)
}

// together does n things, as many at a time as there are processors.
func together(n int, do func(i int)) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

// repeat plays what the tables show with the other seeds.
func (s *study) repeat() {
	if len(s.families) == 0 {
		return
	}
	overall := s.bestOverall()
	for _, c := range s.cells {
		choice := map[string]int{}
		for _, f := range s.families {
			choice[f.name] = best(c.sweep[f.name], c.hearsay[0].Hours)
			c.best[f.name] = append(c.best[f.name], c.sweep[f.name][choice[f.name]])
			c.overall[f.name] = append(c.overall[f.name], c.sweep[f.name][overall[f.name]])
		}
		for seed := 2; seed <= s.seeds; seed++ {
			t := newTrial(s.e, c.w, uint64(seed))
			for _, f := range s.families {
				here := t.play(f.rules[choice[f.name]]())
				c.best[f.name] = append(c.best[f.name], here)
				if overall[f.name] != choice[f.name] {
					here = t.play(f.rules[overall[f.name]]())
				}
				c.overall[f.name] = append(c.overall[f.name], here)
			}
		}
	}
}

// best is the setting with the fewest violated minutes among those that need no more
// replica-hours than given, then with the fewest hours; without any, the cheapest one.
func best(list []outcome, hours float64) (at int) {
	at = -1
	for i, o := range list {
		if o.Hours > hours {
			continue
		}
		if at < 0 || o.Violated < list[at].Violated || o.Violated == list[at].Violated && o.Hours < list[at].Hours {
			at = i
		}
	}
	if at >= 0 {
		return at
	}
	at = 0
	for i, o := range list {
		if o.Hours < list[at].Hours {
			at = i
		}
	}
	return at
}

// bestOverall is best over all workloads: violated minutes as shares of each, hours as
// multiples of the oracle's.
func (s *study) bestOverall() map[string]int {
	sums := map[string][]outcome{}
	limit := 0.0
	for _, c := range s.cells {
		limit += c.hearsay[0].Hours / c.oracle[0].Hours
		for _, f := range s.families {
			if sums[f.name] == nil {
				sums[f.name] = make([]outcome, len(f.rules))
			}
			for i, o := range c.sweep[f.name] {
				sums[f.name][i].Violated += o.Violated / float64(c.w.length/minute)
				sums[f.name][i].Hours += o.Hours / c.oracle[0].Hours
			}
		}
	}
	at := map[string]int{}
	for name, list := range sums {
		at[name] = best(list, limit)
	}
	return at
}

// asGood is the cheapest setting with no more violated minutes than given; nil: none.
func asGood(list []outcome, violated float64) (o *outcome) {
	for i := range list {
		if x := &list[i]; x.Violated <= violated && (o == nil || x.Hours < o.Hours) {
			o = x
		}
	}
	return o
}
