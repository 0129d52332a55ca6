package node

import (
	"fmt"
	"slices"
	"strings"
)

// fallbacks reports pools that fall back to what is no other pool, and loops. Only the
// pools that a pool names itself are asked in its place, but a loop is always a mistake.
func (c *Config) fallbacks(v *faults) {
	to := map[string][]string{}
	for i := range c.Pools {
		to[c.Pools[i].Name] = c.Pools[i].Fallback
	}
	told := map[string]bool{} // loops, by their pools
	for i := range c.Pools {
		p := &c.Pools[i]
		for j, name := range p.Fallback {
			key := fmt.Sprintf("pools[%d].fallback[%d]", i, j)
			_, known := to[name]
			switch {
			case !known:
				v.add(key, "%q is no pool: name another pool of this file", name)
			case name == p.Name:
				v.add(key, "%q is the pool itself: name another one", name)
			case slices.Index(p.Fallback, name) < j:
				v.add(key, "%q stands twice", name)
			default:
				loop := findLoop(to, []string{p.Name, name})
				pools := slices.Sorted(slices.Values(loop))
				if sum := strings.Join(slices.Compact(pools), "\n"); loop != nil && !told[sum] {
					told[sum] = true
					v.add(key, "leads back to the pool: %s", strings.Join(loop, " -> "))
				}
			}
		}
	}
}

// findLoop is the first way on from the end of a path that comes back to its start, as
// pools' names, both ends included; nil if there is none.
func findLoop(to map[string][]string, path []string) []string {
	for _, next := range to[path[len(path)-1]] {
		if next == path[0] {
			return append(path, next)
		}
		if slices.Contains(path, next) {
			continue // a loop of others
		}
		if loop := findLoop(to, append(slices.Clip(path), next)); loop != nil {
			return loop
		}
	}
	return nil
}
