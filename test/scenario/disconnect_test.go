package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// A client goes away at every stage of its request: the engine hears of it within
// a second, and within three no router counts the request any more.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	f := func(name string, engine func(*enginesim.Config), c harness.Chat, leave func(b *harness.Bubble, s *harness.Stream)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			cfg := harness.BubbleConfig{Routers: 3, Engines: 2, Delay: 2 * time.Millisecond}
			cfg.EachEngine = func(_ int, e *enginesim.Config) {
				if engine != nil {
					engine(e)
				}
			}
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				s := b.Open(1, c.Body())
				leave(b, s)
				left := time.Now()
				b.Idle(3 * time.Second)
				seen := 0
				for _, e := range b.Engines() {
					for _, r := range e.Record().Requests {
						seen++
						if r.Outcome != enginesim.OutcomeAborted || r.End.IsZero() || r.End.Sub(left) > time.Second {
							t.Errorf("%s: request is %s, over %v after the client left", e.Name, r.Outcome, r.End.Sub(left))
						}
					}
				}
				if seen != 1 {
					t.Errorf("engines saw %d requests", seen)
				}
				// The slot is free for the next one.
				ok(t, b.Chat(2, chat("Be brief.", "Hello?", 4)))
				b.Idle(time.Second)
			})
		})
	}
	long := chat(words("leaver", 60000), "Read this.", 2000) // seconds of prefill
	short := chat("Be verbose.", "Tell me everything.", 2000)
	after := func(d time.Duration) func(*harness.Bubble, *harness.Stream) {
		return func(b *harness.Bubble, s *harness.Stream) { time.Sleep(d); s.Close() }
	}
	f("while its prompt is prefilled", nil, streamed(long), after(time.Second))
	f("while its whole answer is prefilled", nil, long, after(time.Second))
	f("while its whole answer is generated", nil, short, after(2*time.Second))
	f("mid-stream", nil, streamed(short), func(_ *harness.Bubble, s *harness.Stream) {
		for range 5 {
			s.Next()
		}
		s.Close()
	})
	f("mid-stream, by a reset", nil, streamed(short), func(_ *harness.Bubble, s *harness.Stream) {
		for range 5 {
			s.Next()
		}
		s.Reset()
	})
	f("after the head, before the first token", func(e *enginesim.Config) { e.FrontDelay = 3 * time.Second }, streamed(short), after(time.Second))
}

// A client waits behind others in the engine's queue and leaves.
func TestClientLeavesAQueue(t *testing.T) {
	t.Parallel()
	cfg := harness.BubbleConfig{Routers: 2, Engines: 1, EachEngine: func(_ int, e *enginesim.Config) { e.MaxSeqs = 1 }}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		first := b.Open(0, streamed(chat("Be verbose.", "One.", 200)).Body())
		first.Next()
		second := b.Open(1, streamed(chat("Be verbose.", "Two.", 200)).Body())
		time.Sleep(time.Second)
		if l := b.Engine(0).Load(); l.Waiting != 1 {
			t.Fatalf("the engine runs %d and holds %d", l.Running, l.Waiting)
		}
		second.Close()
		b.Within(time.Second, "the engine's queue empty", func() error {
			if l := b.Engine(0).Load(); l.Waiting != 0 || l.Running != 1 {
				return fmt.Errorf("the engine runs %d and holds %d", l.Running, l.Waiting)
			}
			return inFlight(b, b.Engine(0).ID, 1)()
		})
		for first.Next() {
		}
		ok(t, first.Reply)
	})
}
