package harness

import (
	"cmp"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/state"
)

// ReadingOrder is the order in which routers are to read the engine process at a URL: the
// first one that is live reads it. It is written down a second time here on purpose: routers of
// neighbouring releases have to agree on it without a word.
func ReadingOrder(url string, routers []state.RouterID) []state.RouterID {
	score := func(r state.RouterID) uint64 { return xxh3.HashString(string(r) + "\x00" + url) }
	out := slices.Clone(routers)
	slices.SortFunc(out, func(a, b state.RouterID) int { return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(a, b)) })
	return out
}
