package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
)

// demoEngines names the demo's engines for its live figures: e1, e2, … as they were
// printed, and later ones as they come. Each keeps its name and its place.
type demoEngines struct {
	urls []string // of e1, e2, …
}

func newDemoEngines(pool node.PoolConfig) *demoEngines {
	e := &demoEngines{}
	for _, r := range pool.Replicas {
		e.urls = append(e.urls, r.URL)
	}
	return e
}

// load shows the requests in flight at each engine, - for one that is gone, and tells
// of engines that are new.
func (e *demoEngines) load(v *state.View) (line string, news []string) {
	inFlight := map[string]int64{}
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			if !slices.Contains(e.urls, r.URL) {
				e.urls = append(e.urls, r.URL)
				news = append(news, fmt.Sprintf("e%d is %s", len(e.urls), r.URL))
			}
			inFlight[r.URL] += r.Load().InFlight
		}
	}
	cells := make([]string, len(e.urls))
	for i, url := range e.urls {
		cells[i] = fmt.Sprintf("e%d -", i+1)
		if n, ok := inFlight[url]; ok {
			cells[i] = fmt.Sprintf("e%d %d", i+1, n)
		}
	}
	return strings.Join(cells, ", "), news
}
