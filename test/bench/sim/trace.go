package sim

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hearsay-llm/hearsay/routing"
)

// Seen is what a pick went by: the replica chosen, and the deepest holder.
type Seen struct {
	Chosen, Holder       routing.Terms
	HolderAt             string // id of the deepest holder, "" where nobody holds anything
	Matched, HolderMatch int    // tokens
}

// seenOf takes from a choice what it went by. Of holders that are as deep the one with the
// best score counts.
func seenOf(c *routing.Choice) Seen {
	s := Seen{Chosen: c.Candidates[c.Chosen].Terms, Matched: c.MatchedTokens}
	score := 0.0
	for i := range c.Candidates {
		k := &c.Candidates[i]
		if k.Matched > s.HolderMatch || k.Matched > 0 && k.Matched == s.HolderMatch && k.Score < score {
			s.HolderAt, s.HolderMatch, s.Holder, score = string(k.Replica.ID), k.Matched, k.Terms, k.Score
		}
	}
	return s
}

// traceName is the file of a cell's trace.
func traceName(c *Cell, seed uint64) string {
	clean := strings.NewReplacer("/", "-", ", ", "_", " ", "-")
	return fmt.Sprintf("%s_%s_%d.csv", c.Group, clean.Replace(c.Name), seed)
}

// writeTrace writes one line for each measured request: what came of it, and what its
// pick went by. Times are ms, depths and prompts tokens.
func (c *Cluster) writeTrace(file string) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write([]string{ // a buffer takes all
		"request", "sent", "router", "replica", "reason", "prompt", "cached", "ttft", "predicted",
		"matched", "queue", "prefill", "eviction", "streams", "decode",
		"holder", "holder_matched", "holder_queue", "holder_prefill", "holder_streams", "holder_decode",
	})
	ms := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	for i := c.work.Warmup; i < len(c.Records); i++ {
		r := &c.Records[i]
		s := &r.Seen
		_ = w.Write([]string{
			strconv.Itoa(i), ms(1e3 * r.Sent.Seconds()), strconv.Itoa(r.Router), string(c.Replicas[r.Replica].ID), r.Reason,
			strconv.Itoa(r.Prompt), strconv.Itoa(r.Cached), ms(1e3 * r.TTFT().Seconds()), ms(1e3 * r.PredictedTTFT.Seconds()),
			strconv.Itoa(s.Matched), ms(s.Chosen.Queue), ms(s.Chosen.Prefill), ms(s.Chosen.Eviction), ms(s.Chosen.Streams), ms(s.Chosen.Decode),
			s.HolderAt, strconv.Itoa(s.HolderMatch), ms(s.Holder.Queue), ms(s.Holder.Prefill), ms(s.Holder.Streams), ms(s.Holder.Decode),
		})
	}
	w.Flush()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
