package traces

import (
	"context"
	"errors"
	"io"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func must(src Source, err error) Source {
	if err != nil {
		panic(err)
	}
	return src
}

func TestGeneratorsAreOrderedAndFollowTheirSeed(t *testing.T) {
	f := func(name string, build func(seed uint64) (Source, error)) {
		t.Helper()
		a := readAll(t, Head(must(build(1)), 400))
		if len(a) != 400 {
			t.Fatalf("%s: %d requests", name, len(a))
		}
		if !slices.IsSortedFunc(a, func(x, y *Request) int { return int(x.At - y.At) }) {
			t.Errorf("%s: due times are out of order", name)
		}
		if !reflect.DeepEqual(a, readAll(t, Head(must(build(1)), 400))) {
			t.Errorf("%s: one seed, two workloads", name)
		}
		if reflect.DeepEqual(a, readAll(t, Head(must(build(2)), 400))) {
			t.Errorf("%s: two seeds, one workload", name)
		}
		for _, r := range a {
			sum := 0
			for _, m := range r.Messages {
				for _, p := range m.Parts {
					sum += p.Tokens
				}
			}
			for _, p := range r.Tools {
				sum += p.Tokens
			}
			if sum != r.InputTokens {
				t.Fatalf("%s: parts sum to %d, InputTokens is %d", name, sum, r.InputTokens)
			}
		}
	}
	f("agents", func(seed uint64) (Source, error) { return Agents(AgentsConfig{Seed: seed, Tools: 3}) })
	f("shared prefix", func(seed uint64) (Source, error) { return SharedPrefix(SharedPrefixConfig{Seed: seed}) })
	f("hot prefix", func(seed uint64) (Source, error) { return HotPrefix(HotPrefixConfig{Seed: seed, Share: 0.7}) })
	f("unique", func(seed uint64) (Source, error) { return Unique(UniqueConfig{Seed: seed, InputTokens: Range{10, 50}}) })
}

func TestAgentTurnsExtendTheirHistory(t *testing.T) {
	all := readAll(t, must(Agents(AgentsConfig{Seed: 3, Sessions: 50, Rate: 2, Tools: 2, Turns: Range{2, 6}})))
	last := map[uint64]*Request{}
	systems := map[uint64]bool{}
	overlap := false
	for _, r := range all {
		systems[r.Messages[0].Parts[0].ID] = true
		prev := last[r.Session]
		if prev == nil && r.Turn != 0 || prev != nil && r.Turn != prev.Turn+1 {
			t.Fatalf("session %d: turn %d out of order", r.Session, r.Turn)
		}
		if prev != nil {
			n := len(prev.Messages)
			if !reflect.DeepEqual(r.Messages[:n], prev.Messages) || len(r.Messages) != n+2 {
				t.Fatalf("session %d turn %d does not extend its history", r.Session, r.Turn)
			}
			if r.Messages[n].Role != "assistant" || r.Messages[n].Parts[0].Tokens != prev.OutputTokens {
				t.Fatalf("session %d turn %d: answer is %+v", r.Session, r.Turn, r.Messages[n])
			}
			if !reflect.DeepEqual(r.Tools, prev.Tools) || r.At < prev.At {
				t.Fatalf("session %d turn %d: tools or time are off", r.Session, r.Turn)
			}
		}
		overlap = overlap || len(last) > 0 && prev == nil && r.Turn == 0
		last[r.Session] = r
	}
	if len(last) != 50 || len(systems) != 8 || !overlap {
		t.Errorf("%d sessions of %d kinds", len(last), len(systems))
	}
}

func TestSharedPrefixHasItsGroups(t *testing.T) {
	all := readAll(t, must(SharedPrefix(SharedPrefixConfig{Groups: 10, PromptsPer: 200, Rate: 50})))
	groups, questions := map[uint64]int{}, map[uint64]bool{}
	for _, r := range all {
		groups[r.Messages[0].Parts[0].ID]++
		questions[r.Messages[1].Parts[0].ID] = true
	}
	if len(all) != 2000 || len(groups) != 10 || len(questions) != 2000 {
		t.Errorf("%d requests, %d groups, %d questions", len(all), len(groups), len(questions))
	}
	if rate := 2000 / all[1999].At.Seconds(); math.Abs(rate-50) > 4 {
		t.Errorf("rate is %.1f, want 50", rate)
	}
}

func TestHotPrefixHasItsShare(t *testing.T) {
	f := func(share float64, cold, wantPrefixes int) {
		t.Helper()
		counts := map[uint64]int{}
		for _, r := range readAll(t, must(HotPrefix(HotPrefixConfig{Requests: 5000, Share: share, Cold: cold}))) {
			counts[r.Messages[0].Parts[0].ID]++
		}
		if got := float64(counts[textID("hot", 0)]) / 5000; math.Abs(got-share) > 0.02 {
			t.Errorf("share is %.3f, want %.2f", got, share)
		}
		if wantPrefixes > 0 && len(counts) != wantPrefixes {
			t.Errorf("%d prefixes, want %d", len(counts), wantPrefixes)
		}
	}
	f(0.7, 20, 21)
	f(0, 20, 20)
	f(1, 20, 1)
	f(0.5, 0, 0)
}

func TestUniquePromptsShareNothing(t *testing.T) {
	s, err := Summarize(must(Unique(UniqueConfig{Requests: 3000})))
	if err != nil {
		t.Fatal(err)
	}
	if s.IdealHit != 0 || s.InputTokens != 3000*1024 {
		t.Errorf("%+v", s)
	}
}

func TestScaleHeadAndWindow(t *testing.T) {
	at := func(seconds ...int) Source {
		var all []*Request
		for _, s := range seconds {
			all = append(all, &Request{At: time.Duration(s) * time.Second})
		}
		return Slice(all...)
	}
	f := func(name string, src Source, want ...time.Duration) {
		t.Helper()
		var got []time.Duration
		for _, r := range readAll(t, src) {
			got = append(got, r.At)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: due at %v, want %v", name, got, want)
		}
	}
	f("twice the rate", Scale(at(1, 3), 2), 500*time.Millisecond, 1500*time.Millisecond)
	f("half the rate", Scale(at(1, 3), 0.5), 2*time.Second, 6*time.Second)
	f("head", Head(at(1, 2, 3), 2), time.Second, 2*time.Second)
	f("head of nothing", Head(at(1), 0))
	f("head past the end", Head(at(1), 5), time.Second)
	f("window", Window(at(1, 2, 3, 4), 2*time.Second, 4*time.Second), 0, time.Second)
	f("open window", Window(at(1, 2, 3), 3*time.Second, 0), 0)
	for _, factor := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := Scale(at(1), factor).Next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("factor %v: error is %v", factor, err)
		}
	}
}

