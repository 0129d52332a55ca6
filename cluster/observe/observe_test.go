package observe

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

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
			if n := e.reads(id); n < 17 || n > 26 {
				t.Errorf("%s was read %d times in 10 idle seconds", id, n)
			}
			if published[id] != e.reads(id) {
				t.Errorf("%s was published %d times", id, published[id])
			}
		}
	})
}

// An engine that serves another model than its pool's is named once in the log.
func TestEngineOfAnotherModelIsNamed(t *testing.T) {
	said := func(models ...string) string {
		var out bytes.Buffer
		synctest.Test(t, func(t *testing.T) {
			e, s := newEngines(), store("r1", 1, "a")
			spec := s.View().Pools[0].Spec
			spec.Model = "default"
			s.SetPools([]state.PoolSpec{spec})
			e.next["a"] = state.Reading{Replica: "a", OK: true, Running: -1, Waiting: -1, Models: models}
			l := New(Config{Self: "r1"}, s, e, newCache(), func(state.Reading) {}, zerolog.New(&out).Level(zerolog.WarnLevel))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := l.Run(ctx); err != nil {
				t.Fatal(err)
			}
		})
		return out.String()
	}
	if s := said("llama-3.1-8b", "sql"); strings.Count(s, `does not serve \"default\", it serves llama-3.1-8b, sql`) != 1 {
		t.Errorf("said %q", s)
	}
	for _, models := range [][]string{nil, {"default"}, {"sql", "default"}} {
		if s := said(models...); s != "" {
			t.Errorf("%q: said %q", models, s)
		}
	}
}

// Where there is work readings are frequent, from the moment it begins; where it
// has ended they soon are rare.
func TestPaceFollowsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newEngines(), store("r1", 1, "a", "b", "c")
		e.next["b"] = state.Reading{Replica: "b", OK: true, Running: 3, Waiting: -1}
		l := New(Config{Self: "r1"}, s, e, newCache(), func(state.Reading) {}, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Run(ctx) })
		time.Sleep(5 * time.Second)
		count := func(d time.Duration) map[state.ReplicaID]int {
			before := map[state.ReplicaID]int{"a": e.reads("a"), "b": e.reads("b"), "c": e.reads("c")}
			time.Sleep(d)
			for id, n := range before {
				before[id] = e.reads(id) - n
			}
			return before
		}
		if n := count(10 * time.Second); n["a"] > 24 || n["b"] < 70 || n["b"] > 105 {
			t.Errorf("idle a and c, busy b: %v", n)
		}
		ticket := s.Begin(s.View().Replica("a"), 100)
		if n := count(150 * time.Millisecond); n["a"] < 1 {
			t.Errorf("150 ms after work began: %v", n)
		}
		if n := count(10 * time.Second); n["a"] < 70 || n["c"] > 24 {
			t.Errorf("busy a: %v", n)
		}
		ticket.End()
		time.Sleep(2 * time.Second)
		if n := count(10 * time.Second); n["a"] > 24 {
			t.Errorf("idle again: %v", n)
		}
		cancel()
		wg.Wait()
	})
}

func TestHangingEngineBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newEngines(), store("r1", 1, "a", "b")
		e.hang["a"] = true
		l := New(Config{Self: "r1"}, s, e, newCache(), func(state.Reading) {}, zerolog.Nop())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = l.Run(ctx)
		if n := e.reads("b"); n < 17 {
			t.Errorf("the healthy engine was read only %d times", n)
		}
		if n := e.reads("a"); n > 6 {
			t.Errorf("the hanging engine has %d readings in 10 s with a 2 s time-out", n)
		}
		if r := s.View().Replica("a"); r.Reading.OK || r.Reading.Err == "" {
			t.Errorf("reading of the hanging engine: %+v", r.Reading)
		}
	})
}

