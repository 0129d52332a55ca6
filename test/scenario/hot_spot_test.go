package scenario

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// C25 in two legs: prefill takes one replica 8 s and the others a sixth of a second,
// and answers are of one token, so that nobody is told apart by streams.
func TestC25ColdPromptsInTwoLegs(t *testing.T) {
	cfg := twoLegs(3, 3, 1, enginesim.VLLM)
	cfg.EachEngine = func(i int, c *enginesim.Config) {
		if i == 0 {
			c.Speed = 0.02
		}
	}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		one := func(i int, name string) {
			c := streamed(harness.Chat{Messages: []harness.Message{{Role: "user", Content: words(name, 1500)}}, MaxTokens: 1})
			if r := b.Chat(i%3, c); !r.OK() {
				t.Errorf("%s: %v", name, r)
			}
		}
		for w := range 3 {
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 5 * time.Millisecond)
					one(i, fmt.Sprint("cold", w, "-", i))
				})
			}
			wg.Wait()
		}
		b.Idle(30 * time.Second)
		var got [3]int
		for i := range got {
			got[i] = len(b.Engine(i).Record().Requests)
		}
		t.Logf("60 cold prompts were prefilled by %v", got)
		if got[1] > 40 || got[2] > 40 || got[0] > 10 || 2*got[0] >= min(got[1], got[2]) {
			t.Errorf("prefills %v: the first is 50 times slower than the others", got)
		}
	})
}

// popular sends n requests with one prefix over all routers in turn, and says which of
// them sent how many where, and the replicas in order.
func popular(t *testing.T, b *harness.Bubble, prefix string, n int, every time.Duration, output int) (got [3]map[state.ReplicaID]int, order []state.ReplicaID) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range got {
		got[i] = map[state.ReplicaID]int{}
	}
	for i := range n {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * every)
			s := b.Open(i%3, streamed(chat(prefix, fmt.Sprint("Question ", i, " of ", n), output)).Body())
			s.Next()
			mu.Lock()
			got[i%3][s.Replica]++
			order = append(order, s.Replica)
			mu.Unlock()
			for s.Next() {
			}
			if !s.OK() {
				t.Errorf("request %d: %v", i, s.Reply)
			}
		})
	}
	wg.Wait()
	return got, order
}

// share is a replica's share of what was sent.
func share(sent map[state.ReplicaID]int, id state.ReplicaID) float64 {
	all := 0
	for _, n := range sent {
		all += n
	}
	return float64(sent[id]) / float64(max(1, all))
}

// C26: a holder is drowned, another one is at work, a third is idle and cold. The
// second is preferred until it is busy, then the third becomes a holder; the first
// gets few; and the three routers do alike.
func TestC26PopularPrefix(t *testing.T) {
	cfg := harness.BubbleConfig{Routers: 3, Engines: 3, Delay: time.Millisecond, EachEngine: func(_ int, c *enginesim.Config) { c.MaxSeqs = 16 }}
	harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		prefix := words("popular", 5000)
		only := func(at int) { // the engine that takes requests; negative: all do
			t.Helper()
			for i, e := range b.Engines() {
				verb := "drain"
				if at < 0 || i == at {
					verb = "undrain"
				}
				if status, err := b.Router(0).Admin("POST", "/admin/v1/replicas/"+string(e.ID)+"/"+verb, nil, nil); err != nil || status != 200 {
					t.Fatalf("%s: %d %v", verb, status, err)
				}
				b.Within(2*time.Second, "all know it", allDrain(b, e.ID, verb == "drain"))
			}
		}
		var open []*harness.Stream
		fill := func(at, n int) {
			only(at)
			ok(t, b.Chat(0, streamed(chat(prefix, "First.", 2))))
			for i := range n {
				open = append(open, b.Open(i%3, streamed(chat(prefix, fmt.Sprint("Long ", at, i), 3000)).Body()))
			}
			time.Sleep(time.Second)
		}
		fill(0, 46)
		fill(1, 3)
		only(-1)
		time.Sleep(time.Second)
		if l := b.Engine(0).Load(); l.Running != 16 || l.Waiting != 30 {
			t.Fatalf("the first engine runs %d, %d wait", l.Running, l.Waiting)
		}
		got, order := popular(t, b, prefix, 40, 100*time.Millisecond, 400)
		t.Logf("by router: %v; in order: %v", got, order)
		sum := func(at int) (n int) {
			for _, m := range got {
				n += m[b.Engine(at).ID]
			}
			return n
		}
		if n := sum(0); n > 4 {
			t.Errorf("the drowned one got %d of 40", n)
		}
		if order[0] != b.Engine(1).ID || sum(1) < 10 || sum(2) < 4 {
			t.Errorf("the first went to %s; the other holder got %d, the idle one %d", order[0], sum(1), sum(2))
		}
		// Of 14 requests each a share says little.
		got, _ = popular(t, b, prefix, 900, 100*time.Millisecond, 60)
		t.Logf("by router: %v", got)
		for _, e := range b.Engines() {
			for i := range 3 {
				x, y := share(got[i], e.ID), share(got[(i+1)%3], e.ID)
				if d := math.Abs(x - y); d > 0.15 {
					t.Errorf("two routers' shares for %s are %.0f points apart", e.ID, 100*d)
				}
			}
		}
		for _, s := range open {
			s.Close()
		}
	})
}

// K11: one of three answers 503 in a millisecond while the others take 300. It does
// not attract the traffic that it is so quick to refuse.
func TestK11BlackHole(t *testing.T) {
	f := func(name string, hole enginesim.Fault) {
		t.Run(name, func(t *testing.T) {
			cfg := harness.BubbleConfig{Routers: 3, Engines: 3, Delay: time.Millisecond}
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				b.Engine(0).Fault(hole)
				began := time.Now()
				var mu sync.Mutex
				var wg sync.WaitGroup
				failed := 0
				for i := range 300 { // 30/s for 10 s
					wg.Go(func() {
						time.Sleep(time.Duration(i) * time.Second / 30)
						r := b.Chat(i%3, streamed(chat("", fmt.Sprint("Question ", i), 9)))
						mu.Lock()
						defer mu.Unlock()
						if !r.OK() {
							failed++
						}
					})
				}
				wg.Wait()
				b.Idle(10 * time.Second)
				late := 0
				record := b.Engine(0).Record().Requests
				for _, r := range record {
					if r.Arrival.After(began.Add(5 * time.Second)) {
						late++
					}
				}
				t.Logf("%d requests reached it, %d of them after 5 s; %d clients saw an error", len(record), late, failed)
				if failed > 3 {
					t.Errorf("%d of 300 clients saw an error", failed)
				}
				if late > 25 { // a fair share of what came then is 50
					t.Errorf("after 5 s it still got %d of some 150", late)
				}
			})
		})
	}
	f("503", enginesim.Fault{Kind: enginesim.FaultStatus, Status: 503})
	f("503 with Retry-After", enginesim.Fault{Kind: enginesim.FaultStatus, Status: 503, RetryAfter: 2})
	f("500", enginesim.Fault{Kind: enginesim.FaultStatus, Status: 500})
}
