package autoscale

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/receiver"
)

// rig is an actuator together with what it acts on, which the leaders of all terms
// share. To try another actuator, write a constructor and add it to rigs.
type rig struct {
	// actuator is the one of one more router.
	actuator func() Actuator
	// running counts the replicas that run and are not being stopped; nil: there never
	// are any.
	running func() int
	// changes counts the changes that were made outside; wanted is how many of them a
	// decision is.
	changes func() int
	wanted  func(from, to int) int
	// second is the real time that a simulated second takes, where something outside
	// needs it; 0: none.
	second time.Duration
}

var rigs = map[string]func(t *testing.T, w *world) rig{
	"dry_run": dryRunRig,
	"process": processRig,
	"webhook": webhookRig,
}

func distance(from, to int) int { return max(from-to, to-from) }

// dryRunRig records; one record is one change.
func dryRunRig(*testing.T, *world) rig {
	d := actuator.NewDryRun()
	return rig{
		actuator: func() Actuator { return d },
		changes:  func() int { return len(d.Records()) },
		wanted:   func(int, int) int { return 1 },
	}
}

// logged is a log that may be written by several and counted in.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(messages ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		n += bytes.Count(l.b.Bytes(), fmt.Appendf(nil, `"message":%q`, m))
	}
	return n
}

// processRig runs this test's binary as the engine.
func processRig(t *testing.T, w *world) rig {
	log := &logged{}
	cfg := actuator.ProcessConfig{Dir: t.TempDir(), Host: "h1", Command: []string{os.Args[0], "engine", "{port}"}, Log: zerolog.New(log)}
	router := func() *actuator.Process {
		p, err := actuator.NewProcess(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	w.pending = time.Hour // simulated seconds are short ones
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := router().StopAll(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	return rig{
		actuator: func() Actuator { return router() },
		running: func() (n int) {
			a, err := router().List(context.Background(), chat)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range a.Instances {
				if !i.Stopping {
					n++
				}
			}
			return n
		},
		changes: func() int { return log.count("process started", "process asked to end") },
		wanted:  distance,
		second:  5 * time.Millisecond,
	}
}

// engine answers /health until it is told to end.
func engine(port string) int {
	if err := http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})); err != nil {
		fmt.Println(err)
	}
	return 1
}

// webhookRig calls a receiver on a loopback port. Each change has to come in one call,
// all calls for a decision have its id, and no two decisions share one.
func webhookRig(t *testing.T, w *world) rig {
	secret := []byte("a secret of the tests, long enough")
	r := &receiver.Receiver{Secret: secret, Now: func() time.Time { return w.now }, StartTime: 20 * time.Second, StopTime: 2 * time.Second}
	s := httptest.NewServer(r)
	t.Cleanup(func() {
		s.Close()
		ids := map[uint64]string{}
		changed := map[string]int{}
		for _, c := range r.Calls() {
			if c.Wish.Decision == 0 {
				continue
			}
			if id := ids[c.Wish.Decision]; id != "" && id != c.ID {
				t.Errorf("decision %d was told as %s and as %s", c.Wish.Decision, id, c.ID)
			}
			ids[c.Wish.Decision] = c.ID
			if c.Started+c.Stopped > 0 {
				changed[c.ID]++
			}
		}
		for id, n := range changed {
			if n != 1 {
				t.Errorf("%s changed something in %d calls", id, n)
			}
		}
	})
	return rig{
		actuator: func() Actuator {
			h, err := actuator.NewWebhook(actuator.WebhookConfig{
				Pool: chat.Pool, URL: s.URL, Secrets: func() ([][]byte, error) { return [][]byte{secret}, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			return h
		},
		running: func() int { return r.Running(chat.Pool, string(state.RoleBoth)) },
		changes: func() (n int) {
			for _, c := range r.Calls() {
				n += c.Started + c.Stopped
			}
			return n
		},
		wanted: distance,
	}
}
