package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// Knee is the rate of the Mooncake conversation trace, as a factor on its own, at
// which 90 % of requests still meet TTFT 10 s and TPOT 250 ms with one router and 8
// engines (test/bench/mooncake measured it).
const Knee = 1.125

// works names the workloads of the matrix; each is made for a seed.
var works = map[string]func(seed uint64, n int) (*Workload, error){
	"mooncake": mooncakeWork,
	"agents":   func(seed uint64, n int) (*Workload, error) { return agentsWork(seed, n, 2, chatty) },
	"k01":      func(seed uint64, n int) (*Workload, error) { return groupsWork(seed, n, false, 20) },
	"k01-new":  func(seed uint64, n int) (*Workload, error) { return groupsWork(seed, n, true, 20) },
	"k01-fast": func(seed uint64, n int) (*Workload, error) { return groupsWork(seed, n, true, 40) },
	"burst":    burstWork,
	// At their own rates, which Config.Rate changes.
	"conversation": traceWork("conversation", traces.MooncakeConversation),
	"synthetic":    traceWork("synthetic", traces.MooncakeSynthetic),
	"azure":        traceWork("azure", traces.AzureConversation),
	"llmd":         llmdWork(false),
	"llmd-new":     llmdWork(true),
	"hot":          hotWork("hot", 0.7, 4096),
	"universal":    hotWork("universal", 1, 6000),
	"wave":         waveWork,
	"unique":       uniqueWork,
	"learn":        uniqueWork,
	"none":         func(uint64, int) (*Workload, error) { return &Workload{Name: "none"}, nil }, // of cells that make their own
	// Sessions begin at a quarter of a second's worth per replica, so that load and
	// cache pressure per replica are alike at every size.
	"agents-8":    scaleWork(8),
	"agents-64":   scaleWork(64),
	"agents-400":  scaleWork(400),
	"agents-1000": scaleWork(1000),
}

func scaleWork(replicas int) func(uint64, int) (*Workload, error) {
	return func(seed uint64, n int) (*Workload, error) {
		return agentsWork(seed, n, float64(replicas)/4, brief)
	}
}

// mooncakeWork is the first n requests of the conversation trace at 0.7 of the knee;
// a fifth of them warm the caches. The seed spreads its quantised times.
func mooncakeWork(seed uint64, n int) (*Workload, error) {
	t, err := traces.Open(traces.MooncakeConversation, traces.OpenConfig{Seed: seed})
	if err != nil {
		return nil, err
	}
	defer func() { _ = t.Close() }()
	return NewWorkload("mooncake", traces.Head(traces.Scale(t, 0.7*Knee), n), n/5)
}

// chatty and brief are the chats of agents: brief ones are for cells whose virtual
// seconds are dear.
var (
	chatty = traces.AgentsConfig{Turns: traces.Range{Min: 3, Max: 10}, Think: 5 * time.Second}
	brief  = traces.AgentsConfig{Turns: traces.Range{Min: 2, Max: 5}, Think: 2 * time.Second}
)

// agentsWork is the first n requests of multi-turn chats of eight kinds of agents
// that begin at a rate per second; a quarter of the requests warm the caches.
func agentsWork(seed uint64, n int, rate float64, chats traces.AgentsConfig) (*Workload, error) {
	chats.Seed, chats.Rate, chats.RealAnswers = seed, rate, true
	src, err := traces.Agents(chats)
	if err != nil {
		return nil, err
	}
	return NewWorkload("agents", traces.Head(src, n), n/4)
}

const (
	groups        = 150 // of case K01
	promptsOf     = 5   // prompts of a group
	groupSystem   = 640 // tokens
	groupQuestion = 128
	// K01KV is each of 8 engines' cache: all prompts of K01 are 73 % of the sum.
	K01KV = 32_880
)

// groupsWork is case K01: rounds of 150 groups x 5 prompts in random order, Poisson
// at the given rate; the first round warms the caches. With fresh, each round asks
// new questions.
func groupsWork(seed uint64, rounds int, fresh bool, rate float64) (*Workload, error) {
	rng := rand.New(rand.NewPCG(seed, 0x6b3031))
	var list []*traces.Request
	at := time.Duration(0)
	for round := range rounds {
		for _, k := range rng.Perm(groups * promptsOf) {
			at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
			question := uint64(k)
			if fresh {
				question += uint64(round) << 20
			}
			list = append(list, &traces.Request{
				At: at, InputTokens: groupSystem + groupQuestion, OutputTokens: 16,
				Messages: []traces.Message{
					{Role: "system", Parts: []traces.Part{{ID: 1<<40 + uint64(k/promptsOf), Tokens: groupSystem}}},
					{Role: "user", Parts: []traces.Part{{ID: 1<<41 + question, Tokens: groupQuestion}}},
				},
			})
		}
	}
	name := "k01"
	if fresh {
		name = "k01-new"
	}
	return NewWorkload(name, traces.Slice(list...), groups*promptsOf)
}

// burstWork is case K06: n requests below one cold prefix of 8k tokens within 5 ms.
func burstWork(seed uint64, n int) (*Workload, error) {
	var list []*traces.Request
	for i := range n {
		list = append(list, &traces.Request{
			At: 5 * time.Millisecond * time.Duration(i) / time.Duration(n), InputTokens: 8_000, OutputTokens: 16,
			Messages: []traces.Message{
				{Role: "system", Parts: []traces.Part{{ID: seed<<32 + 1, Tokens: 8_000}}},
				{Role: "user", Parts: []traces.Part{{ID: seed<<32 + 2 + uint64(i), Tokens: 30}}},
			},
		})
	}
	return NewWorkload("burst", traces.Slice(list...), 0)
}

// library makes workloads once and keeps the last few.
type library struct {
	kept map[string]*Workload
	keys []string
}

func (l *library) get(name string, seed uint64, n int) (*Workload, error) {
	key := fmt.Sprint(name, " ", seed, " ", n)
	if w := l.kept[key]; w != nil {
		return w, nil
	}
	w, err := works[name](seed, n)
	if err != nil {
		return nil, err
	}
	if l.kept == nil {
		l.kept = map[string]*Workload{}
	}
	if len(l.keys) >= 4 {
		delete(l.kept, l.keys[0])
		l.keys = slices.Delete(l.keys, 0, 1)
	}
	l.kept[key], l.keys = w, append(l.keys, key)
	return w, nil
}
