package state_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// adapterWorld is a store with two pools, of which the first in name order stands
// second in the file.
type adapterWorld struct {
	t     *testing.T
	now   time.Time
	store *state.Store
}

func newAdapterWorld(t *testing.T) *adapterWorld {
	w := &adapterWorld{t: t, now: time.Now()}
	w.store = state.NewStore(state.Config{
		Self: "self", Clock: state.NewClock(1, w.now), Now: func() time.Time { return w.now },
		Pools: []state.PoolSpec{{Name: "z", Model: "llama", Aliases: []string{"fast"}}, {Name: "b", Model: "qwen", UpstreamModel: "org/qwen"}},
	})
	w.store.SetReplicas(state.SourceStatic, "z", []state.Replica{{ID: "z1"}, {ID: "z2"}})
	w.store.SetReplicas(state.SourceStatic, "b", []state.Replica{{ID: "b1"}})
	return w
}

func (w *adapterWorld) read(id state.ReplicaID, change func(*state.Reading)) {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	r := state.UnknownReading(id)
	r.OK, r.Reader, r.At = true, "self", w.store.Clock().Stamp(w.now)
	change(&r)
	if !w.store.ApplyReading(r) {
		w.t.Fatal("no news")
	}
}

func lists(names ...string) func(*state.Reading) {
	return func(r *state.Reading) { r.Adapters, r.AdaptersSum = names, state.SumAdapters(names) }
}

// Names are resolved by one rule, whatever happens to readings.
func TestC73NamesOfAdapters(t *testing.T) {
	w := newAdapterWorld(t)
	f := func(model, pool, adapter string) {
		t.Helper()
		p, a := w.store.View().Resolve(model)
		got := ""
		if p != nil {
			got = p.Spec.Name
		}
		if got != pool || a != adapter {
			t.Errorf("%q: pool %q, adapter %q, want %q, %q", model, got, a, pool, adapter)
		}
	}
	f("a1", "", "")
	w.read("b1", lists("a1", "fast", "org/A b:c", "z"))
	f("a1", "b", "a1")
	f("A1", "", "")
	f(" a1", "", "")
	f("org/A b:c", "b", "org/A b:c")
	f("org/A", "", "")
	f("llama", "z", "")
	f("fast", "z", "") // an alias wins
	f("z", "z", "")    // a pool's own name, too
	w.read("z2", lists("a1"))
	f("a1", "z", "a1") // the pool that stands first in the file
	w.read("z2", func(r *state.Reading) { r.OK, r.Err = false, "timed out" })
	f("a1", "z", "a1") // a lost reading is no lost adapter
	w.read("z2", func(r *state.Reading) { r.AdaptersSum = state.SumAdapters([]string{"a1"}) })
	f("a1", "z", "a1") // unchanged, by its sum
	w.read("z2", func(r *state.Reading) { r.AdaptersSum = 7 })
	f("a1", "z", "a1") // changed: the list is yet to come
	w.read("z2", func(*state.Reading) {})
	f("a1", "z", "a1") // of a router that knows nothing of lists
	w.read("z2", lists())
	f("a1", "b", "a1")
	w.store.SetReplicas(state.SourceStatic, "b", nil)
	f("a1", "", "")
}

// What is in an engine's slots is what ran there last.
func TestAdaptersInSlots(t *testing.T) {
	w := newAdapterWorld(t)
	f := func(want []string, change func(*state.Reading)) {
		t.Helper()
		w.read("z1", change)
		if got := w.store.View().Replica("z1").Loaded; !slices.Equal(got, want) {
			t.Errorf("loaded %q, want %q", got, want)
		}
	}
	runs := func(slots int, started float64, names ...string) func(*state.Reading) {
		return func(r *state.Reading) { r.AdapterSlots, r.AdaptersRunning, r.Started = slots, names, started }
	}
	f([]string{"a"}, runs(2, 1e9, "a"))
	f([]string{"b", "a"}, runs(2, 1e9, "b"))
	f([]string{"b", "a"}, runs(2, 1e9))
	f([]string{"c", "b"}, runs(2, 1e9, "c", "b"))
	f([]string{"a", "c"}, runs(2, 1e9, "a"))
	f([]string{"a", "c"}, func(r *state.Reading) { r.OK = false })
	f(nil, runs(2, 1e9+60))
	f([]string{"a"}, runs(1, 1e9+60, "a", "b"))
	f(nil, func(r *state.Reading) { r.OK, r.Refused = false, true })
	f(nil, runs(0, 1e9+60, "a"))
}

// Adapters of other models are nobody's.
func TestAdaptersOfAPoolsModel(t *testing.T) {
	spec := state.PoolSpec{Model: "m", UpstreamModel: "org/m"}
	f := func(kind state.EngineKind, models []string, want ...string) {
		t.Helper()
		r := state.Reading{Kind: kind, Models: models, Adapters: []string{"b", "a", "c", "a", "org/m"}, AdapterParents: []string{"org/m", "m", "other", "m", "x"}}
		if got := spec.AdaptersOf(&r); !slices.Equal(got, want) {
			t.Errorf("%s %q: %q, want %q", kind, models, got, want)
		}
	}
	f(state.EngineVLLM, []string{"m", "org/m"}, "a", "b", "c")
	f(state.EngineVLLM, []string{"other"})
	f(state.EngineSGLang, nil, "a", "b", "c")
	f(state.EngineOpenAI, []string{"org/m", "other"}, "b")
}
