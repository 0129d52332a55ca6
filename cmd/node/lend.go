package node

import (
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/cluster/observe"
	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// What is exported here joins a router's parts for those who do so without a node:
// test/bench/sim and test/bench/gossip.

// Lessons is what a node joins calibration and gossip with.
type Lessons = lessons

// NewLessons returns the joint of these parts; without sharing nothing is kept for
// other routers.
func NewLessons(store *state.Store, cal *routing.Calibration, ratios *prefix.Ratios, sharing bool) *Lessons {
	return newLessons(store, cal, ratios, sharing)
}

// Mute is what a node gives gossip when sharing is switched off: membership works,
// and nothing is told or learned.
func Mute(store *state.Store) (gossip.Store, gossip.Index) {
	bounds := sketch.Bounds{Entries: 1, Journal: 1}
	return muteStore{store}, muteIndex{sketch.New(sketch.Config{Clock: store.Clock(), Slots: store.SlotOf, Bounds: bounds})}
}

// Shared is the store as gossip writes it: note, which is observe.Loop.Note, is told
// of others' readings that were news.
func Shared(store *state.Store, note func(r state.Reading, now time.Time)) gossip.Store {
	return sharedStore{store, note}
}

// Caches takes what readings say of engines' caches to the index.
func Caches(index *sketch.Index, clock *state.Clock) observe.Cache { return caches{index, clock} }

// Reporter takes the proxy's outcomes to the balance loop.
func Reporter(loop *balance.Loop) proxy.Reporter { return reporter{loop} }
