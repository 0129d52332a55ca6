package scenario

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// warmPool is two routers before three engines, of which listed are in the file.
func warmPool(listed, prefixes int) harness.BubbleConfig {
	return harness.BubbleConfig{
		Routers: 2, Engines: 3, Delay: time.Millisecond,
		EachEngine: func(_ int, c *enginesim.Config) { c.MaxSeqs = 16 },
		PoolFile: func(p *node.PoolConfig) {
			p.Replicas, p.Prewarm.Prefixes = p.Replicas[:listed], prefixes
		},
	}
}

// inWarmPool runs a cluster that does not list all its engines.
func inWarmPool(t *testing.T, cfg harness.BubbleConfig, f func(t *testing.T, b *harness.Bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := harness.NewBubble(t, cfg)
		waitLeader(b, 20*time.Second)
		b.Within(10*time.Second, "all are ready", func() error {
			return each(b, func(r *harness.Router) error {
				if ready, why := r.Node().Ready(); !ready {
					return fmt.Errorf("%v", why)
				}
				return nil
			})
		})
		f(t, b)
	})
}

// hotTraffic sends n requests behind one of two prefixes, at both routers in turn.
func hotTraffic(t *testing.T, b *harness.Bubble, n int, every time.Duration, output int) []*harness.Reply {
	t.Helper()
	return paced(t, n, every, func(i int) *harness.Reply {
		return b.Chat(i%len(b.Routers()), streamed(chat(words(fmt.Sprint("handbook", i/2%2), 4000), fmt.Sprint("Question ", i, " of ", n), output)))
	})
}

// paced sends n requests, one every so often; all must be served.
func paced(t *testing.T, n int, every time.Duration, send func(i int) *harness.Reply) (list []*harness.Reply) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		time.Sleep(every)
		wg.Go(func() {
			r := send(i)
			mu.Lock()
			defer mu.Unlock()
			if list = append(list, r); !r.OK() {
				t.Errorf("request %d: %v", i, r)
			}
		})
	}
	wg.Wait()
	return list
}

// requestsAt are an engine's requests since then: those that warm it, and clients'.
func requestsAt(e *harness.Engine, since time.Time) (warm, clients []enginesim.RequestRecord) {
	for _, r := range e.Record().Requests {
		switch {
		case r.Arrival.Before(since):
		case strings.HasPrefix(r.XRequestID, "prewarm-"):
			warm = append(warm, r)
		default:
			clients = append(clients, r)
		}
	}
	return warm, clients
}

// noContent objects if a router's log or admin API tells what prompts say.
func noContent(t *testing.T, b *harness.Bubble) {
	t.Helper()
	for i, r := range b.Routers() {
		if strings.Contains(r.Log(), "handbook") || strings.Contains(r.Log(), "Question ") {
			t.Errorf("r%d's log tells what prompts say", i)
		}
		for _, path := range []string{"status", "replicas", "pools", "diagnose", "decisions", "config", "members"} {
			var out any
			if status, err := r.Admin("GET", "/admin/v1/"+path, nil, &out); err != nil || status != 200 || strings.Contains(fmt.Sprint(out), "handbook") {
				t.Errorf("r%d: %s, %d %v, or it tells what prompts say", i, path, status, err)
			}
		}
	}
}

