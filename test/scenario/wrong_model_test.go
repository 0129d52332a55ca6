package scenario

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// shown checks what people are told of a replica by a router: in `hearsay replicas`,
// in the metric, and once in status's warnings. It returns the words.
func shown(t *testing.T, r *harness.Router, e *harness.Engine, want state.Condition) (words string) {
	t.Helper()
	var list []console.Replica
	if _, err := r.Admin("GET", "/admin/v1/replicas", nil, &list); err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		if x.ID == string(e.ID) {
			words = x.Trouble
			if x.State != string(want) {
				t.Errorf("%s: %s is shown as %s (%s), want %s", r.Name, e.ID, x.State, x.Trouble, want)
			}
		}
	}
	m := metrics(t, r)
	if m.sum("hearsay_replica_state", "replica", string(e.ID)) != 1 || m.sum("hearsay_replica_state", "replica", string(e.ID), "state", string(want)) != 1 {
		t.Errorf("%s: the metric does not show %s as %s", r.Name, e.ID, want)
	}
	once := 1
	if want.TakesRequests() {
		once = 0
	}
	if all := warnings(t, r); strings.Count(all, string(e.ID)) != once || once == 1 && !strings.Contains(all, fmt.Sprintf("replica %s is %s: ", e.ID, want)) {
		t.Errorf("%s warns %q of %s, which is %s", r.Name, all, e.ID, want)
	}
	return words
}

// unavailable checks that a client is told to ask again later.
func unavailable(t *testing.T, r *harness.Reply) {
	t.Helper()
	after, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if r.Status != 503 || err != nil || after < 1 || !json.Valid(r.Body) || !strings.Contains(string(r.Body), "No replica of this model") {
		t.Errorf("the client got %v, Retry-After %q", r, r.Header.Get("Retry-After"))
	}
}

// The one replica of the pool's model goes away; beside it is an engine of another
// model, which would only say that it does not know this one.
func TestEngineOfAnotherModelStandsInForNobody(t *testing.T) {
	t.Parallel()
	f := func(name string, maxEjected node.Percent, ejected bool) {
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, harness.BubbleConfig{
				Routers: 2, Engines: 2, Delay: time.Millisecond,
				EachEngine: func(i int, c *enginesim.Config) {
					if i == 1 {
						c.Model = "other-7b"
					}
				},
				PoolFile: func(p *node.PoolConfig) { p.Breaker.Failures, p.Breaker.MaxEjected = 3, maxEjected },
			}, func(t *testing.T, b *harness.Bubble) {
				right, other := b.Engine(0), b.Engine(1)
				ask := func(i int) *harness.Reply { return b.Chat(i%2, chat("Be brief.", fmt.Sprint("Hello ", i), 5)) }
				time.Sleep(time.Second)
				for i := range 4 {
					if r := ok(t, ask(i)); r.Replica != right.ID {
						t.Errorf("request %d went to %s", i, r.Replica)
					}
				}
				right.Kill()
				for i := range 20 { // from the first moment on
					unavailable(t, ask(i))
					time.Sleep(time.Duration(i*i) * 10 * time.Millisecond)
				}
				for i, r := range b.Routers() {
					unavailable(t, ask(i))
					x := r.Explain(chat("Be brief.", "Hello.", 5).Body())
					for _, c := range x.Candidates {
						if c.Replica == other.ID && (c.Excluded != routing.ExcludedWrongModel || c.Despite != "") || x.Replica == other.ID {
							t.Errorf("%s explains %+v", r.Name, x)
						}
					}
					if words := shown(t, r, other, state.WrongModel); !strings.Contains(words, `does not serve "sim-70b", it serves other-7b`) {
						t.Errorf("%s says %q of %s", r.Name, words, other.ID)
					}
					if n := strings.Count(r.Log(), "replica is of the wrong model"); n != 1 || !strings.Contains(r.Log(), `it serves other-7b`) {
						t.Errorf("%s tells %d times of the wrong model in its log", r.Name, n)
					}
					if words := shown(t, r, right, state.Unreachable); !strings.Contains(words, "connection refused") || strings.Contains(words, "ejected after") != ejected {
						t.Errorf("%s says %q of %s", r.Name, words, right.ID)
					}
				}
				right.Start()
				b.WaitReady()
				time.Sleep(20 * time.Second) // the end of an ejection
				for i := range 4 {
					time.Sleep(time.Second) // the first one is on trial
					if r := ok(t, ask(i)); r.Replica != right.ID {
						t.Errorf("back, request %d went to %s", i, r.Replica)
					}
				}
				if n := len(other.Record().Requests); n > 0 {
					t.Errorf("the other engine got %d requests", n)
				}
			})
		})
	}
	f("which may not be ejected", 0.5, false)
	f("which is ejected", 1, true)
}

// The pool's model is wrong for all of its engines: they say so themselves.
func TestWrongModelOfAPool(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{
		Engines: 2, Delay: time.Millisecond, PoolFile: func(p *node.PoolConfig) { p.UpstreamModel = "misspelt" },
	}, func(t *testing.T, b *harness.Bubble) {
		time.Sleep(time.Second)
		c := chat("Be brief.", "Hello.", 5)
		if r := b.Chat(0, c); r.Status != 404 || !strings.Contains(string(r.Body), "misspelt") {
			t.Errorf("the client got %v", r)
		}
		for _, k := range b.Router(0).Explain(c.Body()).Candidates {
			if k.Excluded != "" || k.Despite != routing.ExcludedWrongModel {
				t.Errorf("explained: %+v", k)
			}
		}
		for _, e := range b.Engines() {
			shown(t, b.Router(0), e, state.WrongModel)
		}
	})
}

// An engine whose metrics are not there answers and is sent requests: people are told
// that it can't be read, and not that it can't be reached.
func TestEngineWithoutMetricsIsUnreadable(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 2, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		e := b.Engine(0)
		e.Fault(enginesim.Fault{Kind: enginesim.FaultMetricsStatus, Status: 404})
		time.Sleep(10 * time.Second)
		check := func() {
			t.Helper()
			for _, r := range b.Routers() {
				if words := shown(t, r, e, state.Unreadable); !strings.Contains(words, "set its pool's engine to openai") {
					t.Errorf("%s says %q", r.Name, words)
				}
				shown(t, r, b.Engine(1), state.Ready)
			}
		}
		check()
		b.Engine(1).Kill()
		for i := range 10 {
			if r := ok(t, b.Chat(i%2, chat("Be brief.", fmt.Sprint("Hello ", i), 5))); r.Replica != e.ID {
				t.Errorf("request %d went to %s", i, r.Replica)
			}
		}
		b.Engine(1).Start()
		b.Engine(0).Fault(enginesim.Fault{Kind: enginesim.FaultNone})
		b.WaitReady()
		time.Sleep(time.Second) // the metric is as of the balance loop's last step
		shown(t, b.Router(0), e, state.Ready)
	})
}
