package observe

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/hearsay-llm/hearsay/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines is a Reader whose replicas may hang, and that counts readings.
type engines struct {
	mu    sync.Mutex
	hang  map[state.ReplicaID]bool
	dead  map[state.ReplicaID]bool
	next  map[state.ReplicaID]state.Reading
	count map[state.ReplicaID]int
}

func newEngines() *engines {
	return &engines{
		hang: map[state.ReplicaID]bool{}, dead: map[state.ReplicaID]bool{},
		next: map[state.ReplicaID]state.Reading{}, count: map[state.ReplicaID]int{},
	}
}

func (e *engines) Read(ctx context.Context, r state.Replica) state.Reading {
	e.mu.Lock()
	e.count[r.ID]++
	hang, dead := e.hang[r.ID], e.dead[r.ID]
	out, ok := e.next[r.ID]
	e.mu.Unlock()
	if !ok {
		out = state.UnknownReading(r.ID)
		out.OK = true
	}
	if hang {
		<-ctx.Done()
		out = state.UnknownReading(r.ID)
		out.Err = "timed out"
	}
	if dead {
		out = state.UnknownReading(r.ID)
		out.Err = "connection refused"
	}
	return out
}

func (e *engines) reads(id state.ReplicaID) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[id]
}

type cache struct {
	mu      sync.Mutex
	cleared map[state.ReplicaID]string
	tokens  map[state.ReplicaID]float64
}

func newCache() *cache {
	return &cache{cleared: map[state.ReplicaID]string{}, tokens: map[state.ReplicaID]float64{}}
}

func (c *cache) SetCapacity(id state.ReplicaID, n float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens[id] = n
}

func (c *cache) Cleared(id state.ReplicaID, _ time.Time, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared[id] = reason
}

func store(self state.RouterID, boot state.BootID, ids ...state.ReplicaID) *state.Store {
	s := state.NewStore(state.Config{
		Self: self, Clock: state.NewClock(boot, time.Now()),
		Pools: []state.PoolSpec{{Name: "chat", Model: "m"}},
	})
	var list []state.Replica
	for _, id := range ids {
		list = append(list, state.Replica{ID: id, Role: state.RoleBoth})
	}
	s.SetReplicas(state.SourceStatic, "chat", list)
	return s
}

func TestAloneReadsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newEngines(), store("r1", 1, "a", "b", "c")
		published := map[state.ReplicaID]int{}
		var mu sync.Mutex
		l := New(Config{Self: "r1"}, s, e, newCache(), func(r state.Reading) {
			mu.Lock()
			published[r.Replica]++
			mu.Unlock()
		}, zerolog.Nop())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
		for _, id := range []state.ReplicaID{"a", "b", "c"} {
			if n := e.reads(id); n < 40 || n > 60 {
				t.Errorf("%s was read %d times in 10 s at 200 ms", id, n)
			}
			if published[id] < 40 {
				t.Errorf("%s was published %d times", id, published[id])
			}
		}
	})
}

func TestHangingReplicaBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newEngines(), store("r1", 1, "a", "b")
		e.hang["a"] = true
		l := New(Config{Self: "r1"}, s, e, newCache(), func(state.Reading) {}, zerolog.Nop())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = l.Run(ctx)
		if n := e.reads("b"); n < 40 {
			t.Errorf("the healthy replica was read only %d times", n)
		}
		if n := e.reads("a"); n > 6 {
			t.Errorf("the hanging replica has %d readings in 10 s with a 2 s time-out", n)
		}
		if r := s.View().Replica("a"); r.Reading.OK || r.Reading.Err == "" {
			t.Errorf("reading of the hanging replica: %+v", r.Reading)
		}
	})
}

