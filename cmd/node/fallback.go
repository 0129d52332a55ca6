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
				loop := findLoop(to, p.Name, name)
				pools := slices.Sorted(slices.Values(loop))
				if sum := strings.Join(slices.Compact(pools), "\n"); loop != nil && !told[sum] {
					told[sum] = true
					v.add(key, "leads back to the pool: %s", strings.Join(loop, " -> "))
				}
			}
		}
	}
}

// findLoop is the shortest way from a pool by way of next back to itself, as pools'
// names, both ends included; nil if there is none.
func findLoop(to map[string][]string, pool, next string) []string {
	before := map[string]string{next: pool}
	for queue := []string{next}; len(queue) > 0; queue = queue[1:] {
		for _, name := range to[queue[0]] {
			if name == pool {
				way := []string{pool}
				for at := queue[0]; at != pool; at = before[at] {
					way = append(way, at)
				}
				slices.Reverse(way)
				return append([]string{pool}, way...)
			}
			if _, seen := before[name]; !seen {
				before[name] = queue[0]
				queue = append(queue, name)
			}
		}
	}
	return nil
}
