package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// prefixRow is how far an index that forgets nothing is from the exact longest
// common prefix, over prompts that share at least 64 tokens.
type prefixRow struct {
	Corpus  string  `json:"corpus"`
	Index   string  `json:"index"`
	Prompts int     `json:"prompts"`
	P50     float64 `json:"error_p50"` // |found - exact| / exact
	P90     float64 `json:"error_p90"`
	P99     float64 `json:"error_p99"`
	Bias    float64 `json:"bias"` // over the sums
}

// shareRow is what another router must be told of one request, in bytes.
type shareRow struct {
	Corpus      string  `json:"corpus"`
	Index       string  `json:"index"`
	First       float64 `json:"first_contact_bytes"` // less than a tenth of the prompt was known
	FirstN      int     `json:"first_contact_requests"`
	FollowUp    float64 `json:"follow_up_bytes"` // at least half of it was
	FollowUpN   int     `json:"follow_up_requests"`
	PromptBytes float64 `json:"mean_prompt_bytes"`
}

// share sends a corpus to one replica that forgets nothing.
func share(o *options, res *result, name string) error {
	prompts, err := load(name, o.prompts, o.seed)
	if err != nil {
		return err
	}
	start := time.Now()
	entries := []struct {
		name string
		x    index
		full bool // with the answer and what is learned from it
	}{
		{"marks (ours)", newOurs(1, 1<<26, 1<<33, start), false},
		{"marks, answers too", newOurs(1, 1<<26, 1<<33, start), true},
		{"tree", newTreeIndex(1, rule{}), false},
		{"blocks", newBlockIndex(1, rule{}), false},
	}
	type sums struct {
		errs         []float64
		found, exact float64
		bytes, n     [2]float64
	}
	all := make([]sums, len(entries))
	var exact corpus
	var pr prepared
	dst := make([]float64, 1)
	size := 0.0
	for _, p := range prompts {
		p.render()
		now := start.Add(p.at)
		tokens := p.tokens[:p.promptTokens:p.promptTokens]
		lcp := exact.longest(tokens)
		class := -1
		switch {
		case 10*lcp < p.promptTokens:
			class = 0
		case 2*lcp >= p.promptTokens:
			class = 1
		}
		size += float64(len(p.text)) / float64(len(prompts))
		for i, e := range entries {
			s := &all[i]
			e.x.prepare(&pr, p)
			e.x.match(dst, &pr, now)
			if lcp >= 64 {
				s.errs = append(s.errs, max(dst[0]-float64(lcp), float64(lcp)-dst[0])/float64(lcp))
				s.found += dst[0]
				s.exact += float64(lcp)
			}
			var out *outcome
			if e.full {
				out = &outcome{cached: lcp / blockTokens * blockTokens, predicted: int(dst[0])}
			}
			e.x.insert(&pr, 0, now, out)
			if m, ok := e.x.(*ours); ok && !e.full {
				m.learn(&pr)
			}
			told := float64(e.x.told())
			if class >= 0 {
				s.bytes[class] += told
				s.n[class]++
			}
		}
		p.drop()
	}
	for i, e := range entries {
		s := &all[i]
		slices.Sort(s.errs)
		if !e.full {
			res.Prefix = append(res.Prefix, prefixRow{
				Corpus: name, Index: e.name, Prompts: len(s.errs),
				P50: table.Quantile(s.errs, 0.5), P90: table.Quantile(s.errs, 0.9), P99: table.Quantile(s.errs, 0.99),
				Bias: (s.found - s.exact) / max(1, s.exact),
			})
		}
		res.Share = append(res.Share, shareRow{
			Corpus: name, Index: e.name, PromptBytes: size,
			First: s.bytes[0] / max(1, s.n[0]), FirstN: int(s.n[0]),
			FollowUp: s.bytes[1] / max(1, s.n[1]), FollowUpN: int(s.n[1]),
		})
	}
	return nil
}

func showShare(w io.Writer, res *result) {
	var rows [][]string
	for _, r := range res.Share {
		rows = append(rows, []string{r.Corpus, r.Index, table.Num(r.PromptBytes), table.Num(r.First), fmt.Sprint(r.FirstN), table.Num(r.FollowUp), fmt.Sprint(r.FollowUpN)})
	}
	table.Print(w, "Bytes another router must be told of one request. marks: the ops as encoded for gossip, one message a request; tree: the text not known there; blocks: 8 bytes a block not known there; each rival 24 bytes more, no framing.", 2,
		[]string{"corpus", "index", "prompt bytes", "first contact", "requests", "follow-up", "requests"}, rows)
	rows = nil
	for _, r := range res.Prefix {
		rows = append(rows, []string{r.Corpus, r.Index, fmt.Sprint(r.Prompts), table.Percent(r.P50), table.Percent(r.P90), table.Percent(r.P99), table.Percent(r.Bias)})
	}
	table.Print(w, "Error against the exact longest common prefix in tokens, nothing forgotten, prompts sharing at least 64 tokens.", 2,
		[]string{"corpus", "index", "prompts", "p50", "p90", "p99", "bias"}, rows)
}
