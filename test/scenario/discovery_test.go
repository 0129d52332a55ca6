package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// listed is a file of replicas that routers of a bubble discover.
type listed struct {
	t    *testing.T
	path string
}

func (l *listed) write(text string) {
	l.t.Helper()
	if err := os.WriteFile(l.path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *listed) engines(n ...int) {
	l.t.Helper()
	text := "[]"
	for _, i := range n {
		text = strings.TrimPrefix(text, "[]") + fmt.Sprintf("- url: http://e%d:8000\n", i)
	}
	l.write(text)
}

// discovering runs a cluster whose pool is what a file lists: engines 0 and 1 of three.
func discovering(t *testing.T, f func(t *testing.T, b *harness.Bubble, l *listed)) {
	l := &listed{t, filepath.Join(t.TempDir(), "replicas.yaml")}
	l.engines(0, 1, 2) // the harness waits for all
	harness.InBubble(t, harness.BubbleConfig{
		Routers: 2, Engines: 3, Delay: time.Millisecond,
		PoolFile: func(p *node.PoolConfig) {
			p.Replicas, p.Discover.File, p.Discover.Grace = nil, l.path, 30*time.Second
		},
	}, func(t *testing.T, b *harness.Bubble) {
		l.engines(0, 1)
		time.Sleep(35 * time.Second)
		if err := haveListed(b, "e0:8000", "e1:8000")(); err != nil {
			t.Fatal(err)
		}
		f(t, b, l)
	})
}

// haveListed objects unless every router has just these replicas: "e0:8000", or "-e0:8000"
// for one that drains.
func haveListed(b *harness.Bubble, want ...string) func() error {
	return func() error {
		return each(b, func(r *harness.Router) error {
			have := []string{}
			for _, x := range r.Node().View().PoolNamed(harness.Pool).Replicas {
				id := string(x.ID)
				if x.Draining {
					id = "-" + id
				}
				have = append(have, id)
			}
			if fmt.Sprint(have) != fmt.Sprint(want) {
				return fmt.Errorf("has %v, want %v", have, want)
			}
			return nil
		})
	}
}

func warning(r *harness.Router, part string) error {
	var s console.Status
	if status, err := r.Admin("GET", "/admin/v1/status", nil, &s); err != nil || status != http.StatusOK {
		return fmt.Errorf("status %d, %w", status, err)
	}
	if !strings.Contains(strings.Join(s.Warn, "\n"), part) {
		return fmt.Errorf("no %q in %q", part, s.Warn)
	}
	return nil
}

// traffic sends short requests through both routers until it is stopped, which waits
// for the last one and gives how many each replica had.
func traffic(t *testing.T, b *harness.Bubble) (stop func() map[state.ReplicaID]int) {
	end, served := make(chan struct{}), map[state.ReplicaID]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				case <-time.After(50 * time.Millisecond):
				}
				r := b.Chat(worker%2, streamed(chat(words(fmt.Sprint("topic ", worker, " ", i), 600), fmt.Sprint("Question ", i), 5)))
				if !r.OK() {
					t.Errorf("a request failed: %v", r)
				}
				mu.Lock()
				served[r.Replica]++
				mu.Unlock()
			}
		})
	}
	return func() map[state.ReplicaID]int {
		close(end)
		wg.Wait()
		return served
	}
}

// A file is edited while requests come: who is added is used, who is removed ends what
// it has and gets no more, and nobody notices.
func TestFileOfReplicasIsEditedUnderTraffic(t *testing.T) {
	discovering(t, func(t *testing.T, b *harness.Bubble, l *listed) {
		stop := traffic(t, b)
		time.Sleep(2 * time.Second)
		system := words("leaves", 1500)
		long := b.Open(0, streamed(chat(system, "Take your time.", 200)).Body())
		long.Next()
		gone := "e0"
		if long.Replica == "e1:8000" {
			gone = "e1"
			l.engines(0, 2)
		} else {
			l.engines(1, 2)
		}
		after := "-e0:8000 e1:8000 e2:8000"
		if gone == "e1" {
			after = "e0:8000 -e1:8000 e2:8000"
		}
		b.Within(3*time.Second, "all have what the file lists", haveListed(b, strings.Fields(after)...))
		stop()
		begun := len(b.Find(state.ReplicaID(gone + ":8000")).Record().Requests)
		stop = traffic(t, b)
		time.Sleep(20 * time.Second) // slow start passes
		served := stop()
		if served["e2:8000"] == 0 || served[state.ReplicaID(gone+":8000")] != 0 {
			t.Errorf("served %v, %s was taken out", served, gone)
		}
		if now := len(b.Find(state.ReplicaID(gone + ":8000")).Record().Requests); now != begun {
			t.Errorf("%d requests came to %s after it was taken out", now-begun, gone)
		}
		for long.Next() {
		}
		ok(t, long.Reply)
		time.Sleep(12 * time.Second)
		b.Within(2*time.Second, "it is removed", haveListed(b, strings.Fields(strings.ReplaceAll(after, "-"+gone+":8000 ", ""))...))
	})
}

