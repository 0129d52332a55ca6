package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
)

// demoEngines are the demo's engines in its live figures: those that were printed, and
// later ones as they come. Each keeps its place.
type demoEngines struct {
	urls []string
}

func newDemoEngines(pool node.PoolConfig) *demoEngines {
	e := &demoEngines{}
	for _, r := range pool.Replicas {
		e.urls = append(e.urls, r.URL)
	}
	return e
}

// load shows the requests in flight at each engine, - for one that is gone. Engines go
// by their ports: all are on one host.
func (e *demoEngines) load(v *state.View) string {
	inFlight := map[string]int64{}
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			if !slices.Contains(e.urls, r.URL) {
				e.urls = append(e.urls, r.URL)
			}
			inFlight[r.URL] += r.Load().InFlight
		}
	}
	cells := make([]string, len(e.urls))
	for i, url := range e.urls {
		port := url[strings.LastIndexByte(url, ':'):]
		cells[i] = port + " -"
		if n, ok := inFlight[url]; ok {
			cells[i] = fmt.Sprintf("%s %d", port, n)
		}
	}
	return strings.Join(cells, ", ")
}
