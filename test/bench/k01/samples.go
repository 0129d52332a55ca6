package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/test/replay"
)

// sample is one request of a run.
type sample struct {
	sent           time.Duration // since the run's start
	target         string
	ok             bool
	prompt, cached int
}

// samples reads a report's rows, in order of sending.
func samples(r *replay.Report) ([]sample, error) {
	var b bytes.Buffer
	if err := r.WriteSamples(&b); err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	for _, name := range []string{"sent_s", "target", "kind", "prompt_tokens", "cached_tokens"} {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("samples have no column %q", name)
		}
	}
	var out []sample
	for _, row := range rows[1:] {
		sent, err := strconv.ParseFloat(row[at["sent_s"]], 64)
		if err != nil {
			return nil, err
		}
		s := sample{sent: time.Duration(sent * float64(time.Second)), target: row[at["target"]], ok: row[at["kind"]] == "ok"}
		s.prompt, _ = strconv.Atoi(row[at["prompt_tokens"]])
		s.cached, _ = strconv.Atoi(row[at["cached_tokens"]])
		out = append(out, s)
	}
	return out, nil
}

// part is what a set of requests came to.
type part struct {
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	Hit      float64 `json:"hit_rate"`
}

// sum sums up the requests that in accepts.
func sum(list []sample, in func(sample) bool) (p part) {
	prompt, cached := 0, 0
	for _, s := range list {
		switch {
		case !in(s):
			continue
		case !s.ok:
			p.Failed++
		default:
			prompt += s.prompt
			cached += s.cached
		}
		p.Requests++
	}
	p.Hit = float64(cached) / float64(max(1, prompt))
	return p
}
