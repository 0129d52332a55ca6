package autoscale

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// held is what replicas hold: tokens by prefix.
type held map[state.ReplicaID]map[string]int

// unique is Config.Unique over them.
func (h held) unique(id state.ReplicaID, gone []state.ReplicaID) (n int) {
	for prefix, tokens := range h[id] {
		shared := false
		for other, list := range h {
			if _, has := list[prefix]; has && other != id && !slices.Contains(gone, other) {
				shared = true
			}
		}
		if !shared {
			n += tokens
		}
	}
	return n
}

func TestVictims(t *testing.T) {
	f := func(name string, n int, h held, spoil func(w *world), named []state.ReplicaID, want ...state.ReplicaID) {
		t.Helper()
		w := grown(t, 3)
		w.loop.cfg.Unique = h.unique
		if spoil != nil {
			spoil(w)
		}
		if got := w.loop.victims(w.View(), w.act.actual(), named, nil, n); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	const k = 1000
	busy := func(w *world) { w.load("fake:1", 5); w.load("fake:2", 1); w.load("fake:3", 5) }
	own := held{"fake:1": {"a": 90 * k}, "fake:2": {"b": 50 * k}, "fake:3": {"c": 70 * k}}
	f("the fewest unique tokens", 1, own, nil, nil, "fake:2")
	f("shared ones do not count", 1, held{"fake:1": {"s": 90 * k}, "fake:2": {"b": 50 * k}, "fake:3": {"s": 90 * k, "c": 9 * k}}, nil, nil, "fake:1")
	f("unique tokens before running work", 1, held{"fake:1": {"s": 90 * k}, "fake:2": {"b": 50 * k}, "fake:3": {"s": 90 * k, "c": 9 * k}}, busy, nil, "fake:1")
	f("then the least running work", 1, held{"fake:1": {"s": 90 * k}, "fake:2": {"s": 90 * k}, "fake:3": {"s": 90 * k}}, busy, nil, "fake:2")
	f("a few tokens are no reason", 1, held{"fake:1": {"a": 100}, "fake:2": {"b": 900}, "fake:3": {"c": 500}}, busy, nil, "fake:2")
	f("nothing is known: the least running work", 1, nil, busy, nil, "fake:2")
	f("one that is not ready goes first", 1, own, func(w *world) { w.act.instances[0].since = w.now }, nil, "fake:1")
	f("one that was named goes before that", 1, own, func(w *world) { w.act.instances[0].since = w.now }, []state.ReplicaID{"fake:3"}, "fake:3")
	// Each of two holds what the other does: the second to go would take it along.
	f("of two that hold the same one goes", 2, held{"fake:1": {"s": 90 * k}, "fake:2": {"s": 90 * k}, "fake:3": {"c": 60 * k}}, nil, nil, "fake:1", "fake:3")
	f("more than there are", 5, own, nil, nil, "fake:2", "fake:3", "fake:1")
}

// What one that leaves holds is no more: it saves nobody.
func TestVictimsBesideOneThatLeaves(t *testing.T) {
	w := grown(t, 3)
	h := held{"fake:1": {"s": 90000}, "fake:2": {"s": 90000}, "fake:3": {"c": 60000}}
	w.loop.cfg.Unique = h.unique
	a := w.act.actual()
	a.Instances = a.Instances[1:]
	if got := w.loop.victims(w.View(), a, nil, []state.ReplicaID{"fake:1"}, 1); !slices.Equal(got, []state.ReplicaID{"fake:3"}) {
		t.Errorf("%v", got)
	}
}

// An idle pool shrinks by the replica whose prefixes others hold, too, and keeps what
// only one has for as long as it can.
func TestSharedPrefixesGoBeforeUniqueOnes(t *testing.T) {
	w := grown(t, 4)
	h := held{
		"fake:1": {"handbook": 30000}, "fake:2": {"handbook": 30000, "alone": 20000},
		"fake:3": {"other": 40000}, "fake:4": {"handbook": 30000},
	}
	w.loop.cfg.Unique = func(id state.ReplicaID, gone []state.ReplicaID) int {
		for x := range h {
			if w.View().Replica(x) == nil {
				delete(h, x)
			}
		}
		return h.unique(id, gone)
	}
	var order []string
	for to := 3; to >= 1; to-- {
		w.until(20*time.Minute, fmt.Sprint("down to ", to), func() bool { return w.target() == to && w.settled() })
		d := w.facts.LastDecision(chat)
		order = append(order, fmt.Sprint(d.Victims))
	}
	if want := []string{"[fake:1]", "[fake:4]", "[fake:3]"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}