// A replica that comes back in time is the one that it was, and its prefixes are known.
func TestReplicaComesBackWithItsPrefixes(t *testing.T) {
	discovering(t, func(t *testing.T, b *harness.Bubble, l *listed) {
		system := words("returns", 2000)
		r := ok(t, b.Chat(0, streamed(chat(system, "One.", 3))))
		other := 0
		if r.Replica == "e0:8000" {
			other = 1
		}
		time.Sleep(time.Second)
		l.engines(other)
		b.Within(3*time.Second, "it drains", allDrain(b, r.Replica, true))
		l.engines(0, 1)
		b.Within(3*time.Second, "it is back", allDrain(b, r.Replica, false))
		for i := range 2 {
			if again := ok(t, b.Chat(i, streamed(chat(system, "Two.", 3)))); again.Replica != r.Replica || again.Matched() < 1000 {
				t.Errorf("went to %s, %d tokens known; it was %s", again.Replica, again.Matched(), r.Replica)
			}
		}
	})
}

// Mistakes in the file change nothing, are said, and are over when it is good again.
func TestMistakesInTheFileOfReplicas(t *testing.T) {
	discovering(t, func(t *testing.T, b *harness.Bubble, l *listed) {
		mistake := func(what, part string, make func()) {
			t.Helper()
			make()
			b.Within(3*time.Second, what+" is said", func() error { return warning(b.Router(1), part) })
			time.Sleep(40 * time.Second)
			if err := haveListed(b, "e0:8000", "e1:8000")(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			ok(t, b.Chat(0, streamed(chat("Short.", what, 3))))
		}
		mistake("a broken line", "not a list of replicas", func() { l.write("- url: http://e1:8000\n  rol") })
		mistake("a URL with a path", "give only scheme", func() { l.write("- http://e1:8000/v1") })
		mistake("an empty file", "is empty", func() { l.write("") })
		mistake("a file that is not there", "no such file", func() {
			if err := os.Remove(l.path); err != nil {
				t.Error(err)
			}
		})
		mistake("an empty list", "lists no replicas, where it listed 2 replicas", func() { l.engines() })
		l.engines(0, 1)
		b.Within(3*time.Second, "nothing is said", func() error {
			if warning(b.Router(1), "replicas.yaml") == nil {
				return errors.New("still warned of")
			}
			return nil
		})
		l.engines()
		b.Within(3*time.Minute, "an empty list is believed in the end", haveListed(b))
	})
}

// Routers that name each other in a file alone find each other once it does; mistakes
// in it end nothing.
func TestPeersOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := harness.NewBubble(t, harness.BubbleConfig{
			Routers: 3, Delay: time.Millisecond,
			RouterFile: func(_ int, c *node.Config) { c.Cluster.Join, c.Cluster.JoinFile = nil, path },
		})
		b.Within(10*time.Second, "the missing file is said", func() error { return warning(b.Router(0), "no such file") })
		write("# the first two\n" + b.Net.Host("r0").IP().String() + ":7946\n" + b.Net.Host("r1").IP().String() + ":7946\n")
		b.WaitReady()
		waitLeader(b, 10*time.Second)
		write("nonsense\n")
		b.Within(5*time.Second, "it is said", func() error { return warning(b.Router(2), "line 1 is not host:port") })
		write("")
		time.Sleep(time.Minute)
		b.WaitReady() // all are members still
	})
}

// A replica that was removed and is back under its id has the capacity that its engine
// says, on all routers and at once.
func TestReplicaThatIsBackHasItsCapacity(t *testing.T) {
	discovering(t, func(t *testing.T, b *harness.Bubble, l *listed) {
		known := func() error {
			return each(b, func(r *harness.Router) error {
				if c := r.Node().Sketch("e1:8000").CEff; c != 400_000 {
					return fmt.Errorf("c_eff %v", c)
				}
				return nil
			})
		}
		b.Within(3*time.Second, "its capacity", known)
		l.engines(0)
		b.Within(time.Minute, "it is removed", haveListed(b, "e0:8000"))
		if known() == nil {
			t.Fatal("it is not forgotten")
		}
		l.engines(0, 1)
		b.Within(3*time.Second, "it is back", haveListed(b, "e0:8000", "e1:8000"))
		b.Within(3*time.Second, "its capacity again", known)
	})
}