// A third replica joins under traffic with hot prefixes. Prewarmed, it holds them when
// its first clients come; else these find it cold.
func TestNewReplicaIsWarmed(t *testing.T) {
	f := func(name string, prefixes int) {
		t.Run(name, func(t *testing.T) {
			inWarmPool(t, warmPool(2, prefixes), func(t *testing.T, b *harness.Bubble) {
				hotTraffic(t, b, 60, 100*time.Millisecond, 20)
				late, joined := b.Engine(2), time.Now()
				if status, err := b.Router(0).Admin("POST", "/admin/v1/replicas", console.ReplicaRequest{Pool: harness.Pool, URL: late.URL()}, nil); err != nil || status != 200 {
					t.Fatalf("add: %d %v", status, err)
				}
				hotTraffic(t, b, 120, 60*time.Millisecond, 80)
				warm, clients := requestsAt(late, joined)
				if len(clients) < 5 {
					t.Fatalf("only %d clients came", len(clients))
				}
				var hits []int
				for _, r := range clients[:5] {
					hits = append(hits, 100*r.CachedTokens/r.PromptTokens)
				}
				t.Logf("%d prompts warmed it; the first clients came after %v and found %v %% cached", len(warm), clients[0].Arrival.Sub(joined), hits)
				if prefixes == 0 {
					if len(warm) != 0 || hits[0] > 10 {
						t.Errorf("not prewarmed, %d prompts came and the first client found %d %% cached", len(warm), hits[0])
					}
					return
				}
				if len(warm) != 2 {
					t.Errorf("%d prompts warmed it, want one for each prefix", len(warm))
				}
				for _, r := range warm {
					if r.Stream || r.OutputTokens != 1 || r.Arrival.After(clients[0].Arrival) {
						t.Errorf("streamed %v, %d tokens, after %v", r.Stream, r.OutputTokens, r.Arrival.Sub(joined))
					}
				}
				for i, h := range hits {
					if h < 80 {
						t.Errorf("client %d found %d %% cached", i, h)
					}
				}
				noContent(t, b)
			})
		})
	}
	f("prewarmed", 4)
	f("cold", 0)
}

// A restarted replica is warmed too, though it has long been in the pool.
func TestRestartedReplicaIsWarmed(t *testing.T) {
	inWarmPool(t, warmPool(3, 4), func(t *testing.T, b *harness.Bubble) {
		hotTraffic(t, b, 60, 100*time.Millisecond, 20)
		e := b.Engine(0)
		e.Kill()
		hotTraffic(t, b, 30, 100*time.Millisecond, 20)
		back := time.Now()
		e.Start()
		hotTraffic(t, b, 120, 60*time.Millisecond, 80)
		warm, clients := requestsAt(e, back)
		t.Logf("%d prompts warmed it, %d clients came", len(warm), len(clients))
		if len(warm) != 2 {
			t.Errorf("%d prompts warmed it, want one for each prefix", len(warm))
		}
		if len(clients) == 0 {
			t.Error("no client came")
		}
		for _, r := range clients {
			if len(warm) > 0 && r.Arrival.Before(warm[len(warm)-1].FirstToken) {
				t.Errorf("a client came before it was warm")
			}
		}
	})
}

// A new replica that takes requests and never answers, or fails, delays nobody while
// it is being warmed.
func TestNobodyWaitsForAReplicaThatCannotBeWarmed(t *testing.T) {
	f := func(name string, fault enginesim.Fault) {
		t.Run(name, func(t *testing.T) {
			inWarmPool(t, warmPool(2, 4), func(t *testing.T, b *harness.Bubble) {
				hotTraffic(t, b, 60, 100*time.Millisecond, 20)
				late, joined := b.Engine(2), time.Now()
				late.Fault(fault)
				if status, err := b.Router(0).Admin("POST", "/admin/v1/replicas", console.ReplicaRequest{Pool: harness.Pool, URL: late.URL()}, nil); err != nil || status != 200 {
					t.Fatalf("add: %d %v", status, err)
				}
				for _, r := range hotTraffic(t, b, 80, 100*time.Millisecond, 20) {
					if r.TTFT() > 3*time.Second {
						t.Errorf("a client waited %v", r.TTFT())
					}
				}
				warm, _ := requestsAt(late, joined)
				// Two failures end it at a router. The first in order hears of the replica
				// after the one that was told, which may have had its turn by then.
				if most := 2 * len(b.Routers()); len(warm) == 0 || len(warm) > most {
					t.Errorf("%d prompts were sent there, want 1 to %d", len(warm), most)
				}
				late.Fault(enginesim.Fault{Kind: enginesim.FaultNone})
				b.Within(state.MaxWarming, "all take it for ready", func() error {
					return each(b, func(r *harness.Router) error {
						if w := r.Node().View().Weights.Of(late.ID); w.Warms(time.Now()) {
							return fmt.Errorf("it is being warmed")
						}
						return nil
					})
				})
			})
		})
	}
	f("hangs", enginesim.Fault{Kind: enginesim.FaultSilence})
	f("fails", enginesim.Fault{Kind: enginesim.FaultStatus, Status: 500})
}

