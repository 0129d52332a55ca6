package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// The engine that holds a prefix fails: before the first byte another one answers
// and the client sees one clean answer; after it the client is told.
func TestEngineFailsUnderARequest(t *testing.T) {
	t.Parallel()
	f := func(name string, fault enginesim.Fault, stream, clean bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, harness.BubbleConfig{Routers: 2, Engines: 3, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
				system := words("retry", 2000)
				first := ok(t, b.Chat(0, chat(system, "First.", 10)))
				time.Sleep(100 * time.Millisecond)
				holder := b.Find(first.Replica)
				holder.Fault(fault)
				c := chat(system, "Second.", 30)
				if stream {
					c = streamed(c)
				}
				r := b.Chat(1, c)
				if r.Status != 200 {
					t.Fatalf("the client got %v", r)
				}
				if clean {
					ok(t, r)
					if r.Replica == holder.ID || r.Attempts() != 2 {
						t.Errorf("answered by %s after %d attempts; %s failed", r.Replica, r.Attempts(), holder.ID)
					}
					if u := r.Usage(); u == nil || u.CompletionTokens != 30 {
						t.Errorf("usage %+v", u)
					}
					if stream {
						roles := 0
						for _, e := range r.Events {
							roles += strings.Count(e.Data, `"role"`)
						}
						if roles != 1 {
							t.Errorf("%d events open an answer", roles)
						}
					}
				} else {
					if r.Replica != holder.ID {
						t.Fatalf("went to %s, %s holds the prefix", r.Replica, holder.ID)
					}
					if r.Err == nil || r.Done() {
						t.Errorf("the client was not told: %v", r)
					}
					if last := r.Events[len(r.Events)-1]; !strings.Contains(last.Data, `"error"`) {
						t.Errorf("the last event is %+v", last)
					}
				}
				b.Idle(3 * time.Second)
				if n := len(b.Router(1).Past(r.ID)); clean && n != 2 {
					t.Errorf("%d picks are remembered", n)
				}
			})
		})
	}
	status := func(s int) enginesim.Fault { return enginesim.Fault{Kind: enginesim.FaultStatus, Status: s, Count: 1} }
	f("500, streamed", status(500), true, true)
	f("500, plain", status(500), false, true)
	f("503, streamed", status(503), true, true)
	f("503, plain", status(503), false, true)
	f("reset before the head", enginesim.Fault{Kind: enginesim.FaultReset, Count: 1}, true, true)
	f("closed before the head", enginesim.Fault{Kind: enginesim.FaultFin, Count: 1}, false, true)
	f("reset after five events", enginesim.Fault{Kind: enginesim.FaultReset, Count: 1, AfterEvents: 5}, true, false)
	f("closed after five events", enginesim.Fault{Kind: enginesim.FaultFin, Count: 1, AfterEvents: 5}, true, false)
	f("silent after five events", enginesim.Fault{Kind: enginesim.FaultSilence, Count: 1, AfterEvents: 5}, true, false)
}

// An engine's process is gone: no client notices, and it gets its share again once
// it is back.
func TestEngineProcessDiesAndReturns(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 2, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		b.Engine(0).Kill()
		for i := range 20 {
			r := ok(t, b.Chat(i%2, streamed(chat("Be brief.", words("dead", 100+i), 5))))
			if r.Replica != b.Engine(1).ID {
				t.Errorf("answered by %s", r.Replica)
			}
		}
		b.Engine(0).Start()
		b.WaitReady()
		served := func() int64 { return b.Engine(0).Record().Finished }
		before, round := served(), 0
		b.Within(30*time.Second, "the engine serves again", func() error {
			var open []*harness.Stream
			round++
			for i := range 8 {
				open = append(open, b.Open(i%2, streamed(chat("Be brief.", words(fmt.Sprint("back", round, i), 100), 5)).Body()))
			}
			for _, s := range open {
				for s.Next() {
				}
				ok(t, s.Reply)
			}
			if served() == before {
				return errNothing
			}
			return nil
		})
	})
}

// An engine restarts at its address, too fast for a probe to fail: its cache is
// gone, and no router takes it for a holder any more; what it learns then counts.
func TestEngineRestartsInPlace(t *testing.T) {
	t.Parallel()
	f := func(name string, restart func(e *harness.Engine)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, harness.BubbleConfig{Routers: 3, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
				system := words("restart", 3000)
				var r *harness.Reply
				for i := range 10 {
					r = ok(t, b.Chat(i%3, streamed(chat(system, "Again.", 5))))
				}
				e := b.Find(r.Replica)
				time.Sleep(2 * time.Second) // engines' start times are told in whole seconds or finer
				next := chat(system, "And now?", 5).Body()
				matched := func(some bool) func() error {
					return func() error {
						return each(b, func(r *harness.Router) error {
							for _, c := range r.Explain(next).Candidates {
								if c.Replica == e.ID && (c.MatchedTokens > 0) != some {
									return errMatched
								}
							}
							return nil
						})
					}
				}
				if err := matched(true)(); err != nil {
					t.Fatal("nothing was learned")
				}
				restart(e)
				b.Within(3500*time.Millisecond, "the sketch empty on all routers", matched(false))
				b.Settle(5 * time.Second)
				if err := matched(false)(); err != nil {
					t.Error("old knowledge came back")
				}
				var at *harness.Reply
				for range 8 { // the other one may be taken first
					at = ok(t, b.Do(0, next))
				}
				time.Sleep(100 * time.Millisecond)
				for _, r := range b.Routers() {
					if x := r.Explain(next); x.Replica != at.Replica || x.MatchedTokens == 0 {
						t.Errorf("%s: new knowledge is not taken: %+v", r.Name, x)
					}
				}
			})
		})
	}
	f("in an instant", func(e *harness.Engine) { e.Restart() })
	f("within two seconds", func(e *harness.Engine) {
		e.Fault(enginesim.Fault{Kind: enginesim.FaultRestart, Duration: 2 * time.Second})
		time.Sleep(2 * time.Second)
	})
	f("as another process", func(e *harness.Engine) { e.Kill(); time.Sleep(300 * time.Millisecond); e.Start() })
}
