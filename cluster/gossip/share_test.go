package gossip

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

func TestRowsAndSketchAreSharedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		time.Sleep(5 * time.Second)
		var worst time.Duration
		for i := range 20 {
			ticket := r[i%3].begin(1, 500)
			took := within(t, 100*time.Millisecond, "row at the others", func() bool {
				return r[(i+1)%3].sees(1) == 1 && r[(i+2)%3].sees(1) == 1
			})
			worst = max(worst, took)
			if got := r[(i+1)%3].store.View().Replica(replica(1)).Others; got != (state.Load{InFlight: 1, Prefill: 1, UncachedTokens: 500}) {
				t.Fatalf("row %+v", got)
			}
			ticket.End()
			within(t, 100*time.Millisecond, "row gone", func() bool { return r[(i+1)%3].sees(1) == 0 && r[(i+2)%3].sees(1) == 0 })
			time.Sleep(137 * time.Millisecond)
		}
		t.Logf("rows: worst %v", worst)
		worst = 0
		for i := range 20 {
			marks := r[i%3].learn(2, 10)
			took := within(t, 100*time.Millisecond, "sketch at the others", func() bool {
				return r[(i+1)%3].knows(2, marks) == 10 && r[(i+2)%3].knows(2, marks) == 10
			})
			worst = max(worst, took)
			time.Sleep(137 * time.Millisecond)
		}
		t.Logf("sketch ops: worst %v", worst)
	})
}

// What a router failed at is known to the others at once, and forgotten with its
// next success.
func TestFailuresAreShared(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		fail := func(n uint32) {
			r[0].store.SetWeights(&state.Weights{Replicas: map[state.ReplicaID]state.Weight{replica(1): {Failures: n, Slow: 1}}})
		}
		others := func(want uint32) func() bool {
			return func() bool {
				return r[1].store.View().Replica(replica(1)).OthersFailures == want &&
					r[2].store.View().Replica(replica(1)).OthersFailures == want
			}
		}
		fail(3)
		within(t, 100*time.Millisecond, "failures at the others", others(3))
		time.Sleep(1500 * time.Millisecond) // full rows repeat them
		if !others(3)() {
			t.Error("full rows took the failures away")
		}
		fail(0)
		within(t, 100*time.Millisecond, "no failures at the others", others(0))
	})
}

func TestReadingsAreShared(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		now := time.Now()
		x := state.UnknownReading(replica(0))
		x.Reader, x.OK, x.Running, x.At = "r0", true, 7, r[0].store.Clock().Stamp(now)
		r[0].store.ApplyReading(x)
		r[0].gossip.PublishReading(x)
		within(t, 100*time.Millisecond, "reading at the others", func() bool {
			for _, o := range r[1:] {
				v := o.store.View().Replica(replica(0))
				if v.Reading.Running != 7 || v.ReadingAt.Sub(now) > 50*time.Millisecond {
					return false
				}
			}
			return true
		})
	})
}

func TestKilledRoutersRowsGoAndItsKnowledgeStays(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		marks := r[2].learn(3, 20)
		for range 5 {
			r[2].begin(3, 100)
		}
		pending := []prefix.Mark{{Hash: 99, ASCII: 400}}
		r[2].index.Place(replica(3), pending, []int32{100}, time.Now())
		within(t, 100*time.Millisecond, "known at the others", func() bool {
			return r[0].sees(3) == 5 && r[1].sees(3) == 5 && r[0].knows(3, marks) == 20 && r[1].knows(3, marks) == 20
		})
		r[2].kill()
		took := within(t, 2500*time.Millisecond, "rows gone", func() bool { return r[0].sees(3) == 0 && r[1].sees(3) == 0 })
		t.Logf("rows gone after %v", took)
		within(t, 5*time.Second, "membership says so", func() bool {
			return r[0].member("r2").State == Dead && r[1].member("r2").State == Dead
		})
		time.Sleep(time.Minute)
		for _, x := range r[:2] {
			if got := x.knows(3, marks); got != 20 {
				t.Errorf("%s knows %d of 20 marks", x.id, got)
			}
		}
		// A router that starts only now, with nothing, learns of it, too.
		late := start(t, options{n: n, host: "r3", join: []string{"r0"}})
		within(t, 5*time.Second, "ready", late.isReady)
		if got := late.knows(3, marks); got != 20 {
			t.Errorf("the late one knows %d of 20 marks when ready", got)
		}
	})
}

