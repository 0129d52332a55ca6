package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/replay"
)

// demoEngines are the demo's engines in its live figures: those that were printed, and
// later ones as they come. Each keeps its place until it has been gone for a while.
type demoEngines struct {
	list []demoEngine
}

type demoEngine struct {
	url  string
	seen time.Time // when it was last listed; zero: never
}

// goneShown is how long an engine that is gone is shown.
const goneShown = 30 * time.Second

func newDemoEngines(pool node.PoolConfig) *demoEngines {
	e := &demoEngines{}
	for _, r := range pool.Replicas {
		e.list = append(e.list, demoEngine{url: r.URL})
	}
	return e
}

// load shows the requests in flight at each engine: all with - for one that is gone,
// here without those. Engines go by their ports: all are on one host.
func (e *demoEngines) load(v *state.View, now time.Time) (all, here string) {
	inFlight := map[string]int64{}
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			i := slices.IndexFunc(e.list, func(x demoEngine) bool { return x.url == r.URL })
			if i < 0 {
				i = len(e.list)
				e.list = append(e.list, demoEngine{url: r.URL})
			}
			e.list[i].seen = now
			inFlight[r.URL] += r.Load().InFlight
		}
	}
	e.list = slices.DeleteFunc(e.list, func(x demoEngine) bool { return now.Sub(x.seen) >= goneShown })
	var every, present []string
	for _, x := range e.list {
		port := x.url[strings.LastIndexByte(x.url, ':'):]
		n, ok := inFlight[x.url]
		if !ok {
			every = append(every, port+" -")
			continue
		}
		cell := fmt.Sprintf("%s %d", port, n)
		every, present = append(every, cell), append(present, cell)
	}
	return strings.Join(every, ", "), strings.Join(present, ", ")
}

// leastFigures is the width that the figures of the chats keep beside many engines.
const leastFigures = 40

// fitDemo is demo's line in so many columns: engines that are gone are left out first,
// then the least telling figures.
func fitDemo(s replay.Snapshot, all, here string, width int) string {
	for _, load := range []string{all, here} {
		if line := s.String() + " | in flight: " + load; len(line) <= width {
			return line
		}
	}
	load := " | " + here
	return s.Fit(max(leastFigures, width-len(load))) + load
}
