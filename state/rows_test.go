package state_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

// fakeTime is a clock that tests move, in milliseconds.
type fakeTime struct{ t time.Time }

func (c *fakeTime) now() time.Time { return c.t }
func (c *fakeTime) advance(ms int) { c.t = c.t.Add(time.Duration(ms) * time.Millisecond) }

func newClockedStore(n int) (*state.Store, *fakeTime) {
	c := &fakeTime{time.Now()}
	s := state.NewStore(state.Config{
		Self: "self", Clock: state.NewClock(99, c.t), Now: c.now,
		Pools: []state.PoolSpec{{Name: "chat", Model: "llama", Aliases: []string{"default"}}},
	})
	c.advance(1000)
	s.SetReplicas(state.SourceStatic, "chat", replicas(n))
	return s, c
}

func inFlight(router int, boot state.BootID, seq uint64, full bool, at ...int64) state.Rows {
	m := state.Rows{Router: routerID(router), Boot: boot, Seq: seq, Full: full}
	for i, n := range at {
		if n >= 0 {
			m.Rows = append(m.Rows, state.Row{Replica: replicaID(i), Load: state.Load{InFlight: n}})
		}
	}
	return m
}

func others(s *state.Store) (at []int64) {
	for _, r := range s.View().Pools[0].Replicas {
		at = append(at, r.Others.InFlight)
	}
	return at
}

func TestRowsInSequence(t *testing.T) {
	type step struct {
		rows state.Rows
		news bool
	}
	f := func(name string, want []int64, steps ...step) {
		t.Helper()
		s, _ := newClockedStore(3)
		for i, st := range steps {
			if got := s.ApplyRows(st.rows); got != st.news {
				t.Errorf("%s: message %d: news %v, want %v", name, i, got, st.news)
			}
		}
		if got := others(s); !slices.Equal(got, want) {
			t.Errorf("%s: others %v, want %v", name, got, want)
		}
	}
	f("a full message", []int64{1, 2, 3},
		step{inFlight(1, 7, 1, true, 1, 2, 3), true})
	f("a delta changes what it names", []int64{1, 5, 3},
		step{inFlight(1, 7, 1, true, 1, 2, 3), true}, step{inFlight(1, 7, 2, false, -1, 5), true})
	f("a full message clears what it doesn't name", []int64{0, 5, 0},
		step{inFlight(1, 7, 1, true, 1, 2, 3), true}, step{inFlight(1, 7, 2, true, -1, 5), true})
	f("a zero row takes away", []int64{0, 2, 3},
		step{inFlight(1, 7, 1, true, 1, 2, 3), true}, step{inFlight(1, 7, 2, false, 0), true})
	f("repeated and overtaken messages are no news", []int64{9, 2, 3},
		step{inFlight(1, 7, 2, true, 9, 2, 3), true}, step{inFlight(1, 7, 2, true, 1, 1, 1), false},
		step{inFlight(1, 7, 1, true, 4, 4, 4), false})
	f("two routers add up", []int64{3, 5, 3},
		step{inFlight(1, 7, 1, true, 1, 2, 3), true}, step{inFlight(2, 8, 1, true, 2, 3), true})
	f("a higher sequence of one router hides nothing of another", []int64{3, 0, 0},
		step{inFlight(1, 7, 900, true, 1), true}, step{inFlight(2, 8, 1, true, 2), true})
	f("a restart begins anew, at a lower sequence", []int64{0, 4, 0},
		step{inFlight(1, 7, 50, true, 1, 2, 3), true}, step{inFlight(1, 8, 1, false, -1, 4), true})
	f("a late message of the boot before is no news", []int64{0, 4, 0},
		step{inFlight(1, 7, 50, true, 1, 2, 3), true}, step{inFlight(1, 8, 1, true, -1, 4), true},
		step{inFlight(1, 7, 51, true, 9, 9, 9), false})
	f("our own rows come from nobody else", []int64{0, 0, 0},
		step{state.Rows{Router: "self", Boot: 1, Seq: 1, Rows: []state.Row{{Replica: replicaID(0), Load: state.Load{InFlight: 1}}}}, false})
	f("absurd rows stay within bounds", []int64{0, 1 << 48, 0},
		step{inFlight(1, 7, 1, true, -1, 1<<62), true},
		step{state.Rows{Router: routerID(1), Boot: 7, Seq: 2, Rows: []state.Row{{Replica: replicaID(0), Load: state.Load{InFlight: -4, Prefill: 3, UncachedTokens: -1}}}}, true})
}

