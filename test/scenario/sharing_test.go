package scenario

import (
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// tally is what a workload came to.
type tally struct {
	mu             sync.Mutex
	prompt, cached int
	requests       int
	ttft, worst    time.Duration // sum, greatest
}

func (y *tally) add(r *harness.Reply) {
	u := r.Usage()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.requests++
	y.ttft += r.TTFT()
	y.worst = max(y.worst, r.TTFT())
	y.prompt += u.PromptTokens
	y.cached += u.PromptTokensDetails.CachedTokens
}

func (y *tally) hitRate() float64    { return float64(y.cached) / float64(y.prompt) }
func (y *tally) mean() time.Duration { return y.ttft / time.Duration(y.requests) }

// chats runs conversations of several turns, each turn through a router drawn at
// random, and begins them one after another.
func chats(t testing.TB, b *harness.Bubble, seed int64, conversations, turns int) *tally {
	t.Helper()
	var y tally
	var wg sync.WaitGroup
	for c := range conversations {
		rng := rand.New(rand.NewSource(seed*1000 + int64(c)))
		wg.Go(func() {
			time.Sleep(time.Duration(c)*300*time.Millisecond + time.Duration(rng.Int63n(int64(300*time.Millisecond))))
			talk := harness.Chat{
				Messages: []harness.Message{{Role: "system", Content: words(fmt.Sprint("talk", seed, "/", c), 1200)}},
				Stream:   true, Usage: true, MaxTokens: 60,
			}
			for turn := range turns {
				talk.Messages = append(talk.Messages, harness.Message{Role: "user", Content: words(fmt.Sprint("ask", seed, "/", c, "/", turn), 200)})
				r := b.Chat(rng.Intn(len(b.Routers())), talk)
				if !r.OK() || r.Usage() == nil {
					t.Errorf("conversation %d, turn %d: %v", c, turn, r)
					return
				}
				y.add(r)
				talk.Messages = append(talk.Messages, harness.Message{Role: "assistant", Content: r.Text()})
				time.Sleep(time.Second + time.Duration(rng.Int63n(int64(2*time.Second))))
			}
		})
	}
	wg.Wait()
	b.Idle(time.Second)
	return &y
}

// The same conversations over one router, over three, and over three that tell
// each other nothing: three are as good as one because they share, and only then.
func TestSharingMakesThreeRoutersAsGoodAsOne(t *testing.T) {
	t.Parallel()
	run := func(name string, cfg harness.BubbleConfig) (y *tally) {
		t.Run(name, func(t *testing.T) {
			cfg.Engines, cfg.Delay = 4, time.Millisecond
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) { y = chats(t, b, 1, 24, 5) })
			t.Logf("hit rate %.3f, mean TTFT %v", y.hitRate(), y.mean())
		})
		return y
	}
	one := run("one router", harness.BubbleConfig{Routers: 1})
	three := run("three routers", harness.BubbleConfig{Routers: 3})
	mute := run("three routers that share nothing", harness.BubbleConfig{Routers: 3, NoSharing: true})
	if three.hitRate() < one.hitRate()-0.02 {
		t.Errorf("hit rate %.3f over three routers, %.3f over one", three.hitRate(), one.hitRate())
	}
	if mute.hitRate() > three.hitRate()-0.1 {
		t.Errorf("hit rate %.3f without sharing, %.3f with it: the scenario shows nothing", mute.hitRate(), three.hitRate())
	}
	if three.mean() > one.mean()*11/10 {
		t.Errorf("mean TTFT %v over three routers, %v over one", three.mean(), one.mean())
	}
}

// A burst of requests with one identical cold prefix, through routers that can't
// have heard of each other's yet: some replicas prefill it, not all, and no request
// waits longer for it than if all had been sent to one replica. How many is a mean of
// bursts: now and then each router spills its last requests to a replica of its own.
func TestBurstOfOneColdPrefix(t *testing.T) {
	t.Parallel()
	run := func(name string, cfg harness.BubbleConfig) (y *tally, holders int) {
		t.Run(name, func(t *testing.T) {
			cfg.Delay = time.Millisecond
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) {
				y = &tally{}
				var wg sync.WaitGroup
				system := words("burst", 6200) // about 8k tokens as the engine counts
				for i := range 32 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 5 * time.Millisecond / 32)
						r := b.Chat(i%len(b.Routers()), streamed(chat(system, fmt.Sprint("Question ", i), 16)))
						if !r.OK() {
							t.Errorf("request %d: %v", i, r)
							return
						}
						y.add(r)
					})
				}
				wg.Wait()
				for _, e := range b.Engines() {
					if len(e.Record().Requests) > 0 {
						holders++
					}
				}
				t.Logf("%d replicas prefill it, %d prompt tokens, TTFT %v at the mean, %v at worst", holders, y.prompt/y.requests, y.mean(), y.worst)
				b.Idle(time.Second)
			})
		})
		return y, holders
	}
	alone, _ := run("one replica", harness.BubbleConfig{Routers: 4, Engines: 1})
	used := map[int]float64{}
	for routers, bursts := range map[int]int{1: 1, 4: 3} {
		for range bursts {
			y, holders := run(fmt.Sprintf("%d routers", routers), harness.BubbleConfig{Routers: routers, Engines: 16})
			used[routers] += float64(holders) / float64(bursts)
			if y.mean() > alone.mean() || y.worst > alone.worst {
				t.Errorf("%d routers: TTFT %v at the mean, %v at worst; %v and %v with one replica", routers, y.mean(), y.worst, alone.mean(), alone.worst)
			}
		}
		if used[routers] > 6 {
			t.Errorf("%d routers: more than a handful of replicas prefill it: %.1f", routers, used[routers])
		}
	}
	if d := used[4] - used[1]; d < -2 || d > 2 {
		t.Errorf("%.1f replicas prefill it with one router, %.1f with four", used[1], used[4])
	}
}
