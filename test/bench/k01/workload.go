package main

import (
	"math/rand/v2"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/traces"
)

const (
	promptsPer = 5 // prompts of a group
	repeated   = "repeated"
	fresh      = "fresh"
)

// workload draws requests: in rounds, each a random order of all groups' prompts,
// at the times of a Poisson process. With repeated prompts a round is the same 750
// prompts anew; with fresh questions each prompt is asked once.
type workload struct {
	o    *options
	mode string
	text traces.Text
	rng  *rand.Rand
	n    uint64 // requests so far
}

func newWorkload(o *options, mode string, seed uint64) *workload {
	return &workload{o: o, mode: mode, text: traces.Text{Seed: seed}, rng: rand.New(rand.NewPCG(seed, 1))}
}

// take draws the next rounds. Their times begin at 0.
func (w *workload) take(rounds int) []*traces.Request {
	var out []*traces.Request
	var at time.Duration
	for range rounds {
		for _, k := range w.rng.Perm(w.o.groups * promptsPer) {
			at += time.Duration(w.rng.ExpFloat64() / w.o.rate * float64(time.Second))
			out = append(out, w.request(at, uint64(k)))
		}
	}
	return out
}

func (w *workload) request(at time.Duration, k uint64) *traces.Request {
	w.n++
	question := 2<<40 + k
	if w.mode == fresh {
		question = 3<<40 + w.n
	}
	return &traces.Request{
		At: at, InputTokens: w.o.system + w.o.question, OutputTokens: w.o.output, Text: w.text,
		Messages: []traces.Message{
			{Role: "system", Parts: []traces.Part{{ID: 1<<40 + k/promptsPer, Tokens: w.o.system}}},
			{Role: "user", Parts: []traces.Part{{ID: question, Tokens: w.o.question}}},
		},
	}
}

// warmup is when the first of the measured rounds begins.
func warmup(o *options, all []*traces.Request) time.Duration {
	return all[min(o.warm*o.groups*promptsPer, len(all)-1)].At
}

// ideal is the hit rate of a cache that forgets nothing, counting as engines do:
// whole blocks, never the last token.
func (w *workload) ideal() float64 {
	tokens := func(role, content string, dst []uint32) []uint32 {
		dst = append(enginesim.AppendTokens(append(dst, 1), role), 2)
		return append(enginesim.AppendTokens(dst, content), 3)
	}
	r := w.request(0, 0)
	w.n--
	text := func(i int) string {
		p := r.Messages[i].Parts[0]
		return string(w.text.Append(nil, p.ID, p.Tokens))
	}
	all := tokens("system", text(0), nil)
	shared := len(enginesim.AppendTokens(append(all, 1), "user")) + 1
	all = tokens("user", text(1), all)
	prompt := len(enginesim.AppendTokens(append(all, 1), "assistant")) + 1
	const block = 16
	if w.mode == fresh {
		return float64(shared/block*block) / float64(prompt)
	}
	return float64((prompt-1)/block*block) / float64(prompt)
}
