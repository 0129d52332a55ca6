package consensus

import (
	"maps"

	"github.com/hearsay-llm/hearsay/state"
)

// maxPools bounds the pools of the committed configuration; maxDigest a digest.
const (
	maxPools  = 1024
	maxDigest = 64
)

// setConfig commits which configuration of the pools the routers run. Its revision
// counts changes.
func setConfig(f *state.Facts, c *state.Command) *state.Refusal {
	if len(c.Pools) == 0 || len(c.Pools) > maxPools {
		return refuse(state.RefusedInvalid, "a configuration has 1 to %d pools", maxPools)
	}
	for name, d := range c.Pools {
		if name == "" || d == "" || len(name) > maxText || len(d) > maxDigest {
			return refuse(state.RefusedInvalid, "a pool has a name and a digest of %d bytes at most", maxDigest)
		}
	}
	if f.Config.Is(c.Pools) {
		return nil
	}
	f.Config = state.ConfigMark{Revision: f.Config.Revision + 1, Pools: maps.Clone(c.Pools)}
	return nil
}
