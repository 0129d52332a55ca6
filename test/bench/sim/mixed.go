package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// M11 needs what a Cluster leaves out: keys, queues, roles, adapters. So whole nodes serve
// it, over HTTP, in simulated time: three routers, six engines, one pool.

// clients are those who ask with one key.
type clients struct {
	key, band string
	weight    float64 // of the tenant
	shortest  int     // prompt tokens, evenly drawn up to three times as many
}

const (
	gold  = 0 // the high band
	batch = 4 // the low band; those between are the normal one's tenants
)

var mixedClients = []clients{
	gold: {"gold", "high", 1, 500}, {"a", "normal", 1, 300}, {"b", "normal", 1, 600}, {"c", "normal", 2, 1000}, batch: {"batch", "low", 1, 1000},
}

const (
	mixedRouters, mixedEngines = 3, 6
	mixedPrefills              = 2 // of the engines, where there are roles
	mixedCap                   = 4 // requests at a replica
	mixedOutput                = 40
	mixedWait                  = 10 * time.Second // the longest wait
	mixedAdapters              = 4                // two of them in an engine at a time; a third of the requests asks for one
	goldTokens                 = 2000             // prompt tokens a second of the high band, whatever the others ask for
)

// mixed is one cell of M11.
type mixed struct {
	split       bool          // two engines prefill, four decode
	capacity    float64       // prompt tokens/s that are served when all are full
	normal, low float64       // of that, what the bands ask for
	warm, last  time.Duration // what is measured: from when, until when they ask
}

// mixedCells are M11.
func mixedCells(add adder, pick picked) {
	for _, m := range []mixed{{capacity: 27_000}, {split: true, capacity: 15_000}} {
		for _, load := range [][2]float64{{0, 0}, {0.3, 0}, {0.3, 1}, {0.3, 3}, {2, 2}} {
			m.normal, m.low = load[0], load[1]
			m.warm, m.last = 15*time.Second, time.Duration(pick(30, 60, 195))*time.Second
			what := "whole"
			if m.split {
				what = "prefill and decode apart"
			}
			add(Cell{
				Group: "mixed", Name: fmt.Sprintf("%s, normal %g, low %g", what, m.normal, m.low), Work: "none", Seeds: pick(1, 3, 3),
				Config: Config{Routers: mixedRouters, Replicas: mixedEngines}, Run: m.run,
			})
		}
	}
}

// cluster is the nodes that serve it.
func (m *mixed) cluster(seed uint64) harness.BubbleConfig {
	e := enginesim.DefaultConfig()
	e.MaxBatchedTokens, e.MaxLoRAs = 2048, 2
	for i := range mixedAdapters {
		e.Adapters = append(e.Adapters, adapterName(i))
	}
	most := mixedCap
	return harness.BubbleConfig{
		Routers: mixedRouters, Engines: mixedEngines, Engine: e, Delay: lan.Delay, Jitter: lan.Jitter, Seed: int64(seed),
		PoolFile: func(p *node.PoolConfig) {
			p.Engine = string(enginesim.VLLM)
			p.Queue = node.QueueConfig{MaxWait: mixedWait, MaxInflight: &most}
			for i := range p.Replicas {
				switch {
				case m.split && i < mixedPrefills:
					p.Replicas[i].Role = "prefill"
				case m.split:
					p.Replicas[i].Role = "decode"
				}
			}
		},
		RouterFile: func(_ int, c *node.Config) {
			c.Log.Level = "error"
			for _, x := range mixedClients {
				sum := sha256.Sum256([]byte("sk-" + x.key))
				c.Gateway.Keys = append(c.Gateway.Keys, node.KeyConfig{
					Name: x.key, Priority: x.band, Weight: x.weight, Hash: node.KeyHash("sha256:" + hex.EncodeToString(sum[:])),
				})
			}
		},
	}
}

func adapterName(i int) string { return fmt.Sprint("adapter-", i) }

// asked is one request of it and what came of it.
type asked struct {
	of     int // in mixedClients
	at     time.Duration
	router int
	tokens int // of the prompt, roughly
	model  string

	served   bool
	ttft     time.Duration
	first    time.Duration // since the run began
	uncached int           // prompt tokens
}