// Each engine has one reader. When that one stops, another takes over by the
// reading's age, and the others stay away.
func TestOneReaderAndTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []state.ReplicaID
		for i := range 12 {
			ids = append(ids, state.ReplicaID(fmt.Sprint("e", i)))
		}
		c := run(t, 4, ids...)
		time.Sleep(10 * time.Second)
		used := map[int]bool{}
		for _, id := range ids {
			who, _ := c.readers(id, nil)
			if !slices.Equal(who, c.order(id)[:1]) {
				t.Errorf("%s was read by %v, not by %v alone", id, who, c.order(id)[0])
			}
			used[who[0]] = true
		}
		if len(used) < 3 {
			t.Errorf("only routers %v read anything", used)
		}
		victim := c.order(ids[0])[0]
		c.stops[victim]()
		synctest.Wait()
		var before [][]int
		for _, id := range ids {
			_, counts := c.readers(id, nil)
			before = append(before, counts)
		}
		oldest := time.Duration(0)
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			for i, s := range c.stores {
				for _, id := range ids {
					if i != victim {
						oldest = max(oldest, time.Since(s.View().Replica(id).ReadingAt))
					}
				}
			}
		}
		if oldest > 1200*time.Millisecond {
			t.Errorf("a reading was %v old after its reader died", oldest)
		}
		for i, id := range ids {
			want := c.order(id)[0]
			if want == victim {
				want = c.order(id)[1]
			}
			if who, _ := c.readers(id, before[i]); !slices.Equal(who, []int{want}) {
				t.Errorf("%s was read by %v after the death of %d, not by %d alone", id, who, victim, want)
			}
		}
		c.stop()
	})
}

// An engine that answers what can't be read is reached: it needs no second opinion, and
// nobody takes it for away.
func TestUnreadableEngineHasOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, 5, "a")
		time.Sleep(5 * time.Second)
		for _, e := range c.engines {
			r := state.UnknownReading("a")
			r.Answered, r.Err = true, "engine answered status 404"
			e.set(func() { e.next["a"] = r })
		}
		time.Sleep(5 * time.Second)
		_, counts := c.readers("a", nil)
		time.Sleep(10 * time.Second)
		if who, _ := c.readers("a", counts); !slices.Equal(who, c.order("a")[:1]) {
			t.Errorf("it is read by %v", who)
		}
		for i, s := range c.stores {
			v := s.View()
			r := v.Replica("a")
			if got := r.Sensed(&v.Pools[0].Spec, time.Now()); got != state.Unreadable || !r.DownSince.IsZero() {
				t.Errorf("router %d takes it for %s, down since %v", i, got, r.DownSince)
			}
		}
		c.stop()
	})
}

// An engine that is dead for everybody is looked at by the first two often, by the
// rest seldom; all learn within a second that it is back.
func TestDeadEngineIsWatchedByFew(t *testing.T) {
	f := func(name string, mark func(*engines, bool)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := run(t, 10, "a", "b")
				time.Sleep(5 * time.Second)
				for _, e := range c.engines {
					e.set(func() { mark(e, true) })
				}
				time.Sleep(5 * time.Second)
				for i, s := range c.stores {
					if v := s.View().Replica("a"); v.Reading.OK || v.DownSince.IsZero() || v.DownReaders < 2 {
						t.Errorf("router %d: %+v, down since %v by %d", i, v.Reading, v.DownSince, v.DownReaders)
					}
					if v := s.View().Replica("b"); !v.Reading.OK || time.Since(v.ReadingAt) > time.Second {
						t.Errorf("router %d has no reading of the other engine", i)
					}
				}
				sum := func() (n int) {
					for _, e := range c.engines {
						n += e.reads("a")
					}
					return n
				}
				before := sum()
				time.Sleep(20 * time.Second)
				if n := sum() - before; n > 20*6 {
					t.Errorf("%d readings in 20 s", n)
				}
				for _, e := range c.engines {
					e.set(func() { mark(e, false) })
				}
				time.Sleep(3 * time.Second) // a hanging reading may be under way
				for i, s := range c.stores {
					if v := s.View().Replica("a"); !v.Reading.OK || !v.DownSince.IsZero() {
						t.Errorf("router %d does not know that it is back: %+v", i, v.Reading)
					}
				}
				time.Sleep(5 * time.Second)
				_, counts := c.readers("a", nil)
				time.Sleep(5 * time.Second)
				if who, _ := c.readers("a", counts); !slices.Equal(who, c.order("a")[:1]) {
					t.Errorf("afterwards it is read by %v", who)
				}
				c.stop()
			})
		})
	}
	f("refused", func(e *engines, on bool) { e.dead["a"] = on })
	f("hanging", func(e *engines, on bool) { e.hang["a"] = on })
}

