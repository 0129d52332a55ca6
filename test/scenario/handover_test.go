package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// A leader is told to stop while long streams run through it: another leads within
// a second, the streams run to their end, requests to all routers are served, the
// one that is leaving included as long as it accepts, and it follows what is
// committed meanwhile.
func TestLeadershipIsHandedOverBeforeStreamsDrain(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprint("drain delay ", delay), func(t *testing.T) {
			cfg := harness.BubbleConfig{
				Routers: 3, Engines: 3, Delay: time.Millisecond,
				RouterFile: func(_ int, c *node.Config) { c.API.DrainDelay = delay },
			}
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) { handOver(t, b, delay) })
		})
	}
}

func handOver(t *testing.T, b *harness.Bubble, delay time.Duration) {
	waitLeader(b, 5*time.Second)
	time.Sleep(10 * time.Second) // all three vote
	old, _ := waitLeader(b, 5*time.Second)
	at, leaving, epoch := 0, old.Node(), old.Node().View().Facts.Epoch
	for i, r := range b.Routers() {
		if r == old {
			at = i
		}
	}
	var long []*harness.Stream
	for i := range 4 {
		s := b.Open(at, streamed(chat(words(fmt.Sprint("long", i), 300), "Go on and on.", 600)).Body())
		if !s.Next() {
			t.Fatalf("stream %d: %v", i, s)
		}
		long = append(long, s)
	}

	stopped := make(chan error, 1)
	go func() { stopped <- old.Stop() }()
	b.Settle(0)
	began := time.Now()
	took := b.Within(time.Second, "another leader", func() error {
		l := leader(b)
		if l == nil || l == old || l.Node().View().Facts.Epoch <= epoch {
			return errors.New("none that acts")
		}
		return nil
	})
	t.Logf("another leader after %v", took)
	if ready, _ := leaving.Ready(); ready {
		t.Error("the leaving router calls itself ready")
	}

	// Everybody else goes on, and new requests too, as long as they are accepted.
	var clients sync.WaitGroup
	for i := range 12 {
		to := (at + 1 + i%2) % 3
		if delay > 0 && i%4 == 0 {
			to = at
		}
		clients.Go(func() {
			if r := b.Do(to, streamed(chat(words(fmt.Sprint("new", i), 300), "Be brief.", 10)).Body()); !r.OK() {
				t.Errorf("a request to r%d: %v", to, r)
			}
		})
	}
	clients.Wait()

	// A write through the leaving router goes to the new leader and is seen there.
	index, status := setTarget(t, old, 4)
	if status != http.StatusOK {
		t.Errorf("a write through the leaving router: status %d", status)
	}
	if f := leaving.View().Facts; f.Index < index {
		t.Errorf("the leaving router's facts are at %d, its write at %d", f.Index, index)
	}
	if since := time.Since(began); since > 5*time.Second {
		t.Errorf("all that took %v", since)
	}
	for i, s := range long {
		if s.Done() {
			t.Errorf("stream %d is over already: the scenario shows nothing", i)
		}
		for s.Next() {
		}
		ok(t, s.Reply)
		if d := s.End.Sub(began); d < 5*time.Second {
			t.Errorf("stream %d ended %v after the signal: the scenario shows nothing", i, d)
		}
	}
	if err := <-stopped; err != nil {
		t.Errorf("its end: %v", err)
	}
	// What it waited for is told, with how long that can take.
	waiting := regexp.MustCompile(`"requests":4,"at_most_ms":30000,.*"waiting for running requests"`)
	if log := old.Log(); !waiting.MatchString(log) || strings.Count(log, "waiting for running requests") < 2 {
		t.Errorf("the log does not say what was waited for:\n%s", log)
	}
	if l, _ := waitLeader(b, time.Second); l.Node().View().Facts.Epoch <= epoch {
		t.Error("no leader of a later term")
	}
}
