package procs

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/test/replay"
)

// Sample is one request of a replay.
type Sample struct {
	Sent           time.Duration // since the run's start
	Target         string        // as the replay names it
	OK             bool
	Prompt, Cached int // tokens
	Predicted      int // tokens the router expected to be cached
	TTFT           time.Duration
}

// Samples reads a report's rows, in order of sending.
func Samples(r *replay.Report) ([]Sample, error) {
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
	for _, name := range []string{"sent_s", "target", "kind", "ttft_s", "prompt_tokens", "cached_tokens", "predicted_tokens"} {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("samples have no column %q", name)
		}
	}
	var out []Sample
	for _, row := range rows[1:] {
		sent, err := parseSeconds(row[at["sent_s"]])
		if err != nil {
			return nil, err
		}
		ttft, err := parseSeconds(row[at["ttft_s"]])
		if err != nil {
			return nil, err
		}
		s := Sample{Sent: sent, TTFT: ttft, Target: row[at["target"]], OK: row[at["kind"]] == "ok"}
		s.Prompt, _ = strconv.Atoi(row[at["prompt_tokens"]])
		s.Cached, _ = strconv.Atoi(row[at["cached_tokens"]])
		s.Predicted, _ = strconv.Atoi(row[at["predicted_tokens"]])
		out = append(out, s)
	}
	return out, nil
}

func parseSeconds(text string) (time.Duration, error) {
	v, err := strconv.ParseFloat(text, 64)
	return time.Duration(v * float64(time.Second)), err
}

// Part is what a set of requests came to.
type Part struct {
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	Hit      float64 `json:"hit_rate"`
}

// Sum sums up the requests that in accepts.
func Sum(list []Sample, in func(Sample) bool) (p Part) {
	prompt, cached := 0, 0
	for _, s := range list {
		switch {
		case !in(s):
			continue
		case !s.OK:
			p.Failed++
		default:
			prompt += s.Prompt
			cached += s.Cached
		}
		p.Requests++
	}
	p.Hit = float64(cached) / float64(max(1, prompt))
	return p
}