// Routers that alone can't reach an engine leave it to one that can: the reading
// does not flip between them.
func TestReaderCutOffFromAnEngineStepsBack(t *testing.T) {
	f := func(name string, cut int) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := run(t, 3, "a")
				order := c.order("a")
				time.Sleep(2 * time.Second)
				for _, i := range order[:cut] {
					c.engines[i].set(func() { c.engines[i].dead["a"] = true })
				}
				time.Sleep(5 * time.Second)
				before := c.engines[order[0]].reads("a")
				bad := 0
				for range 200 {
					time.Sleep(100 * time.Millisecond)
					for _, s := range c.stores {
						if r := s.View().Replica("a"); !r.Fresh(time.Now()) {
							bad++
						}
					}
				}
				// Now and then a cut-off router looks again, and believes itself for a moment.
				if bad > 60 {
					t.Errorf("no usable reading in %d of 600 looks", bad)
				}
				if n := c.engines[order[0]].reads("a") - before; n > 6 {
					t.Errorf("a router that can't read tried %d times in 20 s", n)
				}
				n := 0
				for _, i := range order[cut:] {
					n += c.engines[i].reads("a")
				}
				if n < 30 {
					t.Errorf("the routers that can read did so only %d times", n)
				}
				c.stop()
			})
		})
	}
	f("the first", 1)
	f("the first two", 2)
}

// One reading feeds all ranks behind a URL, and counts as one.
func TestRanksAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store("r1", 1)
		s.SetReplicas(state.SourceStatic, "chat", []state.Replica{
			{ID: "a", URL: "http://a:1", Ranks: 2}, {ID: "b", URL: "http://b:1"},
		})
		e := newEngines()
		e.next["a#1"] = state.Reading{Replica: "a#1", OK: true, Running: 5, Waiting: 1}
		l := New(Config{Self: "r1"}, s, e, newCache(), func(state.Reading) {}, zerolog.Nop())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_ = l.Run(ctx)
		if e.ranks != 2 || e.reads("a#1") != 0 || e.reads("a#0") < 40 {
			t.Errorf("%d ranks at once; read apart %d times, together %d times", e.ranks, e.reads("a#1"), e.reads("a#0"))
		}
		a, b := s.View().Replica("a#0"), s.View().Replica("a#1")
		if !a.Reading.OK || a.Reading.Running == 5 || b.Reading.Running != 5 || !a.ReadingAt.Equal(b.ReadingAt) {
			t.Errorf("readings: %+v and %+v", a.Reading, b.Reading)
		}
	})
}

// A hundred idle engines and ten routers: one reader each, twice a second.
func TestIdleEnginesAreHardlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []state.ReplicaID
		for i := range 100 {
			ids = append(ids, state.ReplicaID(fmt.Sprint("e", i)))
		}
		c := run(t, 10, ids...)
		time.Sleep(5 * time.Second)
		before := map[state.ReplicaID][]int{}
		for _, id := range ids {
			_, before[id] = c.readers(id, nil)
		}
		time.Sleep(20 * time.Second)
		total := 0
		for _, id := range ids {
			who, counts := c.readers(id, before[id])
			if len(who) != 1 {
				t.Errorf("%s has readers %v", id, who)
			}
			for i := range counts {
				total += counts[i] - before[id][i]
			}
		}
		if perSecond := float64(total) / 20 / 100; perSecond > 2.3 || perSecond < 1.6 {
			t.Errorf("each is read %.2f times a second", perSecond)
		}
		c.stop()
	})
}
