package scenario

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// loraCluster is two routers and three engines: the first lists adapter a1, the second
// could and the third never does.
func loraCluster(kind enginesim.Kind) harness.BubbleConfig {
	cfg := enginesim.DefaultConfig()
	cfg.Kind, cfg.KeepBodies = kind, true
	return harness.BubbleConfig{Routers: 2, Engines: 3, Engine: cfg, Delay: 200 * time.Microsecond, EachEngine: func(i int, c *enginesim.Config) {
		if i < 2 {
			c.MaxLoRAs = 2
		}
		if i == 0 {
			c.Adapters = []string{"a1"}
		}
	}}
}

// lora asks for an adapter through a router.
func lora(b *harness.Bubble, router int, adapter, text string) *harness.Reply {
	return b.Chat(router, harness.Chat{Model: adapter, MaxTokens: 8, Messages: []harness.Message{{Role: "user", Content: text}}})
}

// many asks n times, in bursts of twenty through all routers in turn, and counts answers
// by engine. All must be good and name the adapter.
func many(b *harness.Bubble, n int, adapter, text string) map[string]int {
	b.T.Helper()
	var mu sync.Mutex
	got := map[string]int{}
	for at := 0; at < n; at += 20 {
		var wg sync.WaitGroup
		for i := range min(20, n-at) {
			wg.Go(func() {
				r := lora(b, (at+i)%len(b.Routers()), adapter, fmt.Sprintf("%s %d", text, at+i))
				mu.Lock()
				defer mu.Unlock()
				if r.Status != http.StatusOK || r.Err != nil || !strings.Contains(string(r.Body), fmt.Sprintf(`"model":%q`, adapter)) {
					b.T.Errorf("%s: %d %v %.300s", adapter, r.Status, r.Err, r.Body)
				}
				if e := b.Find(r.Replica); e != nil {
					got[e.Name]++
				}
			})
		}
		wg.Wait()
	}
	return got
}

// lists waits until every router knows that an engine lists an adapter, or does not.
func lists(b *harness.Bubble, e *harness.Engine, adapter string, want bool) time.Duration {
	b.T.Helper()
	return b.Within(2*time.Second, fmt.Sprintf("%s lists %s: %v", e.Name, adapter, want), func() error {
		return each(b, func(r *harness.Router) error {
			if r.Replica(e.ID).ListsAdapter(adapter) != want {
				return fmt.Errorf("%s does not know", r.Name)
			}
			return nil
		})
	})
}

// refusedWith checks that every router refuses an adapter so.
func refusedWith(b *harness.Bubble, adapter string, status int, code string, later bool) {
	b.T.Helper()
	for i := range b.Routers() {
		r := lora(b, i, adapter, "refused")
		if r.Status != status || !strings.Contains(string(r.Body), code) || (r.Header.Get("Retry-After") != "") != later {
			b.T.Errorf("%s: %d %v %.300s, want %d %s", adapter, r.Status, r.Header, r.Body, status, code)
		}
	}
}

