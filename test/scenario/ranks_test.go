package scenario

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

func withRanks(n int, kind enginesim.Kind, engine string, cfg harness.BubbleConfig) harness.BubbleConfig {
	cfg.Engine = enginesim.DefaultConfig()
	cfg.Engine.Kind, cfg.Engine.DPRanks = kind, n
	cfg.Delay = time.Millisecond
	cfg.PoolFile = func(p *node.PoolConfig) { p.DPRanks, p.Engine = n, engine }
	return cfg
}

// finished is how many requests each rank of an engine has served.
func finished(e *harness.Engine) (n []int64) {
	for i := range e.Config().DPRanks {
		n = append(n, e.Rank(i).Record().Finished)
	}
	return n
}

// Two ranks behind one address are two replicas: chats spread over them, each stays
// where its history is, whichever router it comes through.
func TestChatsStayAtTheirRank(t *testing.T) {
	t.Parallel()
	f := func(name string, kind enginesim.Kind, engine string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, withRanks(2, kind, engine, harness.BubbleConfig{Routers: 2}), func(t *testing.T, b *harness.Bubble) {
				e := b.Engine(0)
				const chats, turns = 6, 4
				at := map[int]state.ReplicaID{}
				prompt, cached := 0, 0
				talks, first := make([]harness.Chat, chats), make([]*harness.Reply, chats)
				var wg sync.WaitGroup
				for c := range talks { // at once: each router sees its own at one rank and takes the other
					talks[c] = chat(words(fmt.Sprint("chat", c), 2000), "Begin.", 40)
					wg.Go(func() { first[c] = b.Chat(c%2, talks[c]) })
				}
				wg.Wait()
				for c := range talks {
					at[c] = ok(t, first[c]).Replica
					talks[c].Messages = append(talks[c].Messages, harness.Message{Role: "assistant", Content: first[c].Text()})
				}
				for turn := 1; turn < turns; turn++ {
					for c := range talks {
						talk := &talks[c]
						talk.Messages = append(talk.Messages, harness.Message{Role: "user", Content: fmt.Sprint("More, ", turn)})
						r := ok(t, b.Chat((c+turn)%2, *talk))
						talk.Messages = append(talk.Messages, harness.Message{Role: "assistant", Content: r.Text()})
						if r.Replica != at[c] {
							t.Errorf("turn %d of chat %d went to %s, not %s", turn, c, r.Replica, at[c])
						}
						prompt += r.Usage().PromptTokens
						cached += r.Usage().PromptTokensDetails.CachedTokens
					}
					time.Sleep(200 * time.Millisecond)
				}
				if float64(cached) < 0.9*float64(prompt) {
					t.Errorf("%d of %d tokens were cached", cached, prompt)
				}
				n := finished(e)
				want := map[state.ReplicaID]int64{}
				for _, id := range at {
					want[id] += turns
				}
				if n[0]+n[1] != chats*turns || n[0] != want[e.ID.OfRank(0)] || n[1] != want[e.ID.OfRank(1)] || n[0] == 0 || n[1] == 0 {
					t.Errorf("ranks served %v, picks say %v", n, want)
				}
				for _, r := range b.Routers() {
					for i := range 2 {
						v := r.Replica(e.ID.OfRank(i))
						if !v.Fresh(time.Now()) || v.Reading.Capacity != float64(e.Config().KVTokens) || v.Rank != i {
							t.Errorf("%s, rank %d: %+v", r.Name, i, v.Reading)
						}
					}
				}
			})
		})
	}
	f("vllm", enginesim.VLLM, "auto")
	f("sglang", enginesim.SGLang, "sglang")
}

// A rank is down when its process is: with another process no request fails, and
// when it is back both of its ranks are, empty.
func TestRanksGoWithTheirProcess(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, withRanks(2, enginesim.VLLM, "auto", harness.BubbleConfig{Routers: 2, Engines: 2}), func(t *testing.T, b *harness.Bubble) {
		old := chat(words("old", 3000), "Go on.", 10)
		first := ok(t, b.Chat(0, old))
		id, _, _ := strings.Cut(string(first.Replica), "#")
		dead := b.Find(state.ReplicaID(id))
		time.Sleep(time.Second)
		dead.Kill()
		for i := range 40 {
			c := chat("Be brief.", words(fmt.Sprint("dead", i), 100), 3)
			if i == 0 {
				c = old
			}
			if r := ok(t, b.Chat(i%2, c)); strings.HasPrefix(string(r.Replica), id) {
				t.Errorf("request %d is said to be served by the dead: %s", i, r.Replica)
			}
			if i == 10 {
				time.Sleep(time.Second)
			}
			if i > 10 {
				for k := range 2 {
					for _, r := range b.Routers() {
						if v := r.Replica(dead.ID.OfRank(k)); v.Reading.OK || !v.Reading.Refused {
							t.Fatalf("%s takes rank %d for alive: %+v", r.Name, k, v.Reading)
						}
					}
				}
			}
		}
		dead.Start()
		b.WaitReady()
		time.Sleep(20 * time.Second) // breakers close
		for _, r := range b.Routers() {
			for k := range 2 {
				if n := matched(t, r, dead.ID.OfRank(k), old); n > 0 {
					t.Errorf("%s matches %d tokens at rank %d of the new process", r.Name, n, k)
				}
			}
		}
		for i := range 30 {
			ok(t, b.Chat(i%2, chat("Be brief.", words(fmt.Sprint("back", i), 100), 3)))
		}
		if n := finished(dead); n[0] == 0 || n[1] == 0 {
			t.Errorf("its ranks served %v", n)
		}
	})
}

// An operator names the process or one rank.
func TestDrainOfRanks(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, withRanks(2, enginesim.VLLM, "auto", harness.BubbleConfig{Routers: 2, Engines: 2}), func(t *testing.T, b *harness.Bubble) {
		drain := func(id string) {
			t.Helper()
			var out string
			status, err := b.Router(0).Admin("POST", "/admin/v1/replicas/"+strings.ReplaceAll(id, "#", "%23")+"/drain", map[string]string{"reason": "test"}, &out)
			if err != nil || status != 200 {
				t.Fatalf("drain %s: %d %v %s", id, status, err, out)
			}
			time.Sleep(time.Second)
		}
		served := func(requests int) map[state.ReplicaID]int {
			n := map[state.ReplicaID]int{}
			for i := range requests {
				n[ok(t, b.Chat(i%2, chat("Be brief.", words(fmt.Sprint("drain", len(n), i), 100), 3))).Replica]++
			}
			return n
		}
		if n := served(100); len(n) != 4 { // which of equals is chosen is drawn
			t.Fatalf("before: %v", n)
		}
		drain(string(b.Engine(0).ID))
		if n := served(24); len(n) != 2 || n[b.Engine(1).ID.OfRank(0)] == 0 || n[b.Engine(1).ID.OfRank(1)] == 0 {
			t.Errorf("with a process drained: %v", n)
		}
		drain(string(b.Engine(1).ID.OfRank(0)))
		if n := served(24); len(n) != 1 || n[b.Engine(1).ID.OfRank(1)] != 24 {
			t.Errorf("with a rank drained too: %v", n)
		}
	})
}
