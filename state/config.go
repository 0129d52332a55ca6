package state

import "maps"

// ConfigMark names the pools' configuration that the routers have agreed to run. What
// is in it stands in their files.
type ConfigMark struct {
	Revision uint64            // from 1 on, one more at each change; 0: none is agreed yet
	Pools    map[string]string // digest of each pool's configuration, by name
}

// Differs names the pools whose configuration is another one than agreed, or that only
// one side has.
func (m *ConfigMark) Differs(pools map[string]string) map[string]bool {
	out := map[string]bool{}
	for name, d := range pools {
		if m.Pools[name] != d {
			out[name] = true
		}
	}
	for name := range m.Pools {
		if _, ok := pools[name]; !ok {
			out[name] = true
		}
	}
	return out
}

// Is reports whether the configuration is the one that is agreed.
func (m *ConfigMark) Is(pools map[string]string) bool {
	return m.Revision > 0 && maps.Equal(m.Pools, pools)
}