// Two routers that know of each other: each replica has one reader; when that one
// stops, the other takes over by the reading's age.
func TestOneReaderAndTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := []state.ReplicaID{"a", "b", "c", "d", "e", "f"}
		s1, s2 := store("r1", 1, ids...), store("r2", 2, ids...)
		s1.ApplyRows(state.Rows{Router: "r2", Boot: 2, Seq: 1})
		s2.ApplyRows(state.Rows{Router: "r1", Boot: 1, Seq: 1})
		e1, e2 := newEngines(), newEngines()
		l1 := New(Config{Self: "r1"}, s1, e1, newCache(), func(r state.Reading) {
			s2.Clock().Observe(1, r.At.At, time.Now())
			s2.ApplyReading(r)
		}, zerolog.Nop())
		l2 := New(Config{Self: "r2"}, s2, e2, newCache(), func(r state.Reading) {
			s1.Clock().Observe(2, r.At.At, time.Now())
			s1.ApplyReading(r)
		}, zerolog.Nop())
		ctx1, stop1 := context.WithCancel(t.Context())
		ctx2, stop2 := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = l1.Run(ctx1) })
		wg.Go(func() { _ = l2.Run(ctx2) })
		time.Sleep(10 * time.Second)
		by1 := 0
		for _, id := range ids {
			n1, n2 := e1.reads(id), e2.reads(id)
			if n1 > 0 && n2 > 0 {
				t.Errorf("%s was read by both: %d and %d times", id, n1, n2)
			}
			if n1 > 0 {
				by1++
			}
		}
		if by1 == 0 || by1 == len(ids) {
			t.Fatalf("router 1 reads %d of %d", by1, len(ids))
		}
		stop1()
		time.Sleep(3 * time.Second)
		for _, id := range ids {
			if age := time.Since(s2.View().Replica(id).ReadingAt); age > 2*time.Second {
				t.Errorf("%s: reading is %v old after its reader died", id, age)
			}
		}
		stop2()
		wg.Wait()
	})
}

// A router that alone can't reach a replica leaves it to the other: the reading
// does not flip between the two.
func TestReaderCutOffFromAReplicaStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s1, s2 := store("r1", 1, "a"), store("r2", 2, "a")
		s1.ApplyRows(state.Rows{Router: "r2", Boot: 2, Seq: 1})
		s2.ApplyRows(state.Rows{Router: "r1", Boot: 1, Seq: 1})
		e1, e2 := newEngines(), newEngines()
		tell := func(to *state.Store, boot state.BootID) func(state.Reading) {
			return func(r state.Reading) {
				to.Clock().Observe(boot, r.At.At, time.Now())
				to.ApplyReading(r)
			}
		}
		l1 := New(Config{Self: "r1"}, s1, e1, newCache(), tell(s2, 1), zerolog.Nop())
		l2 := New(Config{Self: "r2"}, s2, e2, newCache(), tell(s1, 2), zerolog.Nop())
		first, second := e1, e2
		if rank("r1", "a", []state.RouterID{"r1", "r2"}) != 0 {
			first, second = e2, e1
		}
		first.dead["a"] = true
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = l1.Run(ctx) })
		wg.Go(func() { _ = l2.Run(ctx) })
		time.Sleep(5 * time.Second)
		bad := 0
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			for _, s := range []*state.Store{s1, s2} {
				if r := s.View().Replica("a"); !r.Fresh(time.Now()) {
					bad++
				}
			}
		}
		// Once in 10 s the cut-off router looks again, and believes itself for a moment.
		if bad > 30 {
			t.Errorf("no usable reading in %d of 200 looks", bad)
		}
		if n := second.reads("a"); n < 40 {
			t.Errorf("the other router read only %d times", n)
		}
		cancel()
		wg.Wait()
	})
}

func TestRestartAndCapacityAreNoticed(t *testing.T) {
	f := func(name string, readings []state.Reading, cleared string, tokens float64) {
		t.Helper()
		c := newCache()
		l := New(Config{Self: "r1"}, nil, nil, c, nil, zerolog.Nop())
		for _, r := range readings {
			r.Replica, r.OK = "a", true
			l.Note(r, time.Now())
		}
		if c.cleared["a"] != cleared || c.tokens["a"] != tokens {
			t.Errorf("%s: cleared %q, capacity %v", name, c.cleared["a"], c.tokens["a"])
		}
	}
	f("first reading", []state.Reading{{Started: 5, Queries: 100, Capacity: 1000}}, "", 1000)
	f("steady", []state.Reading{{Started: 5, Queries: 100}, {Started: 5, Queries: 120}}, "", 0)
	f("restart", []state.Reading{{Started: 5, Queries: 100}, {Started: 9, Queries: 0}}, "engine restarted", 0)
	f("counters backwards", []state.Reading{{Queries: 100}, {Queries: 3}}, "counters went backwards", 0)
	f("missing counter is not zero", []state.Reading{{Queries: 100}, {Queries: -1}, {Queries: 110}}, "", 0)
	f("another capacity", []state.Reading{{Capacity: 10, Queries: -1}, {Capacity: 20, Queries: -1}}, "", 20)
}