func TestBadConfigsAreRefused(t *testing.T) {
	f := func(name string, _ Source, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	src, err := Agents(AgentsConfig{Turns: Range{5, 2}})
	f("turns in wrong order", src, err)
	src, err = Agents(AgentsConfig{Rate: -1})
	f("negative rate", src, err)
	src, err = SharedPrefix(SharedPrefixConfig{Groups: -1})
	f("negative groups", src, err)
	src, err = SharedPrefix(SharedPrefixConfig{ZipfExponent: math.NaN()})
	f("exponent that is no number", src, err)
	src, err = HotPrefix(HotPrefixConfig{Share: 1.5})
	f("share above 1", src, err)
	src, err = Unique(UniqueConfig{Rate: math.Inf(1)})
	f("endless rate", src, err)
}

func TestATurnWaitsForTheAnswerBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		talk := NewConversation()
		begin := time.Now()
		go func() {
			<-time.After(4 * time.Second)
			talk.Finish(0, "yes")
			talk.Finish(0, "too late")
		}()
		if err := talk.Wait(t.Context(), 0); err != nil || time.Since(begin) != 0 {
			t.Errorf("first turn waited %v: %v", time.Since(begin), err)
		}
		if err := talk.Wait(t.Context(), 1); err != nil || time.Since(begin) != 4*time.Second {
			t.Errorf("second turn waited %v: %v", time.Since(begin), err)
		}
		if got, ok := talk.answer(1); got != "yes" || !ok {
			t.Errorf("answer is %q", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := talk.Wait(ctx, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("third turn: %v", err)
		}
		var none *Conversation
		none.Finish(3, "x")
		if err := none.Wait(t.Context(), 9); err != nil {
			t.Error(err)
		}
	})
}

func TestTurnsAfterAWindowsBeginDoNotWaitForCutOnes(t *testing.T) {
	src := must(Agents(AgentsConfig{Sessions: 1, Turns: Range{4, 4}, RealAnswers: true}))
	all := readAll(t, src)
	cut := readAll(t, Window(Slice(all...), all[2].At, 0))
	if len(cut) != 2 || cut[0].Turn != 2 {
		t.Fatalf("window kept %d turns", len(cut))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cut[0].Conversation.Wait(ctx, cut[0].Turn); err != nil {
		t.Errorf("first kept turn: %v", err)
	}
	if err := cut[1].Conversation.Wait(ctx, cut[1].Turn); err == nil {
		t.Error("second kept turn does not wait for the first")
	}
}
