package scenario

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// One engine's metrics hang or fail while it serves: it gets its share all the
// same, and the readings of the others stay fresh on all routers.
func TestMetricsCannotBeRead(t *testing.T) {
	t.Parallel()
	f := func(name string, fault enginesim.Fault) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 3, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
				sick := b.Engine(1)
				sick.Fault(fault)
				time.Sleep(3 * time.Second)
				var oldest time.Duration
				for i := range 60 {
					ok(t, b.Chat(i%3, streamed(chat("Be brief.", words(fmt.Sprint("sense", i), 100), 3))))
					now := time.Now()
					for _, r := range b.Routers() {
						for _, e := range b.Engines() {
							if v := r.Replica(e.ID); e != sick {
								oldest = max(oldest, now.Sub(v.ReadingAt))
								if !v.Fresh(now) {
									t.Errorf("%s: reading of %s is %v old: %s", r.Name, e.Name, now.Sub(v.ReadingAt), v.Reading.Err)
								}
							}
						}
					}
				}
				if oldest > time.Second {
					t.Errorf("a reading of a healthy engine was %v old", oldest)
				}
				served := map[string]int64{}
				for _, e := range b.Engines() {
					served[e.Name] = e.Record().Finished
				}
				if n := served[sick.Name]; n < 10 {
					t.Errorf("%v were served: the unreadable one is left out", served)
				}
				for _, r := range b.Routers() {
					if r.Replica(sick.ID).Fresh(time.Now()) {
						t.Errorf("%s takes the hanging reading for fresh", r.Name)
					}
				}
				sick.Fault(enginesim.Fault{Kind: enginesim.FaultNone})
				b.WaitReady()
			})
		})
	}
	f("hang", enginesim.Fault{Kind: enginesim.FaultHangMetrics})
	f("answer 500", enginesim.Fault{Kind: enginesim.FaultMetricsStatus, Status: 500})
}

// The router that reads an engine dies: another takes over, and no router's reading
// is ever older than two seconds.
func TestReaderDies(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 4, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		reader := b.Router(2).Replica(b.Engine(0).ID).Reading.Reader
		for _, r := range b.Routers() {
			if r.ID() == reader {
				r.Kill()
				break
			}
		}
		if len(b.Alive()) != 2 {
			t.Fatalf("no router is %s", reader)
		}
		for range 10000 {
			time.Sleep(time.Millisecond)
			for _, r := range b.Alive() {
				for _, e := range b.Engines() {
					if age := time.Since(r.Replica(e.ID).ReadingAt); age > 2*time.Second {
						t.Fatalf("%s: reading of %s is %v old", r.Name, e.Name, age)
					}
				}
			}
		}
	})
}

// The router that reads an engine hangs, its connections open: nothing comes of it, and nothing is refused. The next one
// in order takes over after a second, no other one does, no reading is ever older than that and one reading's way, and
// engines that others read stay with their readers. When it is back it reads again.
func TestReaderHangs(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Engines: 6, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		var ids []state.RouterID
		for _, r := range b.Routers() {
			ids = append(ids, r.ID())
		}
		hung := b.Routers()[slices.Index(ids, harness.ReadingOrder(b.Engine(0).URL(), ids)[0])]
		rest := slices.DeleteFunc(slices.Clone(b.Routers()), func(r *harness.Router) bool { return r == hung })
		readBy := func(place int) func() error { // of those that are not hung
			return func() error {
				for _, e := range b.Engines() {
					order := harness.ReadingOrder(e.URL(), ids)
					want := order[0]
					if want == hung.ID() {
						want = order[place]
					}
					for _, r := range rest {
						if v := r.Replica(e.ID); v.Reading.Reader != want {
							return fmt.Errorf("%s has a reading of %s by %s, want %s", r.Name, e.Name, v.Reading.Reader, want)
						}
					}
				}
				return nil
			}
		}
		b.Within(15*time.Second, "the first in order read", readBy(0))
		b.Net.Isolate(hung.Name)
		began := time.Now()
		var took, oldest, later time.Duration
		for since := time.Duration(0); since < 6*time.Second; since = time.Since(began) {
			if err := readBy(1)(); err == nil {
				if took == 0 {
					took = since
				}
			} else if took > 0 {
				t.Fatalf("%v after it hung: %v", since, err)
			}
			for _, r := range rest {
				for _, e := range b.Engines() {
					v := r.Replica(e.ID)
					age := time.Since(v.ReadingAt)
					if oldest = max(oldest, age); since > 3*time.Second {
						later = max(later, age)
					}
					order := harness.ReadingOrder(e.URL(), ids)
					if by := v.Reading.Reader; by != order[0] && (order[0] != hung.ID() || by != order[1]) {
						t.Fatalf("%v after %s hung: %s is read by %s, in place %d", since, hung.Name, e.Name, by, slices.Index(order, by))
					}
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Logf("taken over after %v; no reading older than %v, from then on %v", took, oldest, later)
		if took == 0 || took > 1200*time.Millisecond || oldest > 1200*time.Millisecond || later > 700*time.Millisecond {
			t.Errorf("taken over after %v; a reading was %v old, from then on %v", took, oldest, later)
		}
		b.Net.HealAll()
		took = b.Within(15*time.Second, "it reads again", readBy(0))
		t.Logf("it reads again %v after it is back", took)
	})
}

// The router that reads an engine can't reach it any more, while the others can:
// one of them reads it instead, it is not taken for dead, and requests through
// either side are served.
func TestReaderIsCutOffFromAnEngine(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		e := b.Engine(0)
		cut := slices.IndexFunc(b.Routers(), func(r *harness.Router) bool { return r.ID() == b.Router(0).Replica(e.ID).Reading.Reader })
		b.Cut(b.Router(cut).Name, e.Name)
		served := e.Record().Finished
		var load sync.WaitGroup
		for i := range 24 {
			load.Go(func() {
				time.Sleep(time.Duration(i) * 400 * time.Millisecond)
				for j := range 2 {
					if r := b.Chat((i+j)%3, streamed(chat("Be brief.", words(fmt.Sprint("reader", i, j), 3000), 30))); !r.OK() {
						t.Errorf("request failed: %v", r)
					}
				}
			})
		}
		since := map[string]time.Time{} // without a usable reading
		for range 10000 {
			time.Sleep(time.Millisecond)
			now := time.Now()
			for j, r := range b.Routers() {
				switch v := r.Replica(e.ID); {
				case j == cut || v.Fresh(now):
					delete(since, r.Name)
				case since[r.Name].IsZero():
					since[r.Name] = now
				case now.Sub(since[r.Name]) > 2*time.Second:
					t.Fatalf("%s has had no usable reading for 2 s: %+v, of %v ago", r.Name, v.Reading, now.Sub(v.ReadingAt))
				}
			}
		}
		load.Wait()
		if n := e.Record().Finished - served; n < 6 {
			t.Errorf("it served %d of 48 requests", n)
		}
		b.Idle(time.Second)
	})
}
