package main

import (
	"math"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

func settings() *options {
	return &options{groups: 150, replicas: 8, system: 640, question: 128, output: 16, resident: 0.73, rate: 60, warm: 1, rounds: 1, speed: 1}
}

func TestCachesHoldAllPromptsWithTheGivenShareFilled(t *testing.T) {
	o := settings()
	all := 150 * (640 + 5*(128+16))
	if share := float64(all) / float64(8*o.kvTokens()); share < 0.73 || share > 0.732 {
		t.Errorf("%.3f of the caches are filled, want 0.73", share)
	}
	if o.kvTokens()%16 != 0 {
		t.Errorf("a cache of %d tokens is no whole number of blocks", o.kvTokens())
	}
}

// ids are the parts of a request: system prompt and question.
func ids(r *traces.Request) [2]uint64 {
	return [2]uint64{r.Messages[0].Parts[0].ID, r.Messages[1].Parts[0].ID}
}

func TestARoundSendsEveryPromptOnce(t *testing.T) {
	w := newWorkload(settings(), repeated, 1)
	seen := map[[2]uint64]int{}
	for _, r := range w.take(2) {
		seen[ids(r)]++
	}
	if len(seen) != 750 {
		t.Fatalf("%d different prompts, want 750", len(seen))
	}
	for id, n := range seen {
		if n != 2 {
			t.Fatalf("prompt %v was sent %d times in two rounds", id, n)
		}
	}
}

func TestFreshQuestionsNeverRepeatBelowTheSameSystemPrompts(t *testing.T) {
	w := newWorkload(settings(), fresh, 1)
	systems, questions := map[uint64]int{}, map[uint64]bool{}
	for _, r := range append(w.take(1), w.take(1)...) {
		id := ids(r)
		systems[id[0]]++
		if questions[id[1]] {
			t.Fatal("a question came twice")
		}
		questions[id[1]] = true
	}
	if len(systems) != 150 {
		t.Errorf("%d system prompts, want 150", len(systems))
	}
	for id, n := range systems {
		if n != 10 {
			t.Errorf("system prompt %d was sent %d times, want 10", id, n)
		}
	}
}

func TestArrivalsHaveTheRate(t *testing.T) {
	w := newWorkload(settings(), repeated, 1)
	all := w.take(4)
	last := time.Duration(-1)
	for _, r := range all {
		if r.At < last {
			t.Fatal("arrivals are out of order")
		}
		last = r.At
	}
	if rate := float64(len(all)) / last.Seconds(); math.Abs(rate-60) > 3 {
		t.Errorf("%.1f requests/s, want 60", rate)
	}
	if at := warmup(settings(), all); at != all[750].At {
		t.Errorf("measuring begins at %v, want the first request of the second round, %v", at, all[750].At)
	}
}

func TestTheIdealIsWhatThePublishedRunsReached(t *testing.T) {
	f := func(mode string, least, most float64) {
		t.Helper()
		if got := newWorkload(settings(), mode, 1).ideal(); got < least || got > most {
			t.Errorf("%s: ideal hit rate %.3f, want %.3f to %.3f", mode, got, least, most)
		}
	}
	f(repeated, 0.96, 1)
	f(fresh, 0.80, 0.84) // 640 of 768 tokens, 0.833, less the template's
}
