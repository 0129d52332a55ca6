package node

import (
	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Lessons is what a node joins calibration and gossip with, for those who join a
// router's parts without a node: test/bench/sim.
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