func TestLateJoinerIsWarmWhenReady(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{journal: 256})
		var marks [][]prefix.Mark
		for i := range 2000 {
			marks = append(marks, r[i%3].learn(i%replicas, 10))
			if i%50 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(3 * time.Second)
		began := time.Now()
		late := start(t, options{n: n, host: "r9", join: []string{"r1"}})
		within(t, 5*time.Second, "ready", late.isReady)
		t.Logf("ready after %v", time.Since(began))
		missing := 0
		for i, m := range marks {
			if late.knows(i%replicas, m) != r[0].knows(i%replicas, m) {
				missing++
			}
		}
		if missing > 0 {
			t.Errorf("%d of %d prefixes are not known when ready", missing, len(marks))
		}
		// And it goes on with what comes.
		m := r[2].learn(0, 5)
		within(t, time.Second, "news", func() bool { return late.knows(0, m) == 5 })
	})
}

func TestReadyWithoutPeers(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		alone := start(t, options{n: n, host: "r1"})
		within(t, 0, "ready at once", func() bool { time.Sleep(time.Microsecond); return alone.isReady() })
		n.Host("nobody")
		lost := start(t, options{n: n, host: "r2", join: []string{"nobody"}})
		time.Sleep(4900 * time.Millisecond)
		if lost.isReady() {
			t.Error("ready before the bound")
		}
		within(t, 500*time.Millisecond, "ready after the bound", lost.isReady)
	})
}

// A journal so small that it is overrun at once: what readers miss comes by
// snapshot, and everybody knows everything in the end.
func TestOverrunJournalIsRepaired(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{journal: 64})
		time.Sleep(3 * time.Second)
		var marks [][]prefix.Mark
		for range 300 {
			marks = append(marks, r[0].learn(0, 3))
		}
		within(t, 5*time.Second, "all known", func() bool {
			for _, m := range marks {
				if r[1].knows(0, m) != r[0].knows(0, m) || r[2].knows(0, m) != r[0].knows(0, m) {
					return false
				}
			}
			return true
		})
	})
}

// An end that a reader missed does not pin what the request used for an hour: the
// snapshot that makes up for the journal says which requests still run.
func TestMissedEndsAreMadeUpForBySnapshots(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{journal: 64})
		time.Sleep(3 * time.Second)
		held := func(x *router) sketch.ReplicaStats { return x.index.Stats(replica(0)) }
		ended, runs := r[0].place(0, 3), r[0].place(0, 3)
		ended.First(time.Now())
		runs.First(time.Now())
		waits := r[0].place(0, 3)
		within(t, time.Second, "all three known", func() bool { return held(r[1]).Placements == 3 && held(r[2]).Placements == 3 })
		ended.End(time.Now())
		var marks []prefix.Mark
		for range 300 { // at one instant: the end is gone from the journal before it is read
			marks = r[0].learn(0, 3)
		}
		began := r[0].place(0, 3)
		within(t, 5*time.Second, "made up for", func() bool {
			return r[1].knows(0, marks) == 3 && r[2].knows(0, marks) == 3 && held(r[1]).Lost == 1 && held(r[2]).Lost == 1
		})
		time.Sleep(5 * time.Second)
		for _, x := range r[1:] {
			if s := held(x); s.Placements != 3 || s.Lost != 1 {
				t.Errorf("%s: %d placements, %d lost, want 3 and 1", x.id, s.Placements, s.Lost)
			}
		}
		waits.Withdraw(time.Now())
		began.Withdraw(time.Now())
		runs.End(time.Now())
		within(t, time.Second, "ended", func() bool { return held(r[1]).Placements == 0 && held(r[2]).Placements == 0 })
	})
}

// A router counts as dead as of when it was last heard, not of when that was noticed:
// what it began meanwhile, being cut off only, is held at the others like any other.
func TestStreamsBegunBeforeAHoleIsNoticedAreHeld(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 2, options{})
		time.Sleep(5 * time.Second)
		r[0].begin(1, 10)
		within(t, time.Second, "a row", func() bool { return r[1].sees(1) == 1 })
		n.Cut("r0", "r1")
		time.Sleep(time.Second)
		stream := r[0].place(0, 3)
		stream.First(time.Now())
		within(t, 5*time.Second, "noticed", func() bool { return r[1].sees(1) == 0 })
		time.Sleep(10 * time.Second)
		n.Heal("r0", "r1")
		within(t, 10*time.Second, "told", func() bool { return r[1].index.Stats(replica(0)).Entries == 3 })
		if s := r[1].index.Stats(replica(0)); s.Placements != 1 || s.Lost != 0 {
			t.Errorf("%d placements, %d lost", s.Placements, s.Lost)
		}
		stream.End(time.Now())
		within(t, time.Second, "ended", func() bool { return r[1].index.Stats(replica(0)).Placements == 0 })
	})
}