// asks are the requests of a seed, by client, each in order of time.
func (m *mixed) asks(seed uint64) (list []*asked) {
	offered := []float64{gold: goldTokens, batch: m.low * m.capacity}
	for i := gold + 1; i < batch; i++ {
		offered[i] = m.normal * m.capacity / (batch - gold - 1)
	}
	for i, x := range mixedClients {
		if offered[i] <= 0 {
			continue
		}
		rng := rand.New(rand.NewPCG(seed, 0x6d6978<<8|uint64(i)))
		for at := 0.0; ; {
			at += rng.ExpFloat64() * float64(2*x.shortest) / offered[i]
			r := &asked{of: i, at: time.Duration(at * float64(time.Second)), router: rng.IntN(mixedRouters), tokens: x.shortest + rng.IntN(2*x.shortest)}
			if rng.IntN(3) == 0 {
				r.model = adapterName(rng.IntN(mixedAdapters))
			}
			if r.at > m.last {
				break
			}
			list = append(list, r)
		}
	}
	return list
}

// run implements Cell.Run.
func (m mixed) run(t *testing.T, cell Cell, seed uint64, _ *Workload) (r Result, err error) {
	spent := cpu()
	list := m.asks(seed)
	ok := t.Run(fmt.Sprintf("%s/%s/%d", cell.Group, cell.Name, seed), func(t *testing.T) {
		harness.InBubble(t, m.cluster(seed), func(_ *testing.T, b *harness.Bubble) {
			var wg sync.WaitGroup
			began := time.Now()
			for i, q := range list {
				wg.Go(func() {
					time.Sleep(time.Until(began.Add(q.at)))
					q.ask(b, began, fmt.Sprint(seed, "-", i))
				})
			}
			wg.Wait()
			b.Idle(time.Minute)
		})
	})
	if !ok {
		return r, fmt.Errorf("the cluster failed")
	}
	r = Result{Group: cell.Group, Name: cell.Name, Seed: seed, Routers: mixedRouters, Replicas: mixedEngines, Sharing: true, Workload: "mixed", Size: len(list)}
	r.Extra = m.sum(list)
	r.Figures = Figures{Requests: len(list), Virtual: m.last.Seconds(), CPU: cpu() - spent, TTFTMean: r.Extra["high_p50"]}
	return r, nil
}

// ask sends it and notes what came.
func (q *asked) ask(b *harness.Bubble, began time.Time, name string) {
	x := &mixedClients[q.of]
	var text strings.Builder
	for i := 0; text.Len() < 4*q.tokens; i++ {
		fmt.Fprintf(&text, "%s-%d says %d. ", name, i, (i*7919)%997)
	}
	chat := harness.Chat{Model: q.model, Messages: []harness.Message{{Role: "user", Content: text.String()}}, MaxTokens: mixedOutput, Stream: true, Usage: true}
	got := b.DoAt(q.router, http.MethodPost, harness.ChatPath, chat.Body(), "Authorization: Bearer sk-"+x.key, "X-Priority: "+x.band)
	u := got.Usage()
	if q.served = got.OK() && u != nil; q.served {
		q.ttft, q.first = got.TTFT(), got.First.Sub(began)
		q.uncached = u.PromptTokens - u.PromptTokensDetails.CachedTokens
	}
}

// sum is what it comes to: times of a band are of those who asked in the measured time,
// tokens of those whose first token came in it.
func (m *mixed) sum(list []*asked) map[string]float64 {
	ttft, all, refused := map[string][]float64{}, map[string]float64{}, map[string]float64{}
	tokens := make([]float64, len(mixedClients))
	for _, q := range list {
		band := mixedClients[q.of].band
		if q.at >= m.warm {
			if all[band]++; q.served {
				ttft[band] = append(ttft[band], q.ttft.Seconds())
			} else {
				refused[band]++
			}
		}
		if q.served && q.first >= m.warm && q.first < m.last {
			tokens[q.of] += float64(q.uncached)
		}
	}
	out := map[string]float64{}
	for band, n := range all {
		out[band+"_p50"], out[band+"_p99"], out[band+"_refused"] = quantile(ttft[band], 0.5), quantile(ttft[band], 0.99), refused[band]/n
	}
	sum, normal, weights := 0.0, 0.0, 0.0
	for i, n := range tokens {
		if sum += n; i > gold && i < batch {
			normal, weights = normal+n, weights+mixedClients[i].weight
		}
	}
	out["tokens_s"], out["low_share"] = sum/(m.last-m.warm).Seconds(), tokens[batch]/max(1, sum)
	for i := gold + 1; i < batch && normal > 0; i++ {
		x := &mixedClients[i]
		of := tokens[i] / normal / (x.weight / weights) // of its fair share
		out["of_fair_"+x.key] = of
		out["unfair"] = max(out["unfair"], math.Abs(of-1))
	}
	return out
}
