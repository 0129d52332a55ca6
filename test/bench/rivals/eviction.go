package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// evictionRow is how well an index predicts the cached tokens of engines whose
// caches are too small for all of the traffic.
type evictionRow struct {
	Corpus   string  `json:"corpus"`
	Capacity int     `json:"capacity_tokens"` // of each replica
	Hit      float64 `json:"true_hit_rate"`
	Index    string  `json:"index"`
	Knows    string  `json:"knows"`
	Median   float64 `json:"error_median"` // |predicted - true| over the larger
	Mean     float64 `json:"error_mean"`
	Bias     float64 `json:"bias"` // over the sums
}

const evictReplicas = 8

// guess is one index with one idea of the capacity.
type guess struct {
	name, knows     string
	x               index
	errs            []float64
	predicted, true float64
}

// guesses are what is compared at one capacity. bytes is the text of one token.
func guesses(capacity int, bytes float64, start time.Time) []*guess {
	n := evictReplicas
	c := float64(capacity)
	sizes := func(share float64) (rule, rule) {
		return rule{size: int(share * c * bytes)}, rule{size: int(share*c) / blockTokens}
	}
	tree1, blocks1 := sizes(1)
	tree2, blocks2 := sizes(2)
	ttl := rule{ttl: 2 * time.Minute}
	treeAnswers, blocksAnswers := newTreeIndex(n, tree1), newBlockIndex(n, blocks1)
	treeAnswers.answers, blocksAnswers.answers = true, true
	return []*guess{
		{name: "marks (ours)", knows: "capacity", x: newOurs(n, 1<<24, c, start)},
		{name: "marks (ours)", knows: "twice of it", x: newOurs(n, 1<<24, 2*c, start)},
		{name: "marks (ours)", knows: "half of it", x: newOurs(n, 1<<24, c/2, start)},
		{name: "marks (ours)", knows: "nothing", x: newOurs(n, 1<<24, 0, start)},
		{name: "tree", knows: "capacity", x: newTreeIndex(n, tree1)},
		{name: "tree", knows: "capacity, answers", x: treeAnswers},
		{name: "tree", knows: "twice of it", x: newTreeIndex(n, tree2)},
		{name: "tree", knows: "TTL 2 min", x: newTreeIndex(n, ttl)},
		{name: "blocks", knows: "capacity", x: newBlockIndex(n, blocks1)},
		{name: "blocks", knows: "capacity, answers", x: blocksAnswers},
		{name: "blocks", knows: "twice of it", x: newBlockIndex(n, blocks2)},
		{name: "blocks", knows: "TTL 2 min", x: newBlockIndex(n, ttl)},
	}
}

// evict serves a corpus on replicas of three cache sizes. Every index sees the same
// placements: nine of ten prompts go to the replica of their session, the others
// anywhere. Requests are served one at a time.
func evict(o *options, res *result, name string) error {
	n, capacities := o.prompts, []int{12_000, 24_000, 60_000}
	if name == "mooncake" { // its prompts are nine times as long
		n, capacities = n/3, []int{200_000, 400_000, 1_000_000}
	}
	prompts, err := load(name, n, o.seed)
	if err != nil {
		return err
	}
	start := time.Now()
	bytes := 0.0
	for _, p := range prompts[:min(100, len(prompts))] {
		p.render()
		bytes += float64(len(p.text)) / float64(p.promptTokens) / float64(min(100, len(prompts)))
		p.drop()
	}
	type setting struct {
		engines      []*engine
		guesses      []*guess
		cached, sent float64
	}
	settings := make([]setting, len(capacities))
	for i, c := range capacities {
		for range evictReplicas {
			settings[i].engines = append(settings[i].engines, newEngine(c))
		}
		settings[i].guesses = guesses(c, bytes, start)
	}
	rng := rand.New(rand.NewPCG(o.seed, 2))
	dst := make([]float64, evictReplicas)
	var pr prepared
	for n, p := range prompts {
		p.render()
		now := start.Add(p.at)
		to := int(p.session*0x9e3779b97f4a7c15>>32) % evictReplicas
		if rng.IntN(10) == 0 {
			to = rng.IntN(evictReplicas)
		}
		whole := float64((p.promptTokens - 1) / blockTokens * blockTokens)
		warm := n >= len(prompts)/5
		for i := range settings {
			s := &settings[i]
			cached := s.engines[to].serve(p.tokens, p.promptTokens, now)
			if warm {
				s.cached += float64(cached)
				s.sent += float64(p.promptTokens)
			}
			for _, g := range s.guesses {
				g.x.prepare(&pr, p)
				g.x.match(dst, &pr, now)
				predicted := min(dst[to], whole)
				if warm {
					g.note(predicted, float64(cached))
				}
				g.x.insert(&pr, to, now, &outcome{cached: cached, predicted: int(predicted)})
			}
		}
		p.drop()
	}
	for i, s := range settings {
		for _, g := range s.guesses {
			slices.Sort(g.errs)
			res.Evicted = append(res.Evicted, evictionRow{
				Corpus: name, Capacity: capacities[i], Hit: s.cached / s.sent, Index: g.name, Knows: g.knows,
				Median: table.Quantile(g.errs, 0.5), Mean: table.Mean(g.errs), Bias: (g.predicted - g.true) / max(1, g.true),
			})
		}
	}
	return nil
}

func (g *guess) note(predicted, cached float64) {
	err := 0.0
	if m := max(predicted, cached); m > 0 {
		err = max(predicted-cached, cached-predicted) / m
	}
	g.errs = append(g.errs, err)
	g.predicted += predicted
	g.true += cached
}

func showEviction(w io.Writer, res *result) {
	var rows [][]string
	for _, r := range res.Evicted {
		rows = append(rows, []string{r.Corpus, fmt.Sprint(r.Capacity), table.Num(r.Hit), r.Index, r.Knows, table.Percent(r.Median), table.Percent(r.Mean), table.Percent(r.Bias)})
	}
	table.Print(w, "Predicted against true cached tokens, 8 replicas with exact block LRU caches, the last four fifths of the requests. Error is |predicted - true| over the larger. Rivals note prompts when they are sent, as such routers do; \"answers\": also what the engine answered.", 1,
		[]string{"corpus", "KV tokens", "true hit", "index", "knows", "error p50", "mean", "bias"}, rows)
}