func TestC73AdaptersGoWhereTheyAreListed(t *testing.T) {
	t.Parallel()
	for _, kind := range []enginesim.Kind{enginesim.VLLM, enginesim.SGLang} {
		t.Run(string(kind), func(t *testing.T) {
			harness.InBubble(t, loraCluster(kind), func(t *testing.T, b *harness.Bubble) {
				first, second, third := b.Engine(0), b.Engine(1), b.Engine(2)
				lists(b, first, "a1", true)
				if got := many(b, 60, "a1", "first"); got["e0"] != 60 {
					t.Errorf("the only holder got %v", got)
				}
				for _, r := range first.Record().Requests {
					want := "a1"
					if kind == enginesim.SGLang {
						want = harness.Model + ":a1"
					}
					if r.Model != want {
						t.Fatalf("the engine was asked for %q, want %q", r.Model, want)
					}
				}

				// One more replica lists it: it takes its share within a moment.
				second.AddAdapter("a1", "/adapters/a1")
				if d := lists(b, second, "a1", true); d > time.Second {
					t.Errorf("known after %v", d)
				}
				got := many(b, 60, "a1", "second")
				if got["e1"] < 15 || got["e0"]+got["e1"] != 60 {
					t.Errorf("of both holders: %v", got)
				}

				// The first one goes away.
				first.Kill()
				b.Settle(time.Second)
				if got := many(b, 30, "a1", "third"); got["e1"] != 30 {
					t.Errorf("after the first holder's end: %v", got)
				}
				var list []console.Replica
				if _, err := b.Router(0).Admin("GET", "/admin/v1/replicas", nil, &list); err != nil || len(list) != 3 {
					t.Fatal(err, list)
				}
				if len(list[1].Adapters) != 1 || list[1].Adapters[0] != "a1" || len(list[2].Adapters) != 0 || list[0].State != "unreachable" {
					t.Errorf("status: %+v", list)
				}

				// Nobody else: whoever has it may be back.
				second.RemoveAdapter("a1")
				lists(b, second, "a1", false)
				refusedWith(b, "a1", http.StatusServiceUnavailable, "", true)
				first.Start()
				b.Within(15*time.Second, "a1 again", func() error {
					if r := lora(b, 0, "a1", "back"); r.Status != http.StatusOK || r.Replica != first.ID {
						return fmt.Errorf("%d at %s", r.Status, r.Replica)
					}
					return nil
				})

				// What no engine lists any more is unknown.
				first.RemoveAdapter("a1")
				lists(b, first, "a1", false)
				refusedWith(b, "a1", http.StatusNotFound, "model_not_found", false)

				for _, r := range third.Record().Requests {
					t.Errorf("the engine without adapters got a request for %s", r.Model)
				}
				b.Idle(5 * time.Second)
			})
		})
	}
}

// A lost reader is no lost adapter.
func TestC73AdaptersOutliveReadings(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, loraCluster(enginesim.VLLM), func(t *testing.T, b *harness.Bubble) {
		lists(b, b.Engine(0), "a1", true)
		b.Engine(0).Fault(enginesim.Fault{Kind: enginesim.FaultHangMetrics, Duration: time.Minute})
		b.Settle(20 * time.Second)
		if got := many(b, 6, "a1", "blind"); got["e0"] != 6 {
			t.Errorf("unread: %v", got)
		}
	})
}

// Ten adapters in turn, every other request for a hot one, at four engines with room
// for two each: the hot one settles at a few, and engines seldom load.
func TestC73RotationOfAdapters(t *testing.T) {
	t.Parallel()
	cfg := enginesim.DefaultConfig()
	cfg.MaxLoRAs = 2
	for i := range 10 {
		cfg.Adapters = append(cfg.Adapters, fmt.Sprintf("a%d", i))
	}
	harness.InBubble(t, harness.BubbleConfig{Routers: 2, Engines: 4, Engine: cfg, Delay: 200 * time.Microsecond}, func(t *testing.T, b *harness.Bubble) {
		lists(b, b.Engine(3), "a9", true)
		hot := map[string]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		const n = 400
		for i := range n {
			adapter := "a0"
			if i%2 == 1 {
				adapter = cfg.Adapters[1+i/2%9]
			}
			wg.Go(func() {
				r := b.Chat(i%2, harness.Chat{Model: adapter, MaxTokens: 20, Messages: []harness.Message{{Role: "user", Content: fmt.Sprintf("%d of many", i)}}})
				mu.Lock()
				defer mu.Unlock()
				if r.Status != http.StatusOK {
					t.Errorf("%s: %d %.200s", adapter, r.Status, r.Body)
				} else if adapter == "a0" {
					hot[b.Find(r.Replica).Name]++
				}
			})
			time.Sleep(40 * time.Millisecond)
		}
		wg.Wait()
		loads := int64(0)
		for _, e := range b.Engines() {
			loads += e.Totals().AdapterLoads
		}
		few := 0
		for _, k := range hot {
			if k > n/2/20 {
				few++
			}
		}
		t.Logf("hot at %v, %d loads of %d requests", hot, loads, n)
		if few > 3 || loads > n/3 {
			t.Errorf("hot at %v, %d loads of %d requests", hot, loads, n)
		}
	})
}