// A boot that was taken for over lives, and the one after it was not its router's:
// once that is said, it counts again, the other one does not.
func TestRowsOfABootThatIsReinstated(t *testing.T) {
	s, _ := newClockedStore(3)
	f := func(m state.Rows, news bool, want ...int64) {
		t.Helper()
		if got := s.ApplyRows(m); got != news {
			t.Errorf("boot %v: news %v", m.Boot, got)
		}
		if got := others(s); !slices.Equal(got, want) {
			t.Errorf("boot %v: others %v, want %v", m.Boot, got, want)
		}
	}
	reinstate := func(router int, boot state.BootID, want bool) {
		t.Helper()
		if got := s.Reinstate(routerID(router), boot); got != want {
			t.Errorf("boot %v of router %d was over: %v", boot, router, got)
		}
	}
	reinstate(1, 7, false) // unheard of
	f(inFlight(1, 7, 50, true, 1, 2, 3), true, 1, 2, 3)
	reinstate(1, 7, false)
	f(inFlight(1, 8, 9, true, -1, 4), true, 0, 4, 0)
	f(inFlight(1, 7, 51, true, 1, 2, 3), false, 0, 4, 0)
	reinstate(2, 7, false)
	reinstate(1, 0, false)
	reinstate(1, 7, true)
	f(inFlight(1, 7, 51, true, 1, 2, 3), true, 1, 2, 3)
	f(inFlight(1, 8, 10, true, -1, 4), false, 1, 2, 3)
}

func TestRowsOfARouterThatIsGone(t *testing.T) {
	s, c := newClockedStore(2)
	s.ApplyRows(inFlight(1, 7, 5, true, 1, 1))
	s.ApplyRows(inFlight(2, 8, 5, true, 2, 2))
	c.advance(1500)
	s.ApplyRows(inFlight(2, 8, 6, false, 3))
	c.advance(1000)
	if got := s.DropSilent(c.now().Add(-2 * time.Second)); !slices.Equal(got, []state.RouterID{routerID(1)}) {
		t.Fatalf("dropped %v", got)
	}
	if got := others(s); !slices.Equal(got, []int64{3, 2}) {
		t.Errorf("others %v after router 1 fell silent", got)
	}
	if v := s.View(); len(v.Routers) != 1 || v.Routers[0].ID != routerID(2) {
		t.Errorf("routers %v", v.Routers)
	}
	if got := s.DropSilent(c.now().Add(-2 * time.Second)); got != nil {
		t.Errorf("dropped %v again", got)
	}
	if s.ApplyRows(inFlight(1, 7, 5, true, 9, 9)) {
		t.Error("a message from before the silence was news")
	}
	if !s.ApplyRows(inFlight(1, 7, 6, true, 4, 0)) {
		t.Error("the router came back and was not believed")
	}
	if got := others(s); !slices.Equal(got, []int64{7, 2}) {
		t.Errorf("others %v after it came back", got)
	}
	s.DropRouter(routerID(1))
	s.DropRouter("nobody")
	if got := others(s); !slices.Equal(got, []int64{3, 2}) {
		t.Errorf("others %v after it left", got)
	}
}

func TestRowsBeforeTheReplicaIsListed(t *testing.T) {
	s, _ := newClockedStore(1)
	s.ApplyRows(inFlight(1, 7, 1, true, 1, 2))
	s.SetReplicas(state.SourceStatic, "chat", replicas(2))
	if got := others(s); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("others %v, want the row that came first to count", got)
	}
	if got := s.View().Routers[0].InFlight(replicaID(1)); got != 2 {
		t.Errorf("router has %d in flight there, want 2", got)
	}
}

func TestRouterViewShowsItsOwnRows(t *testing.T) {
	s, _ := newClockedStore(2)
	m := inFlight(1, 7, 1, true, 3, 4)
	m.FactsIndex = 17
	s.ApplyRows(m)
	s.ApplyRows(inFlight(2, 8, 1, true, 5))
	old := s.View()
	s.ApplyRows(inFlight(1, 7, 2, false, 0))
	r := &old.Routers[0]
	if r.InFlight(replicaID(0)) != 3 || r.InFlight("nobody") != 0 || r.Total.InFlight != 7 || r.FactsIndex != 17 || r.Boot != 7 {
		t.Errorf("router %+v", r)
	}
	if old.Routers[1].InFlight(replicaID(0)) != 5 || old.Routers[1].InFlight(replicaID(1)) != 0 {
		t.Error("router 2's rows are wrong")
	}
	if s.View().Routers[0].InFlight(replicaID(0)) != 0 {
		t.Error("the new view shows the old row")
	}
	if new(state.RouterView).InFlight(replicaID(0)) != 0 {
		t.Error("a RouterView outside a View has load")
	}
}

func TestFailuresTravelWithRows(t *testing.T) {
	s, _ := newClockedStore(2)
	s.ApplyRows(state.Rows{Router: "a", Boot: 1, Seq: 1, Rows: []state.Row{{Replica: replicaID(0), Failures: 3}}})
	s.ApplyRows(state.Rows{Router: "b", Boot: 2, Seq: 1, Rows: []state.Row{{Replica: replicaID(0), Failures: 2}}})
	if got := s.View().Replica(replicaID(0)).OthersFailures; got != 5 {
		t.Errorf("others' failures %d, want 5", got)
	}
	s.ApplyRows(state.Rows{Router: "a", Boot: 1, Seq: 2, Rows: []state.Row{{Replica: replicaID(0)}}})
	if got := s.View().Replica(replicaID(0)).OthersFailures; got != 2 {
		t.Errorf("others' failures %d after a's success, want 2", got)
	}
	version := s.View().Replica(replicaID(1)).Cell.Version()
	s.SetWeights(&state.Weights{Replicas: map[state.ReplicaID]state.Weight{replicaID(1): {Slow: 1, Failures: 4}}})
	<-s.Changed()
	if s.View().Replica(replicaID(1)).Cell.Version() == version {
		t.Error("own failures changed, and the cell's version did not")
	}
	if rows := s.OwnRows(nil); len(rows) != 1 || rows[0].Failures != 4 || rows[0].Replica != replicaID(1) {
		t.Errorf("own rows %+v", rows)
	}
}