// alone says which of two engines holds the first hot prefix, how many of both prefixes
// it alone holds, and which is the other engine.
func alone(t *testing.T, b *harness.Bubble) (victim, other *harness.Engine, n int) {
	t.Helper()
	holds := func(i, prefix int) bool {
		c := chat(words(fmt.Sprint("handbook", prefix), 4000), "Who holds it?", 1)
		return matched(t, b.Alive()[0], b.Engine(i).ID, c) > 3000
	}
	at := 0
	if !holds(0, 0) {
		at = 1
	}
	if !holds(at, 0) || holds(1-at, 0) {
		t.Fatal("the first prefix is not at one engine alone")
	}
	for prefix := range 2 {
		if holds(at, prefix) && !holds(1-at, prefix) {
			n++
		}
	}
	return b.Engine(at), b.Engine(1 - at), n
}

func drain(t *testing.T, b *harness.Bubble, e *harness.Engine) time.Time {
	t.Helper()
	now := time.Now()
	if status, err := b.Router(0).Admin("POST", "/admin/v1/replicas/"+string(e.ID)+"/drain", nil, nil); err != nil || status != 200 {
		t.Fatalf("drain: %d %v", status, err)
	}
	return now
}

// What a draining replica alone holds goes to the others, once, however many routers
// there are; what they hold does not.
func TestDrainingReplicaHandsOver(t *testing.T) {
	f := func(routers int) {
		t.Run(fmt.Sprint(routers, " routers"), func(t *testing.T) {
			cfg := warmPool(2, 4)
			cfg.Routers = routers
			inWarmPool(t, cfg, handsOver)
		})
	}
	f(1)
	f(2)
	f(3)
}

func handsOver(t *testing.T, b *harness.Bubble) {
	hotTraffic(t, b, 60, 500*time.Millisecond, 5) // too little for a second holder
	victim, other, want := alone(t, b)
	var told []func() []console.Event
	for _, r := range b.Routers() {
		told = append(told, r.Follow(console.KindPrewarm))
	}
	drained := drain(t, b, victim)
	time.Sleep(3 * time.Second)
	warm, _ := requestsAt(other, drained)
	var events []console.Event
	for _, stop := range told {
		events = append(events, stop()...)
	}
	if len(events) != len(warm) {
		t.Errorf("%d prompts came, %d are told: %+v", len(warm), len(events), events)
	}
	for _, e := range events {
		if e.Kind != console.KindPrewarm || e.Pool != harness.Pool || e.Replica != string(other.ID) || e.From != string(victim.ID) ||
			e.Outcome != "served" || e.PromptTokens < 3000 || e.At.Before(drained) || strings.Contains(fmt.Sprint(e), "handbook") {
			t.Errorf("told: %+v", e)
		}
	}
	again, _ := requestsAt(victim, drained)
	t.Logf("%d of 2 prefixes were at the victim alone", want)
	if len(warm) != want || len(again) != 0 {
		t.Errorf("%d prompts were handed over, want %d; %d were sent to the victim", len(warm), want, len(again))
	}
	for i, r := range warm {
		if i > 0 && r.Arrival.Before(warm[i-1].End) {
			t.Error("two were under way at a time")
		}
	}
	for i := range b.Routers() {
		r := ok(t, b.Chat(i, streamed(chat(words("handbook0", 4000), "And now?", 3))))
		if u := r.Usage(); u == nil || r.Replica != other.ID {
			t.Errorf("r%d: served by %s: %v", i, r.Replica, r)
		}
	}
	_, clients := requestsAt(other, drained)
	for _, c := range clients {
		if c.CachedTokens < 3000 {
			t.Errorf("a client found %d tokens cached", c.CachedTokens)
		}
	}
	noContent(t, b)
}