// Where a fifth of the datagrams is lost and the rest takes as long as a probe may,
// membership finds somebody dead now and then, for about a second. Nothing is lost by
// it: what is known of a router rests on its stream, which lives.
func TestLossAndDelay(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		n.SetDefault(simnet.Link{Delay: 40 * time.Millisecond, Jitter: 40 * time.Millisecond, Loss: 0.2})
		r := group(t, n, 4, options{})
		time.Sleep(30 * time.Second)
		marks := r[3].learn(0, 10)
		r[3].begin(0, 10)
		known := func() bool {
			return r[0].sees(0) == 1 && r[1].sees(0) == 1 && r[2].knows(0, marks) == 10
		}
		within(t, 250*time.Millisecond, "shared", known)
		found := 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if !known() {
				t.Fatal("forgotten")
			}
			for _, a := range r {
				for _, b := range r {
					if m := a.member(b.id); a != b && !m.Stream {
						t.Fatalf("%s has no stream from %s, which is %s to it", a.id, b.id, m.State)
					} else if a != b && m.State != Alive {
						found++
					}
				}
			}
		}
		t.Logf("dead to somebody for %.1f s in 720 s of observers times members", float64(found)/10)
		within(t, 5*time.Second, "all alive", whole(r...))
	})
}

// The second of two that start at about the same time is given the first one's
// snapshot, and what came since before it calls itself ready.
func TestASnapshotGivenAgainIsCaughtUpBeforeReady(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 2, options{})
		time.Sleep(5 * time.Second)
		first := start(t, options{n: n, host: "r8", join: []string{"r0"}})
		within(t, time.Second, "ready", first.isReady)
		var marks [][]prefix.Mark
		for i := range 400 {
			marks = append(marks, r[1].learn(i%replicas, 3))
		}
		second := start(t, options{n: n, host: "r9", join: []string{"r0"}})
		within(t, time.Second, "ready", second.isReady)
		for i, m := range marks {
			if second.knows(i%replicas, m) != 3 {
				t.Fatalf("prefix %d of %d is not known when ready", i, len(marks))
			}
		}
	})
}

// A list of adapters that does not change travels once in a while, and at once when it
// does.
func TestAdapterListsTravelWhenTheyChange(t *testing.T) {
	var o outbox
	now := time.Now()
	f := func(after time.Duration, told bool, names ...string) {
		t.Helper()
		now = now.Add(after)
		r := state.Reading{Replica: "x", Adapters: names, AdaptersSum: state.SumAdapters(names)}
		if o.thin(&r, now); r.ListsAdapters() != told || r.AdaptersSum != state.SumAdapters(names) {
			t.Errorf("%q: told %v, want %v", names, r.ListsAdapters(), told)
		}
	}
	f(0, true, "a")
	f(time.Second, false, "a")
	f(time.Millisecond, true, "a", "b")
	f(time.Second, false, "a", "b")
	f(adaptersEvery, true, "a", "b")
	f(time.Millisecond, true)
	f(time.Millisecond, true) // nothing is as short as its sum
	f(time.Millisecond, true, "a")
}

// What a router was asked is known to the others with its next full rows.
func TestTrafficIsShared(t *testing.T) {
	bubble(t, func(t *testing.T, n *simnet.Net) {
		r := group(t, n, 3, options{})
		c := r[0].store.View().Pools[0].Counter
		pool := r[0].store.View().Pools[0].Spec.Name
		for want := range int64(3) {
			c.Came(100)
			within(t, 1500*time.Millisecond, "traffic at the others", func() bool {
				heard := 0
				for _, o := range r[1:] {
					v := o.store.View()
					for i := range v.Routers {
						if got, ok := v.Routers[i].Traffic(pool); ok && got.Requests == want+1 && got.Uncached == 100*(want+1) {
							heard++
						}
					}
				}
				return heard == 2
			})
		}
	})
}