func TestBoundsOfRowsAreCounted(t *testing.T) {
	s, _ := newClockedStore(1)
	rows := make([]state.Row, state.MaxRows+3)
	for i := range rows {
		rows[i] = state.Row{Replica: state.ReplicaID(fmt.Sprint(i)), Load: state.Load{InFlight: 1}}
	}
	s.ApplyRows(state.Rows{Router: "a", Boot: 1, Seq: 1, Rows: rows})
	if got := s.Dropped().Rows; got != 3 {
		t.Errorf("%d rows dropped, want 3", got)
	}
	s.Batch(func() {
		for i := range state.MaxRouters + 1 {
			s.ApplyRows(inFlight(i+100, 1, 1, true, 1))
		}
	})
	if got := s.Dropped().Routers; got != 2 {
		t.Errorf("%d routers dropped, want 2", got)
	}
	s.DropRouter(routerID(100))
	if !s.ApplyRows(inFlight(9999, 1, 1, true, 1)) {
		t.Error("a router that is gone should make room")
	}
}

// Whatever comes in whatever order, the View is what a plain model of the rules
// says, and a View taken before does not change.
func TestRowsAgreeWithAModel(t *testing.T) {
	const nReplicas, nRouters = 4, 3
	type modelRouter struct {
		boot    state.BootID
		retired map[state.BootID]bool
		seq     uint64
		rows    map[state.ReplicaID]int64
	}
	rapid.Check(t, func(t *rapid.T) {
		s, c := newClockedStore(nReplicas)
		model := map[state.RouterID]*modelRouter{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			c.advance(rapid.IntRange(0, 30).Draw(t, "ms"))
			id := rapid.IntRange(0, nRouters-1).Draw(t, "router")
			before, sum := s.View(), others(s)
			if rapid.IntRange(0, 9).Draw(t, "drop") == 0 {
				s.DropRouter(routerID(id))
				if r := model[routerID(id)]; r != nil {
					r.rows = map[state.ReplicaID]int64{}
				}
			} else {
				m := state.Rows{
					Router: routerID(id), Boot: state.BootID(rapid.IntRange(1, 3).Draw(t, "boot")),
					Seq: uint64(rapid.IntRange(1, 20).Draw(t, "seq")), Full: rapid.Bool().Draw(t, "full"),
				}
				for _, k := range rapid.SliceOfNDistinct(rapid.IntRange(0, nReplicas-1), 0, nReplicas, rapid.ID).Draw(t, "named") {
					m.Rows = append(m.Rows, state.Row{Replica: replicaID(k), Load: state.Load{InFlight: int64(rapid.IntRange(0, 3).Draw(t, "n"))}})
				}
				r := model[m.Router]
				if r == nil {
					r = &modelRouter{boot: m.Boot, retired: map[state.BootID]bool{}, rows: map[state.ReplicaID]int64{}}
					model[m.Router] = r
				}
				news := true
				switch {
				case r.boot != m.Boot && r.retired[m.Boot]:
					news = false
				case r.boot != m.Boot:
					r.retired[r.boot] = true
					r.boot, r.seq, r.rows = m.Boot, m.Seq, map[state.ReplicaID]int64{}
				case m.Seq <= r.seq:
					news = false
				}
				if news {
					r.seq = m.Seq
					if m.Full {
						r.rows = map[state.ReplicaID]int64{}
					}
					for _, row := range m.Rows {
						r.rows[row.Replica] = row.InFlight
					}
				}
				if got := s.ApplyRows(m); got != news {
					t.Fatalf("news %v, want %v: %+v", got, news, m)
				}
			}
			want := make([]int64, nReplicas)
			for _, r := range model {
				for k := range want {
					want[k] += r.rows[replicaID(k)]
				}
			}
			if got := others(s); !slices.Equal(got, want) {
				t.Fatalf("others %v, want %v", got, want)
			}
			for k, r := range before.Pools[0].Replicas {
				if r.Others.InFlight != sum[k] {
					t.Fatalf("a published view changed: %v", r)
				}
				total := int64(0)
				for i := range before.Routers {
					total += before.Routers[i].InFlight(r.ID)
				}
				if total != sum[k] {
					t.Fatalf("routers' rows sum to %d, others say %d", total, sum[k])
				}
			}
		}
	})
}