// The router that hands over is killed at its first prompt: another one does the rest.
func TestAnotherRouterHandsOver(t *testing.T) {
	cfg := warmPool(2, 4)
	cfg.Routers = 3
	inWarmPool(t, cfg, func(t *testing.T, b *harness.Bubble) {
		hotTraffic(t, b, 60, 500*time.Millisecond, 5)
		victim, other, want := alone(t, b)
		drained := drain(t, b, victim)
		killed := killSender(t, b, other)
		time.Sleep(6 * time.Second)
		warm, _ := requestsAt(other, drained)
		t.Logf("r%d was killed; %d prompts came, of %d", killed, len(warm), want)
		if len(warm) < want || len(warm) > want+1 {
			t.Errorf("%d prompts came, want %d, or one more for the one that was cut off", len(warm), want)
		}
		for i := range want {
			r := ok(t, b.Chat((killed+1)%3, streamed(chat(words(fmt.Sprint("handbook", i), 4000), "And now?", 3))))
			if _, got := b.Served(r.ID); got.CachedTokens < 3000 {
				t.Errorf("prefix %d: %d tokens cached", i, got.CachedTokens)
			}
		}
	})
}

// killSender kills the router that first has a prompt under way at an engine which no
// client is sent to.
func killSender(t *testing.T, b *harness.Bubble, e *harness.Engine) (killed int) {
	t.Helper()
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		for i, r := range b.Routers() {
			if x := r.Node().View().Replica(e.ID); x != nil && x.Cell.Load().Prefill > 0 {
				r.Kill()
				return i
			}
		}
	}
	t.Fatal("nobody sent anything")
	return -1
}

// The router that warms a new replica is killed at its first prompt: another one sends
// what is missing before clients come.
func TestAnotherRouterWarms(t *testing.T) {
	cfg := warmPool(2, 4)
	cfg.Routers = 3
	inWarmPool(t, cfg, func(t *testing.T, b *harness.Bubble) {
		hotTraffic(t, b, 60, 100*time.Millisecond, 20)
		late, joined := b.Engine(2), time.Now()
		if status, err := b.Router(0).Admin("POST", "/admin/v1/replicas", console.ReplicaRequest{Pool: harness.Pool, URL: late.URL()}, nil); err != nil || status != 200 {
			t.Fatalf("add: %d %v", status, err)
		}
		killed := killSender(t, b, late)
		time.Sleep(8 * time.Second)
		warm, _ := requestsAt(late, joined)
		t.Logf("r%d was killed; %d prompts came", killed, len(warm))
		if len(warm) < 2 || len(warm) > 3 {
			t.Errorf("%d prompts came, want one for each of 2 prefixes, or one more for the one that was cut off", len(warm))
		}
		for _, r := range b.Alive() {
			for i := range 2 {
				c := chat(words(fmt.Sprint("handbook", i), 4000), "Is it there?", 1)
				if n := matched(t, r, late.ID, c); n < 3000 {
					t.Errorf("prefix %d: %d tokens are known to be there", i, n)
				}
			}
		}
	})
}

// While clients' prompts are being prefilled at the only replica that stays, it gets
// none for its cache's sake; afterwards it does.
func TestNobodyIsDisplacedByAHandOver(t *testing.T) {
	inWarmPool(t, warmPool(2, 4), func(t *testing.T, b *harness.Bubble) {
		hotTraffic(t, b, 60, 500*time.Millisecond, 5)
		victim, other, want := alone(t, b)
		drained := drain(t, b, victim)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if r := b.Chat(i%2, streamed(chat(words(fmt.Sprint("other", i), 3000), "Something else", 5))); !r.OK() {
					t.Errorf("client %d: %v", i, r)
				}
			})
			time.Sleep(350 * time.Millisecond) // a prefill takes 430 ms
		}
		wg.Wait()
		busy := time.Now()
		time.Sleep(5 * time.Second)
		warm, clients := requestsAt(other, drained)
		early := 0
		for _, w := range warm {
			if w.Arrival.Before(busy) {
				early++
			}
			for _, c := range clients {
				if c.Arrival.Before(w.Arrival.Add(-50*time.Millisecond)) && c.FirstToken.After(w.Arrival) {
					t.Errorf("a prompt came %v after a client's, before that had its first token", w.Arrival.Sub(c.Arrival))
				}
			}
		}
		t.Logf("%d prompts came while clients were served, %d in all", early, len(warm))
		if len(warm) < want {
			t.Errorf("%d prompts came, want %d", len(warm), want)
		}
	})
}
