package scenario

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// twoLegs is a cluster whose first engines prefill and whose others decode.
func twoLegs(routers, prefill, decode int, kind enginesim.Kind) harness.BubbleConfig {
	cfg := harness.BubbleConfig{Routers: routers, Engines: prefill + decode, Delay: time.Millisecond, Engine: enginesim.DefaultConfig()}
	cfg.Engine.Kind, cfg.Engine.KeepBodies = kind, true
	if kind == enginesim.SGLang {
		cfg.Engine.Pairs = &enginesim.Pairs{}
		cfg.EachEngine = func(i int, c *enginesim.Config) {
			if c.Leg = enginesim.LegPrefill; i >= prefill {
				c.Leg = enginesim.LegDecode
			}
		}
	}
	cfg.PoolFile = func(p *node.PoolConfig) {
		p.Engine = string(kind)
		for i := range p.Replicas {
			if p.Replicas[i].Role = "prefill"; i >= prefill {
				p.Replicas[i].Role = "decode"
			}
		}
	}
	return cfg
}

// handed is how many requests an engine got that were prefilled elsewhere, and all.
func handed(t *testing.T, e *harness.Engine) (n, all int) {
	t.Helper()
	for _, r := range e.Record().Requests {
		var body struct {
			KV struct {
				Prefilled bool `json:"do_remote_prefill"`
			} `json:"kv_transfer_params"`
		}
		if err := json.Unmarshal([]byte(r.Body), &body); err != nil {
			t.Fatal(err)
		}
		if all++; body.KV.Prefilled {
			n++
		}
	}
	return n, all
}

// Chats in a pool of two legs: first turns are prefilled elsewhere, later ones find
// their history where they decode and need no hop. Everything that was counted is
// given back.
func TestChatsInTwoLegs(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, twoLegs(2, 2, 2, enginesim.VLLM), func(t *testing.T, b *harness.Bubble) {
		const chats, turns = 12, 4
		var mu sync.Mutex
		prompt, cached := 0, 0
		var wg sync.WaitGroup
		for c := range chats {
			wg.Go(func() {
				talk := streamed(chat(words(fmt.Sprint("chat", c), 3000), "Begin.", 60))
				for turn := range turns {
					r := b.Chat((c+turn)%2, talk)
					if !r.OK() {
						t.Errorf("chat %d, turn %d: %v", c, turn, r)
						return
					}
					if turn > 0 {
						mu.Lock()
						prompt += r.Usage().PromptTokens
						cached += r.Usage().PromptTokensDetails.CachedTokens
						mu.Unlock()
					}
					talk.Messages = append(talk.Messages, harness.Message{Role: "assistant", Content: r.Text()},
						harness.Message{Role: "user", Content: fmt.Sprint("More, ", turn)})
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		b.Idle(5 * time.Second)
		prefills := 0
		for _, e := range b.Engines()[:2] {
			n, all := handed(t, e)
			if n != 0 || all == 0 {
				t.Errorf("%s, which prefills: %d of %d were handed over to it", e.ID, n, all)
			}
			prefills += all
		}
		handedOver, whole := 0, 0
		for _, e := range b.Engines()[2:] {
			n, all := handed(t, e)
			handedOver, whole = handedOver+n, whole+all-n
			if all == 0 {
				t.Errorf("%s decodes nothing", e.ID)
			}
		}
		if prefills != handedOver || handedOver < chats/2 || handedOver > chats || handedOver+whole != chats*turns {
			t.Errorf("%d prefills, %d handed over, %d whole", prefills, handedOver, whole)
		}
		if float64(cached) < 0.9*float64(prompt) {
			t.Errorf("of later turns %d of %d tokens were cached", cached, prompt)
		}
	})
}

// Cold prompts under load: none fails, also while a prefill replica dies and comes
// back, then one that decodes.
func TestTwoLegsUnderLoad(t *testing.T) {
	t.Parallel()
	f := func(name string, kind enginesim.Kind) {
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, twoLegs(2, 2, 2, kind), func(t *testing.T, b *harness.Bubble) {
				var wg sync.WaitGroup
				broken := 0
				var mu sync.Mutex
				for i := range 120 {
					wg.Go(func() {
						c := chat(words(fmt.Sprint("cold", i), 1500), "Go on.", 40)
						if i%3 > 0 {
							c = streamed(c)
						}
						if r := b.Chat(i%2, c); !r.OK() {
							mu.Lock()
							defer mu.Unlock()
							if broken++; r.Status == 200 { // it had begun when the engine died
								return
							}
							t.Errorf("request %d: %v", i, r)
						}
					})
					switch i {
					case 30:
						b.Engine(0).Kill()
					case 60:
						b.Engine(0).Start()
					case 80:
						b.Engine(2).Kill()
					case 100:
						b.Engine(2).Start()
					}
					time.Sleep(300 * time.Millisecond)
				}
				wg.Wait()
				b.Idle(10 * time.Second)
				if broken > 12 {
					t.Errorf("%d streams broke off", broken)
				}
				if e := b.Engine(3); kind == enginesim.SGLang && e.Totals().PrefilledTokens > 2*e.Record().Received {
					t.Errorf("%s, which decodes, prefilled: %+v", e.ID, e.Totals())
				}
				for _, e := range b.Engines() {
					if n := e.Record().Finished; n == 0 {
						t.Errorf("%s served nothing: %+v", e.ID, e.Totals())
					}
				}
			})
		})
	}
	f("vllm", enginesim.VLLM)
	f("sglang", enginesim.SGLang)
}
